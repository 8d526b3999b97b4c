//! What a check works with: fresh keys, a way to ask, and two answers known to be of two keys.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use onlyonce_core::policy::{KeyTime, Policy};
use onlyonce_core::{Clock, OsEntropy, SystemClock};
use tokio::sync::OnceCell;

use super::answer::Answer;
use super::ask::Ask;
use super::cause::Code;
use super::client::{Client, Connection, Trouble};
use super::journal::Journal;
use super::keys::{uuid, uuid_v7};
use super::plan::Plan;
use super::report::Judged;
use super::secrets::Secrets;
use super::unusable::Unusable;

/// A check's way to the server.
pub(crate) struct Probe<'a> {
    wire: Wire<'a>,
    soundings: Soundings,
    /// Whether two executions answer differently, so that a second one can be seen.
    pub(crate) is_telling: bool,
    slow: OnceCell<Slow>,
}

/// Sends requests and writes down what became of them.
struct Wire<'a> {
    plan: &'a Plan,
    client: Client,
    clock: Arc<SystemClock>,
    entropy: OsEntropy,
    journal: Mutex<Journal>,
}

/// The same request under two keys, before any check.
pub(crate) struct Soundings {
    pub(crate) key: String,
    pub(crate) first: Answer,
    /// When `first` was there.
    pub(crate) at: Duration,
    /// The answer to another key.
    pub(crate) second: Answer,
}

/// An endpoint to meet while it runs.
#[derive(Clone)]
pub(crate) struct Slow {
    pub(crate) path: String,
    /// How long it takes to answer.
    pub(crate) takes: Duration,
    pub(crate) is_telling: bool,
}

/// An endpoint that answers sooner can hardly be met while it runs.
pub(crate) const SLOW_MIN: Duration = Duration::from_millis(100);

const TOO_MANY_REQUESTS: u16 = 429;
/// Between two looks at a request that still runs.
const PAUSE: Duration = Duration::from_millis(200);

impl<'a> Probe<'a> {
    /// Asks the endpoint twice, to see that it can be used at all.
    pub(crate) async fn open(plan: &'a Plan) -> Result<Self, Unusable> {
        let clock = Arc::new(SystemClock::new());
        let lines = plan.headers.iter().chain(&plan.other_headers);
        let wire = Wire {
            plan,
            client: Client::new(plan.target.clone(), plan.timeout, Arc::clone(&clock)),
            clock,
            entropy: OsEntropy::new(),
            journal: Mutex::new(Journal::new(Secrets::of(lines))),
        };
        let soundings = wire.sound().await?;
        wire.journal().keep_soundings();
        Ok(Self {
            wire,
            is_telling: !soundings.first.is_like(&soundings.second, &plan.policy),
            soundings,
            slow: OnceCell::new(),
        })
    }

    pub(crate) fn plan(&self) -> &'a Plan {
        self.wire.plan
    }

    pub(crate) fn policy(&self) -> &'a Policy {
        &self.wire.plan.policy
    }

    /// The answers from before the checks; they become evidence of the check that looks at them.
    pub(crate) fn soundings(&self) -> &Soundings {
        self.journal().recall();
        &self.soundings
    }

    pub(crate) fn journal(&self) -> MutexGuard<'_, Journal> {
        self.wire.journal()
    }

    /// Time since the run began.
    pub(crate) fn now(&self) -> Duration {
        self.wire.clock.now()
    }

    /// How many requests were sent so far.
    pub(crate) fn sent(&self) -> usize {
        self.wire.client.sent()
    }

    /// A key that has not been used.
    pub(crate) fn fresh_key(&self) -> String {
        self.wire.fresh_key()
    }

    /// The plan's request, without a key.
    pub(crate) fn ask(&self, label: impl Into<String>) -> Ask {
        Ask::new(label, self.wire.plan)
    }

    /// The answer to a request; without one, the check has failed.
    pub(crate) async fn send(&self, ask: &Ask) -> Result<Answer, Judged> {
        let answer = self.send_busy(ask).await?;
        // A limit says nothing about keys.
        if answer.status == TOO_MANY_REQUESTS {
            return Err(limited(ask));
        }
        Ok(answer)
    }

    /// The same where being told to come back is a good answer.
    pub(crate) async fn send_busy(&self, ask: &Ask) -> Result<Answer, Judged> {
        self.try_send(ask)
            .await
            .map_err(|trouble| silent(format!("{}: {trouble}", ask.label())))
    }

    pub(crate) async fn try_send(&self, ask: &Ask) -> Result<Answer, Trouble> {
        self.wire.send(ask).await
    }

    /// The answer to a request that nothing forbids; anything but success ends the check.
    pub(crate) async fn run(&self, ask: &Ask) -> Result<Answer, Judged> {
        let answer = self.send(ask).await?;
        if answer.is_success() {
            return Ok(answer);
        }
        Err(Judged::inconclusive(format!(
            "{} was answered {}, so there was nothing to compare",
            ask.label(),
            answer.status
        )))
    }

    /// Asks until the answer is there, as one who was told to come back.
    pub(crate) async fn settled(&self, ask: &Ask) -> Result<Answer, Judged> {
        let until = self.now() + self.plan().timeout;
        loop {
            let answer = self.send_busy(ask).await?;
            if answer.is_success() {
                return Ok(answer);
            }
            if !self.is_told_to_wait(&answer) || self.now() > until {
                return Err(match answer.status {
                    TOO_MANY_REQUESTS => limited(ask),
                    status => Judged::fail(format!("{} was answered {status}", ask.label()))
                        .code(Code::GoodRefused),
                });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// A connection to send a request on later; see [`Probe::send_on`].
    pub(crate) async fn connect(&self) -> Result<Connection, Judged> {
        let connection = self.wire.client.connect().await;
        connection.map_err(|trouble| silent(trouble.to_string()))
    }

    pub(crate) async fn send_on(
        &self,
        connection: Connection,
        ask: &Ask,
    ) -> Result<Answer, Trouble> {
        let answer = connection.send(self.wire.request(ask)).await;
        self.journal().note(ask.label(), answer.as_ref());
        answer
    }

    /// Sends a request and goes away without its answer.
    pub(crate) async fn hang_up(&self, ask: &Ask, after: Duration) -> Result<(), Judged> {
        let request = self.wire.request(ask);
        self.wire
            .client
            .hang_up(&request, after)
            .await
            .map_err(|trouble| silent(format!("{}: {trouble}", ask.label())))?;
        self.journal().note_hang_up(ask.label());
        Ok(())
    }

    /// The endpoint to meet while it runs: the slow one, or else the endpoint itself.
    pub(crate) async fn slow(&self) -> Result<&Slow, Judged> {
        self.slow.get_or_try_init(|| self.measure()).await
    }

    async fn measure(&self) -> Result<Slow, Judged> {
        let Some(path) = &self.plan().slow_path else {
            let Soundings { first, second, .. } = &self.soundings;
            return Ok(Slow {
                path: self.plan().target.path().to_owned(),
                takes: first.took.min(second.took),
                is_telling: self.is_telling,
            });
        };
        let ask = |label: &str| self.ask(label).path(path).key(&self.fresh_key());
        let first = self.run(&ask("the slow path")).await?;
        let second = self.run(&ask("the slow path, another key")).await?;
        Ok(Slow {
            path: path.clone(),
            takes: first.took.min(second.took),
            is_telling: !first.is_like(&second, self.policy()),
        })
    }
}

/// What is left to say without an answer.
pub(crate) fn silent(because: String) -> Judged {
    Judged::fail(because).code(Code::NoAnswer)
}

/// What a server that limits requests leaves to say.
fn limited(ask: &Ask) -> Judged {
    Judged::inconclusive(format!(
        "the server limits requests: {} was answered {TOO_MANY_REQUESTS}",
        ask.label()
    ))
}

impl Wire<'_> {
    async fn sound(&self) -> Result<Soundings, Unusable> {
        let key = self.fresh_key();
        let first = self.usable("a new key", &key).await?;
        let at = self.clock.now();
        let second = self.usable("another new key", &self.fresh_key()).await?;
        Ok(Soundings {
            key,
            first,
            at,
            second,
        })
    }

    async fn usable(&self, label: &str, key: &str) -> Result<Answer, Unusable> {
        let answer = self.send(&Ask::new(label, self.plan).key(key)).await;
        let answer = answer.map_err(|trouble| Unusable::silent(self.plan, trouble))?;
        if answer.is_success() {
            return Ok(answer);
        }
        let evidence = self.journal().take();
        Err(Unusable::refusing(self.plan, &answer, evidence))
    }

    async fn send(&self, ask: &Ask) -> Result<Answer, Trouble> {
        let answer = self.client.send(self.request(ask)).await;
        self.journal().note(ask.label(), answer.as_ref());
        answer
    }

    fn request(&self, ask: &Ask) -> Request<Bytes> {
        ask.request(self.plan)
    }

    fn fresh_key(&self) -> String {
        let rule = self.plan.policy.http.key_time.as_ref();
        let key = match rule.map(|rule| &rule.from) {
            Some(KeyTime::UuidV7) => uuid_v7(&self.entropy, self.clock.wall()),
            Some(KeyTime::Header(_)) | None => uuid(&self.entropy),
        };
        self.journal().hide(&key);
        key
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
