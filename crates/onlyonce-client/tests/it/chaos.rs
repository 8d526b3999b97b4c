//! Client chaos: between client and service a proxy that loses, tears, delays and doubles
//! requests, and a client that is killed with -9 at random points. Every operation happens once.
//!
//! `ONLYONCE_CHAOS_OPERATIONS=10000 cargo test -p onlyonce-client chaos -- --nocapture` is the long
//! run; `ONLYONCE_CHAOS_SEED` repeats the faults of a run, though not its timing.

use std::collections::BTreeSet;
use std::env;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use onlyonce_client::{Group, Operation, Queue, QueueOptions, Retry, Sender, job_key};
use onlyonce_core::{Entropy as _, OsEntropy, Profile};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tempfile::tempdir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use self::proxy::{Fate, Proxy};
use self::stretch::Stretch;
use crate::support::{Service, http};

pub(crate) mod proxy;
mod stretch;

const OPERATIONS: &str = "ONLYONCE_CHAOS_OPERATIONS";
const SEED: &str = "ONLYONCE_CHAOS_SEED";
const ASSIGNMENT: &str = "ONLYONCE_CHAOS_CLIENT";
const OPERATIONS_DEFAULT: u64 = 300;
/// A client lives this long before it is killed, where clients get something done in that time.
const LIFE: std::ops::Range<Duration> = Duration::from_millis(20)..Duration::from_millis(900);
/// Something hangs if one step of the run takes longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a client process is to do.
#[derive(Serialize, Deserialize)]
struct Assignment {
    folder: String,
    /// Where operations under derived keys go, and those under random ones.
    derived: String,
    random: String,
    /// Everything before this was acknowledged by an earlier client.
    from: u64,
    until: u64,
}

/// When a client is killed: the earlier of the two.
struct Doom {
    at: Duration,
    acknowledged: u64,
}

#[derive(Default, Debug)]
struct Tally {
    clients: u32,
    killed: u32,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_happens_once_whatever_happens_to_client_and_network() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let operations = number(OPERATIONS).unwrap_or(OPERATIONS_DEFAULT);
    let seed = number(SEED).unwrap_or_else(any_seed);
    let mut dice = ChaCha8Rng::seed_from_u64(seed);
    let standard = Service::start(Profile::Standard.policy()).await;
    let guardian = Service::start(Profile::Guardian.policy()).await;
    let proxies = [
        Proxy::random(&standard.address, dice.random()).await,
        Proxy::random(&guardian.address, dice.random()).await,
    ];
    let folder = tempdir().unwrap();
    let mut assignment = Assignment {
        folder: folder.path().join("queue").to_str().unwrap().to_owned(),
        derived: proxies[0].address.clone(),
        random: proxies[1].address.clone(),
        from: 0,
        until: operations,
    };
    let mut tally = Tally::default();
    let mut stretch = Stretch::new();

    loop {
        tally.clients += 1;
        let mut client = start(&assignment);
        let doom = Doom {
            at: dice.random_range(LIFE) * stretch.factor,
            // However fast all this is, the first one does not come to its end.
            acknowledged: if tally.killed == 0 {
                operations / 4
            } else {
                u64::MAX
            },
        };
        let ended = timeout(PATIENCE, live(&mut client, &doom, &mut assignment.from));
        if ended.await.expect("a client does not hang") {
            break;
        }
        tally.killed += 1;
        let applied = standard.applied().len() + guardian.applied().len();
        stretch.after(assignment.from + applied as u64);
    }

    let queue = Queue::open(Path::new(&assignment.folder), sender())
        .await
        .unwrap();
    let stats = queue.stats().await.unwrap();
    println!(
        "seed {seed}: {operations} operations, {} clients, {} killed, lives stretched by up to {}; \
         fates {}",
        tally.clients,
        tally.killed,
        stretch.longest,
        fates(&proxies)
    );
    let undone = (0..operations).filter(|number| Kind::of(*number) == Kind::UndoneGroup);
    assert_eq!((stats.waiting, stats.spare), (0, 0), "seed {seed}");
    assert_eq!(stats.failed, undone.count() as u64, "seed {seed}");
    let applied = [standard.applied(), guardian.applied()];
    let applied: Vec<_> = applied.into_iter().flatten().collect();
    let twice: Vec<_> = applied.iter().filter(|(_, times)| *times != 1).collect();
    assert!(twice.is_empty(), "seed {seed}: more than once {twice:?}");
    let names: BTreeSet<String> = applied.into_iter().map(|(name, _)| name).collect();
    let expected: BTreeSet<String> = (0..operations).flat_map(Kind::effects).collect();
    assert_eq!(names, expected, "seed {seed}");
    assert!(tally.killed > 0, "seed {seed}: nobody was killed");
    for fate in Fate::ALL {
        let met = proxies.iter().map(|proxy| proxy.met(fate)).sum::<usize>();
        assert!(met > 0, "seed {seed}: {fate:?} never happened");
    }
}

fn any_seed() -> u64 {
    let mut seed = [0; 8];
    OsEntropy::new().fill(&mut seed);
    u64::from_le_bytes(seed)
}

fn fates(proxies: &[Proxy]) -> String {
    let met = |fate| proxies.iter().map(|proxy| proxy.met(fate)).sum::<usize>();
    let counts = Fate::ALL.map(|fate| format!("{fate:?} {}", met(fate)));
    counts.join(", ")
}

/// This very program, as a client.
fn start(assignment: &Assignment) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["chaos::a_client", "--exact", "--nocapture"])
        .env(ASSIGNMENT, serde_json::to_string(assignment).unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// Lets a client live until its doom, and notes what it acknowledges. Returns whether it came to the
/// end of its work; if not, it is killed.
async fn live(client: &mut Child, doom: &Doom, acknowledged: &mut u64) -> bool {
    let stdout = client.stdout.take().unwrap();
    let mut lines = BufReader::new(stdout).lines();
    let death = sleep(doom.at);
    tokio::pin!(death);
    let mut is_killed = false;
    loop {
        tokio::select! {
            line = lines.next_line() => match line.unwrap() {
                Some(line) => {
                    if let Some(upto) = line.strip_prefix("acknowledged ") {
                        *acknowledged = upto.parse().unwrap();
                    }
                    if *acknowledged >= doom.acknowledged && !is_killed {
                        is_killed = true;
                        client.start_kill().unwrap();
                    }
                }
                None => break,
            },
            () = &mut death, if !is_killed => {
                is_killed = true;
                // It may be at its end this very moment.
                let _ = client.start_kill();
            }
        }
    }
    let status = client.wait().await.unwrap();
    assert!(status.success() || is_killed, "a client failed: {status}");
    status.success()
}

/// Quick to try again: a run has minutes, not days.
fn sender() -> Sender {
    let retry = Retry {
        attempt_timeout: Duration::from_secs(2),
        in_progress_delay: Duration::from_millis(10),
        ..Retry::default()
    };
    Sender::new(http()).retry(retry)
}

/// The client process: nothing but a test that passes, unless it was started as one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client() {
    let Ok(assignment) = env::var(ASSIGNMENT) else {
        return;
    };
    let assignment: Assignment = serde_json::from_str(&assignment).unwrap();
    let options = QueueOptions {
        parallel: 8,
        operations_max: 1_000_000,
        backoff_min: Duration::from_millis(5),
        backoff_max: Duration::from_millis(100),
        ..QueueOptions::default()
    };
    let queue = Queue::open_with(&assignment.folder, sender(), options)
        .await
        .unwrap();
    let running = tokio::spawn({
        let queue = queue.clone();
        async move { queue.run().await }
    });
    for number in assignment.from..assignment.until {
        enqueue(&queue, &assignment, number).await;
        println!("acknowledged {}", number + 1);
    }
    running.abort();
    queue.drain().await.unwrap();
}

/// A client that died before it said "acknowledged" asks again; each kind of operation is known
/// then by something else.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// By its derived key.
    Derived,
    /// By its content.
    Random,
    /// By the name of its group.
    Group,
    /// The same; its second step is always rejected, so that its first is undone.
    UndoneGroup,
}

impl Kind {
    fn of(number: u64) -> Self {
        match number % 4 {
            0 => Self::Derived,
            1 => Self::Random,
            2 => Self::Group,
            _ => Self::UndoneGroup,
        }
    }

    /// What the services must have done in the end, once each.
    fn effects(number: u64) -> Vec<String> {
        let name = number.to_string();
        match Self::of(number) {
            Self::Derived | Self::Random => vec![name],
            Self::Group => vec![format!("{name}-room"), name],
            Self::UndoneGroup => vec![format!("{name}-undo"), name],
        }
    }
}

async fn enqueue(queue: &Queue, assignment: &Assignment, number: u64) {
    let at = |address: &str, name: &str| {
        let url = format!("{address}/apply/{number}{name}");
        let body = json!({"number": number, "name": name});
        Operation::post(&url).unwrap().json(&body).unwrap()
    };
    let (derived, random) = (&*assignment.derived, &*assignment.random);
    let key = job_key(&format!("chaos-{number}")).unwrap();
    match Kind::of(number) {
        Kind::Derived => {
            queue.enqueue_as(&key, at(derived, "")).await.unwrap();
        }
        Kind::Random => {
            queue.enqueue_unless_known(at(random, "")).await.unwrap();
        }
        Kind::Group => {
            let group = Group::new().step(at(random, "")).step(at(derived, "-room"));
            queue.enqueue_group(group.named(&key)).await.unwrap();
        }
        Kind::UndoneGroup => {
            let group = Group::new()
                .step_or_undo(at(derived, ""), at(random, "-undo"))
                .step(at(random, "-bad"));
            queue.enqueue_group(group.named(&key)).await.unwrap();
        }
    }
}
