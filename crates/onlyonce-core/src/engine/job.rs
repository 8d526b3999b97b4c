//! Plain functions, jobs and queue consumers: `run(key, &input, async || …)` with serde values.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use http::StatusCode;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::fingerprint::{FingerprintBuilder, Part, canonical_json};
use crate::key::{Charset, Key, KeyError, KeyRule};
use crate::policy::{Policy, StoredRule};
use crate::refusal::{Reason, Refusal};
use crate::response::{Origin, Response};
use crate::slot::Scope;

use super::Engine;
use super::call::{Answer, Outcome, Who};
use super::execution::Execution;
use super::reconcile::Finding;

pub(super) use self::question::Look;
pub use self::question::Question;

mod question;

/// The status of what is stored where a value could not be written.
const NOT_KEPT: StatusCode = StatusCode::INSUFFICIENT_STORAGE;

/// A named kind of work. Keys of different jobs never meet.
///
/// ```
/// # use onlyonce_core::{Engine, MemoryStore};
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let engine = Engine::open(MemoryStore::new()).await.unwrap();
/// let welcome = engine.job("send-welcome-mail");
///
/// let sent = welcome
///     .run("user-17", &"a@example.org", async || Ok::<_, String>(250))
///     .await
///     .unwrap();
/// assert_eq!((sent.value, sent.replayed), (250, false));
/// # }
/// ```
#[derive(Clone)]
pub struct Job {
    engine: Engine,
    name: Arc<str>,
    scope: Scope,
    policy: Arc<Policy>,
    look: Option<Look>,
}

/// A job's value, and whether it is from an earlier run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran<T> {
    /// The value.
    pub value: T,
    /// Whether an earlier call with this key produced it.
    pub replayed: bool,
}

/// Why a job gave no value.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError<E> {
    /// The key is not valid.
    #[error("the job's key is not valid")]
    Key(#[from] KeyError),
    /// The job was not run, or its outcome is not known.
    #[error("the job was refused")]
    Refused(#[from] Refusal),
    /// The job ran and failed; nothing is stored, and the next call runs it again. Under `hold` it does
    /// not: a job that failed may have done something.
    #[error("the job failed: {0}")]
    Failed(E),
    /// The call this one was attached to failed; nothing is stored.
    #[error("the job failed in a concurrent call: {0}")]
    FailedElsewhere(String),
    /// The job panicked.
    #[error("the job panicked")]
    Panicked,
    /// The job ran, and its value could not be written as JSON. It is not run again under this key.
    #[error("the job ran, but its value could not be kept: {why}")]
    NotKept {
        /// What stood in the way.
        why: String,
    },
    /// Input or stored value cannot be written or read as JSON.
    #[error("the job's {what} is not valid JSON for its type")]
    Json {
        /// Which of them.
        what: &'static str,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

impl Engine {
    /// A named job under the rules for functions: text keys, failures run again.
    pub fn job(&self, name: &str) -> Job {
        Job {
            engine: self.clone(),
            name: name.into(),
            scope: self.scope().with("job", name),
            policy: Arc::new(function_policy()),
            look: None,
        }
    }

    /// Runs `work` once for `key`: a [`Job`] without a name of its own.
    pub async fn run<I, T, E, W, F>(
        &self,
        key: &str,
        input: &I,
        work: W,
    ) -> Result<Ran<T>, RunError<E>>
    where
        I: Serialize + ?Sized,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: fmt::Display + Send + 'static,
        W: FnOnce() -> F + Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        self.job("").run(key, input, work).await
    }
}

/// Failures are not stored: a queue delivers again, and then the job should run again. A failure
/// worth replaying is a value: let the job return `Ok(Err(reason))`.
fn function_policy() -> Policy {
    Policy {
        key: KeyRule {
            bytes_max: 1024,
            charset: Charset::Text,
            random: false,
        },
        stored: StoredRule::success(),
        ..Policy::default()
    }
}

impl Job {
    /// Runs under other rules, [within their bounds](Policy::bounded).
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Arc::new(policy.bounded());
        self
    }

    /// The rules it runs under, to change some: `job.policy(Policy { …, ..job.rules().clone() })`.
    pub fn rules(&self) -> &Policy {
        &self.policy
    }

    /// Keeps its keys apart by one more part: a tenant, a queue.
    #[must_use]
    pub fn scoped(mut self, name: &str, value: &str) -> Self {
        self.scope = self.scope.with(name, value);
        self
    }

    /// Finds out like this whether an earlier attempt happened, before the job runs again: its process
    /// died, it failed, or it took too long. `on_lapse` counts no more.
    ///
    /// ```
    /// # use onlyonce_core::engine::job::Question;
    /// # use onlyonce_core::{Engine, Finding, MemoryStore};
    /// # async fn find_mail(_id: String) -> Result<Option<u32>, String> { Ok(None) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let engine = Engine::open(MemoryStore::new()).await.unwrap();
    /// let mail = engine.job("mail").reconcile(|question: Question| async move {
    ///     match find_mail(question.execution().operation().to_string()).await {
    ///         Ok(Some(number)) => question.happened(&number),
    ///         Ok(None) => Finding::DidNot,
    ///         Err(_) => Finding::CannotTell,
    ///     }
    /// });
    /// # let _ = mail;
    /// # }
    /// ```
    #[must_use]
    pub fn reconcile<L, F>(mut self, look: L) -> Self
    where
        L: Fn(Question) -> F + Send + Sync + 'static,
        F: Future<Output = Finding> + Send + 'static,
    {
        self.look = Some(Look::new(look));
        self
    }

    /// Runs `work` once for `key`, and gives every repetition the same value.
    ///
    /// The same key with another `input` is refused. Dropping this future does not stop the work:
    /// what is left of it goes on in a task of its own.
    pub async fn run<I, T, E, W, F>(
        &self,
        key: &str,
        input: &I,
        work: W,
    ) -> Result<Ran<T>, RunError<E>>
    where
        I: Serialize + ?Sized,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: fmt::Display + Send + 'static,
        W: FnOnce() -> F + Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        self.run_with(key, input, move |_| work()).await
    }

    /// The same with the [`Execution`]: its attempt, its lease, and its [steps](Execution::step).
    pub async fn run_with<I, T, E, W, F>(
        &self,
        key: &str,
        input: &I,
        work: W,
    ) -> Result<Ran<T>, RunError<E>>
    where
        I: Serialize + ?Sized,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: fmt::Display + Send + 'static,
        W: FnOnce(Execution) -> F + Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let key = Key::new(key, &self.policy.key)?;
        let input = serde_json::to_vec(input).map_err(|source| json("input", source))?;
        let reconcile = self.look.as_ref().map(|look| look.about(&input));
        let mut fingerprint = FingerprintBuilder::new();
        fingerprint.part(Part::Operation, self.name.as_bytes());
        fingerprint.part(Part::Input, &canonical_json(&input).unwrap_or(input));
        let fingerprint = fingerprint.finish();
        let call = |engine: &Engine| {
            let who = Who::doing(Arc::clone(&self.name));
            engine.call(&self.scope, &key, fingerprint, &self.policy, who)
        };
        let call = match self.engine.former() {
            Some(former) => call(&self.engine).after(call(former)),
            None => call(&self.engine),
        };

        let call = match reconcile {
            Some(reconcile) => call.reconcile(reconcile),
            None => call,
        };

        let work = move |execution: Execution| async move {
            let result = work(execution.clone()).await;
            outcome(result, &execution)
        };
        let (answer, failure) = self.engine.once_returning(call, work).await;
        if let Some(error) = failure.flatten() {
            return Err(RunError::Failed(error));
        }
        let (response, replayed) = match answer {
            Answer::Ran { response, .. } => (response, false),
            Answer::Replayed(replay) => (replay.response, true),
            Answer::Refused(refusal) => return Err(RunError::Refused(refusal)),
        };
        read(&response).map(|value| Ran { value, replayed })
    }
}

/// What is stored of a result, and the error of the caller's own work, which has no stored form.
fn outcome<T: Serialize, E: fmt::Display>(
    result: Result<T, E>,
    execution: &Execution,
) -> (Outcome, Option<E>) {
    match result {
        Ok(value) => {
            let response = written(&value, execution);
            (response.into(), None)
        }
        Err(error) => {
            let told = error.to_string();
            let response = Response::new(StatusCode::INTERNAL_SERVER_ERROR, told);
            (response.into(), Some(error))
        }
    }
}

/// A value as it is stored. One that cannot be written has still been made: what is stored then says so,
/// under any policy, because nothing stored would mean to make it again.
pub(super) fn written<T: Serialize>(value: &T, execution: &Execution) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => Response::new(StatusCode::OK, body),
        Err(error) => {
            execution.store_unless_said();
            Response::new(NOT_KEPT, error.to_string())
        }
    }
}

/// Why the value that a stored answer stands for was not kept; nothing if it was.
pub(super) fn why_not_kept(response: &Response) -> Option<String> {
    let is_marker = response.origin == Origin::Handler && response.status == NOT_KEPT;
    is_marker.then(|| String::from_utf8_lossy(&response.body).into_owned())
}

fn read<T: DeserializeOwned, E>(response: &Response) -> Result<T, RunError<E>> {
    if let Some(why) = why_not_kept(response) {
        return Err(RunError::NotKept { why });
    }
    match response.origin {
        Origin::Panicked => Err(RunError::Panicked),
        Origin::TooLarge => Err(RunError::Refused(Refusal::new(Reason::ResponseTooLarge))),
        Origin::Handler if response.is_failure() => {
            let shown = String::from_utf8_lossy(&response.body).into_owned();
            Err(RunError::FailedElsewhere(shown))
        }
        Origin::Handler => {
            serde_json::from_slice(&response.body).map_err(|source| json("stored value", source))
        }
    }
}

fn json<E>(what: &'static str, source: serde_json::Error) -> RunError<E> {
    RunError::Json { what, source }
}
