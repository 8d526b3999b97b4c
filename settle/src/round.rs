//! One plan, played: its boundaries are counted, and at each of them something is killed.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, RngExt as _};
use rand_chacha::ChaCha8Rng;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::failure::Failure;
use crate::judge::{Ending, Story, judge};
use crate::plan::{Plan, Target};
use crate::process::Thread;
use crate::report::Row;
use crate::stage::{Servers, Stage};
use crate::trace::{Trace, count_of_one, counts};

/// For the calls that a process makes after its answer was read.
const TRAILING: Duration = Duration::from_millis(100);
/// How late after the request a kill at random comes, at most: longer than a request takes.
const MOMENT_MAX_US: u64 = 60_000;

/// How much of a plan is tried.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) seed: u64,
    /// So many boundaries, drawn at random; or all.
    pub(crate) sample: Option<usize>,
    /// So many rounds with two kills at random moments.
    pub(crate) random: usize,
}

/// Where a process is killed.
#[derive(Clone, Debug)]
enum Fault {
    /// At the N-th system call of this name in a thread.
    Call {
        target: Target,
        thread: Thread,
        call: String,
        number: u64,
    },
    /// So long after a request was sent, one after the other.
    Moments([(Target, Duration); 2]),
}

/// A plan while it is played.
struct Round<'a> {
    plan: &'a Plan,
    stage: Stage,
    keys: usize,
    row: Row,
}

/// Plays a plan.
pub(crate) async fn play(
    plan: &Plan,
    servers: &Arc<Servers>,
    gateway: &Path,
    extent: Extent,
) -> Result<Row, Failure> {
    let began = Instant::now();
    let mut round = Round {
        plan,
        stage: Stage::set(plan, servers, gateway).await?,
        keys: 0,
        row: Row::new(plan),
    };
    for fault in round.faults(extent).await? {
        round.suffer(&fault).await?;
    }
    round.row.lasted = began.elapsed();
    Ok(round.row)
}

impl Round<'_> {
    /// What is to be done, in order.
    async fn faults(&mut self, extent: Extent) -> Result<Vec<Fault>, Failure> {
        let mut random = ChaCha8Rng::seed_from_u64(extent.seed);
        let mut faults = Vec::new();
        for target in self.plan.kind.targets() {
            faults.extend(self.calls(*target).await?);
        }
        self.row.boundaries = faults.len() + self.row.missed;
        if let Some(sample) = extent.sample {
            faults.shuffle(&mut random);
            faults.truncate(sample);
        }
        faults.extend((0..extent.random).map(|_| self.moments(&mut random)));
        Ok(faults)
    }

    /// The system calls of one target in a request, by a request that is left alone.
    async fn calls(&mut self, target: Target) -> Result<Vec<Fault>, Failure> {
        let client = self.client();
        let file = self.stage.folder.path().join("calls");
        let process = self.stage.target(target);
        let threads = process.threads()?;
        let trace = Trace::record(process.id()?, &file).await?;
        let ending = client.settle(&self.addresses()).await?;
        sleep(TRAILING).await;
        trace.end().await?;
        if !matches!(ending, Ending::Answered(_)) {
            return Err(Failure::new(format!(
                "{}: a request that is left alone came to {ending:?}",
                self.plan.name()
            )));
        }
        let mut faults = Vec::new();
        for ((id, call), count) in counts(&file)? {
            let thread = threads.iter().find(|(_, it)| *it == id);
            let Some((thread, _)) = thread else {
                // The thread began with the request: it cannot be waited for before it.
                self.row.missed += usize::try_from(count).unwrap_or(usize::MAX);
                continue;
            };
            faults.extend((1..=count).map(|number| Fault::Call {
                target,
                thread: thread.clone(),
                call: call.clone(),
                number,
            }));
        }
        Ok(faults)
    }

    fn moments(&self, random: &mut ChaCha8Rng) -> Fault {
        let targets = self.plan.kind.targets();
        let mut moment = || {
            let target = targets[random.random_range(0..targets.len())];
            // Early moments are more: most of a request lies there.
            let most = 1 << random.random_range(4..=MOMENT_MAX_US.ilog2());
            (target, Duration::from_micros(random.next_u64() % most))
        };
        Fault::Moments([moment(), moment()])
    }

    /// Kills, starts again, asks on, and judges.
    async fn suffer(&mut self, fault: &Fault) -> Result<(), Failure> {
        let client = self.client();
        let kills = match fault {
            Fault::Call {
                target,
                thread,
                call,
                number,
            } => {
                let at = (thread, call.as_str(), *number);
                usize::from(self.kill_at_call(&client, *target, at).await?)
            }
            Fault::Moments(moments) => {
                for (target, after) in moments {
                    self.kill_at_moment(&client, *target, *after).await?;
                }
                moments.len()
            }
        };
        match (fault, kills) {
            (Fault::Call { .. }, 0) => self.row.missed += 1,
            (Fault::Call { .. }, _) => self.row.tried += 1,
            (Fault::Moments(_), _) => self.row.random += 1,
        }
        let story = self.story(&client, kills).await?;
        let wrong = judge(self.plan.kind, &story);
        self.row.note(&story);
        let told = wrong
            .into_iter()
            .map(|what| format!("{} {fault:?}: {what}; {story:?}", client.key));
        self.row.violations.extend(told);
        Ok(())
    }

    /// Sends a request, and kills a process at one of its calls. Returns whether it came that far.
    async fn kill_at_call(
        &mut self,
        client: &Client,
        target: Target,
        (thread, call, number): (&Thread, &str, u64),
    ) -> Result<bool, Failure> {
        let first = self.addresses()[0];
        let threads = self.stage.target(target).threads()?;
        let Some((_, id)) = threads.iter().find(|(it, _)| it == thread) else {
            return Ok(false);
        };
        let file = self.stage.folder.path().join("calls");
        let trace = Trace::kill_at(*id, call, number, &file).await?;
        client.attempt(first).await;
        sleep(TRAILING).await;
        trace.end().await?;
        let was_killed = count_of_one(&file, call)? >= number;
        if was_killed {
            self.stage.target(target).wait_until_killed().await?;
            self.restart(target).await?;
        }
        Ok(was_killed)
    }

    async fn kill_at_moment(
        &mut self,
        client: &Client,
        target: Target,
        after: Duration,
    ) -> Result<(), Failure> {
        let first = self.addresses()[0];
        let id = self.stage.target(target).id()?;
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Failure::new("a process has no id"))?;
        let kill = async {
            sleep(after).await;
            // It was not waited for: the id is still its own.
            kill_process(pid, Signal::KILL).map_err(Failure::doing("kill a process"))
        };
        let (killed, ()) = tokio::join!(kill, client.attempt(first));
        killed?;
        self.stage.target(target).wait_until_killed().await?;
        self.restart(target).await
    }

    async fn restart(&mut self, target: Target) -> Result<(), Failure> {
        if self.plan.kind.is_looked_up() && target == Target::Front {
            self.stage.wait_until_quiet().await?;
        }
        self.stage.target(target).start_again().await
    }

    /// The client's retries, those of everyone else after them, and what is written down.
    async fn story(&mut self, client: &Client, kills: usize) -> Result<Story, Failure> {
        let mut fronts = self.addresses();
        fronts.rotate_left(1);
        let ending = client.settle(&fronts).await?;
        let hold = match ending {
            Ending::Held => Some(client.resolve(self.stage.admins[0], &fronts).await?),
            Ending::Answered(_) | Ending::Unsettled(_) => None,
        };
        let mut replays = Vec::new();
        for front in &fronts {
            if !matches!(ending, Ending::Unsettled(_)) {
                replays.push(client.settle(&[*front]).await?);
            }
        }
        self.stage.wait_until_quiet().await?;
        Ok(Story {
            kills,
            ending,
            hold,
            replays,
            effects: self.stage.effects(&client.key).await?,
        })
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.stage.fronts.iter().map(|it| it.listen).collect()
    }

    fn client(&mut self) -> Client {
        self.keys += 1;
        Client {
            kind: self.plan.kind,
            key: format!("{}-{:06}", self.plan.name().replace(' ', "-"), self.keys),
        }
    }
}
