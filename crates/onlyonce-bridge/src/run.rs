//! One function under a key, as steps that its host takes.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use onlyonce_core::engine::job::{self, RunError};
use onlyonce_core::{Engine, Execution, KeyError, OnLapse, Policy, Reason, Refusal};
use serde_json::value::RawValue;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

pub(crate) use onlyonce_core::engine::job::Ran;

use crate::deadline::{Deadline, Waiting};
use crate::execution::HostExecution;
use crate::value::HostValue;

/// How functions are run.
#[derive(Clone, Debug, Default)]
pub struct JobSettings {
    /// What follows when a process dies half-way; run again otherwise.
    pub on_lapse: Option<OnLapse>,
    /// How long values are kept.
    pub keep_for: Option<Duration>,
    /// How long a function may run.
    pub execution_max: Option<Duration>,
    /// How long a lease lasts: how soon another process takes over after a crash.
    pub lease_for: Option<Duration>,
}

/// A named kind of function.
#[derive(Clone)]
pub struct Job {
    job: job::Job,
    runtime: Handle,
}

/// Why there is no value.
#[derive(Debug, Error)]
pub enum RunFailure {
    /// The key is not valid.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// It was not run, or its outcome is not known.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It failed, in this call: the host has the exception.
    #[error("the function failed: {0}")]
    Failed(String),
    /// It failed in another call, to which this one was attached.
    #[error("the function failed in a concurrent call: {0}")]
    FailedElsewhere(String),
    /// A step was asked for that cannot be one.
    #[error("{0}")]
    Step(String),
    /// It ran, and its value could not be written: it is not run again under this key.
    #[error("{0}")]
    NotKept(String),
    /// What is stored cannot be read, or the input is no JSON.
    #[error("{0}")]
    Json(String),
}

impl From<RunError<String>> for RunFailure {
    fn from(error: RunError<String>) -> Self {
        match error {
            RunError::Key(error) => Self::Key(error),
            RunError::Refused(refusal) => Self::Refused(refusal),
            RunError::Failed(why) => Self::Failed(why),
            RunError::FailedElsewhere(why) => Self::FailedElsewhere(why),
            error @ RunError::NotKept { .. } => Self::NotKept(error.to_string()),
            error @ (RunError::Panicked | RunError::Json { .. } | _) => {
                Self::Json(error.to_string())
            }
        }
    }
}

/// What the host has to do next.
pub enum RunStep {
    /// Run the function.
    Work(Work),
    /// This is the value, as JSON; or there is none.
    Done(Result<Ran<Box<RawValue>>, RunFailure>),
}

pub(crate) type Value = Result<HostValue, String>;

/// The engine was closed, and its grace was over, before the function's value was stored.
fn cut_off() -> RunFailure {
    let unknown = Refusal::new(Reason::OutcomeUnknown);
    unknown.because("the engine was closed meanwhile").into()
}

/// Takes what a function returned. Dropped before that, the function was cancelled.
pub struct Work {
    execution: HostExecution,
    sender: Option<oneshot::Sender<Value>>,
    deadline: Deadline,
}

impl Work {
    /// What the function may know and say.
    pub fn execution(&self) -> &HostExecution {
        &self.execution
    }

    /// The function returned this JSON.
    pub fn returned(&mut self, json: String) -> Result<(), serde_json::Error> {
        let value = RawValue::from_string(json)?;
        self.send(Ok(HostValue::Written(value)));
        Ok(())
    }

    /// The function returned, and its host has no JSON for the value: it is not run again for that.
    pub fn unwritable(&mut self, why: String) {
        self.send(Ok(HostValue::Unwritable(why)));
    }

    /// The function raised an exception; `why` is for callers that wait for it.
    pub fn raised(&mut self, why: String) {
        self.send(Err(why));
    }

    /// Wakes `waker` when the function is past its deadline and has to be stopped.
    pub fn when_abandoned(&self, waker: Waker) {
        self.deadline.when_passed(waker);
    }

    fn send(&mut self, value: Value) {
        if let Some(sender) = self.sender.take() {
            // Its deadline may have passed: then it is in doubt already.
            drop(sender.send(value));
        }
    }
}

impl Job {
    pub(crate) fn new(
        engine: &Engine,
        name: &str,
        settings: &JobSettings,
        runtime: Handle,
    ) -> Self {
        let job = engine.job(name);
        let rules = job.rules().clone();
        let policy = Policy {
            on_lapse: settings.on_lapse.unwrap_or(rules.on_lapse),
            keep_for: settings.keep_for.unwrap_or(rules.keep_for),
            execution_max: settings.execution_max.unwrap_or(rules.execution_max),
            lease_for: settings.lease_for.unwrap_or(rules.lease_for),
            ..rules
        };
        let job = job.policy(policy);
        Self { job, runtime }
    }

    /// Starts a call: `input` is JSON, and the same key with another is refused.
    pub fn run(&self, key: String, input: String) -> Result<Run, serde_json::Error> {
        let input = RawValue::from_string(input)?;
        let desk = Desk::default();
        let (job, work) = (self.job.clone(), desk.clone());
        let running = async move {
            let work = move |execution| by_host(work, execution);
            HostValue::told(job.run_with(&key, &input, work).await?)
        };
        Ok(Run::new(running, desk, self.runtime.clone()))
    }
}

/// Leaves the work on the desk, and waits for what the host makes of it.
pub(crate) async fn by_host(desk: Desk, execution: Execution) -> Value {
    let (sender, receiver) = oneshot::channel();
    let (waiting, deadline) = Waiting::start();
    desk.put(Work {
        execution: HostExecution::new(execution),
        sender: Some(sender),
        deadline,
    });
    let value = receiver.await;
    waiting.end();
    value.unwrap_or_else(|_closed| Err("it was cancelled".to_owned()))
}

/// Where the engine leaves the work for the host to take.
#[derive(Clone, Default)]
pub(crate) struct Desk(Arc<Mutex<Option<Work>>>);

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Option<Work>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, work: Work) {
        *self.lock() = Some(work);
    }

    fn take(&self) -> Option<Work> {
        self.lock().take()
    }
}

type Running = Pin<Box<dyn Future<Output = Result<Ran<Box<RawValue>>, RunFailure>> + Send>>;

/// One call on its way. A host whose caller goes away goes on polling it: what has not started is
/// still going to.
pub struct Run {
    running: Option<Running>,
    desk: Desk,
    runtime: Handle,
}

impl Run {
    pub(crate) fn new(
        running: impl Future<Output = Result<Ran<Box<RawValue>>, RunFailure>> + Send + 'static,
        desk: Desk,
        runtime: Handle,
    ) -> Self {
        Self {
            running: Some(Box::pin(running)),
            desk,
            runtime,
        }
    }

    /// The next step, once there is one; nothing follows [`RunStep::Done`].
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<RunStep> {
        let _entered = self.runtime.enter();
        let Some(running) = &mut self.running else {
            return Poll::Pending;
        };
        if let Poll::Ready(done) = running.as_mut().poll(cx) {
            self.running = None;
            return Poll::Ready(RunStep::Done(done));
        }
        match self.desk.take() {
            Some(work) => Poll::Ready(RunStep::Work(work)),
            None => Poll::Pending,
        }
    }

    /// Lets the runtime poll it, for a host whose thread is about to run the function: deadlines are
    /// kept meanwhile.
    pub fn detach(&mut self) {
        if let Some(running) = self.running.take() {
            let task = self.runtime.spawn(running);
            self.running = Some(Box::pin(async move {
                task.await.unwrap_or_else(|_stopped| Err(cut_off()))
            }));
        }
    }

    /// Blocks this thread until there is a step or `at_most` has passed.
    pub fn wait(&mut self, at_most: Duration) -> Option<RunStep> {
        let runtime = self.runtime.clone();
        let stepping = poll_fn(|cx| self.poll(cx));
        runtime
            .block_on(async { tokio::time::timeout(at_most, stepping).await })
            .ok()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _entered = self.runtime.enter();
        self.running = None;
    }
}
