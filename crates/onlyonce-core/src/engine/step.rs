//! Durable steps: keyed operations inside of an execution. A handler that runs again after a crash
//! gets the values of the steps that were finished, and goes on at the first that was not.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::fingerprint::{Fingerprint, FingerprintBuilder, Part, canonical_json};
use crate::policy::{Duplicate, Policy, StoreDown, StoredRule};
use crate::record::{Meta, OnLapse};
use crate::refusal::{Reason, Refusal};
use crate::response::{Origin, Response};
use crate::slot::Slot;
use crate::store::StoreError;

use super::Engine;
use super::call::{Answer, Call, Outcome, Verdict};
use super::execution::Execution;
use super::job::{Look, Question, why_not_kept, written};
use super::reconcile::Finding;

pub use self::records::{extend_with_steps, step_of, steps_of};

mod former;
mod records;

/// The longest name of a step.
const NAME_BYTES_MAX: usize = 100;
/// How much longer than a lease a step waits for an earlier attempt at it to end or lapse.
const PATIENCE_MORE: Duration = Duration::from_secs(5);
/// Between the name of an operation and that of its step, in records.
const SEPARATOR: &str = " > ";
/// In the stored answer of a step: short digests of the members of its input.
static INPUT: HeaderName = HeaderName::from_static("onlyonce-step-input");
/// Members of an input whose change is told by name, at most.
const MEMBERS_MAX: usize = 64;

/// One step of an execution, to be [run](Step::run).
///
/// ```
/// # use onlyonce_core::{Engine, MemoryStore};
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let engine = Engine::open(MemoryStore::new()).await.unwrap();
/// let ride = engine.job("ride");
/// let paid = ride
///     .run_with("ride-7", &700, async |execution| {
///         let hold = execution.step("reserve", &700).run(async || Ok::<_, String>("hold-1".to_owned())).await?;
///         execution.step("charge", &hold).run(async || Ok::<_, String>(format!("charged {hold}"))).await
///     })
///     .await
///     .unwrap();
/// assert_eq!(paid.value, "charged hold-1");
/// # }
/// ```
#[must_use = "a step does nothing unless it is run"]
pub struct Step<'a> {
    execution: &'a Execution,
    name: &'a str,
    input: Result<Vec<u8>, serde_json::Error>,
    on_lapse: Option<OnLapse>,
    look: Option<Look>,
}

/// Why a step gave no value.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StepError<E> {
    /// The name is not one.
    #[error(
        "step {name:?}: a name has 1 to 100 of the characters a-z, A-Z, 0-9, `-`, `_`, `.` and `:`"
    )]
    Name {
        /// What was given.
        name: String,
    },
    /// The execution had a step of this name before: their records would be one.
    #[error(
        "step `{name}` was run before in this execution: give each step a name of its own, as in `{name}-2`"
    )]
    Repeated {
        /// Its name.
        name: String,
    },
    /// An earlier attempt ran this step with another input.
    #[error(
        "step `{name}` was run with another input by an earlier attempt: {what}; an input may depend only on the request and on earlier steps"
    )]
    Changed {
        /// Its name.
        name: String,
        /// What is different, as far as that is known.
        what: String,
    },
    /// An earlier attempt may have run this step, and its rule is not to run it again.
    #[error(
        "step `{name}` may have been run by an earlier attempt, and is held until an operator resolves it"
    )]
    InDoubt {
        /// Its name.
        name: String,
        /// Where its record is: for `onlyonce keys resolve`.
        slot: Slot,
    },
    /// An earlier attempt may have run this step, and it cannot be told yet whether that happened: the
    /// next attempt asks again.
    #[error(
        "step `{name}` may have been run by an earlier attempt, and it cannot be told yet whether it happened: run the operation again later"
    )]
    CannotTell {
        /// Its name.
        name: String,
        /// When that may help.
        retry_after: Option<Duration>,
    },
    /// Another process has taken this execution over: it goes on there.
    #[error("step `{name}` was not begun: another process has taken this execution over")]
    Lost {
        /// Its name.
        name: String,
    },
    /// The step was not run, or its result is not stored.
    #[error("step `{name}` was refused")]
    Refused {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        refusal: Refusal,
    },
    /// The store failed.
    #[error("step `{name}`: its record cannot be kept as long as it is needed")]
    Store {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// The step ran and failed; nothing is stored. It runs again with the next attempt, unless its
    /// rule is to hold.
    #[error("{0}")]
    Failed(E),
    /// The step ran, and its value could not be written as JSON. No later attempt runs it again.
    #[error("step `{name}` ran, but its value could not be kept: {why}")]
    NotKept {
        /// Its name.
        name: String,
        /// What stood in the way.
        why: String,
    },
    /// Input or stored value cannot be written or read as JSON.
    #[error("step `{name}`: its {what} is not valid JSON for its type")]
    Json {
        /// Its name.
        name: String,
        /// Which of them.
        what: &'static str,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

/// So that a handler whose errors are texts can use `?`.
impl<E: fmt::Display> From<StepError<E>> for String {
    fn from(error: StepError<E>) -> Self {
        error.to_string()
    }
}

impl Slot {
    /// The address of a step of the operation at this one. No two names share one.
    pub fn step(&self, name: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"onlyonce step 1\n");
        hash.update(self.as_bytes());
        hash.update(name.as_bytes());
        Self::from_bytes(hash.finalize().into())
    }
}

impl Execution {
    /// A step of this execution, by its name. It runs once: a later run of this execution gets its
    /// value instead.
    ///
    /// `input` is what the step depends on: an attempt that comes with another one is refused.
    pub fn step<'a, I: Serialize + ?Sized>(&'a self, name: &'a str, input: &I) -> Step<'a> {
        Step {
            execution: self,
            name,
            input: serde_json::to_vec(input),
            on_lapse: None,
            look: None,
        }
    }
}

impl Step<'_> {
    /// What to do if an earlier attempt began this step and it is not known whether it took effect:
    /// run it again, or hold it for an operator. Otherwise it is as for the whole execution.
    pub fn on_lapse(mut self, on_lapse: OnLapse) -> Self {
        self.on_lapse = Some(on_lapse);
        self
    }

    /// Finds out like this whether an earlier attempt at this step happened, before it runs again: its
    /// process died, or it failed. The step's `on_lapse` counts no more, nor that of its execution.
    ///
    /// ```
    /// # use onlyonce_core::engine::job::Question;
    /// # use onlyonce_core::{Execution, Finding, StepError};
    /// # async fn find_charge(_id: String) -> Result<Option<u32>, String> { Ok(None) }
    /// # async fn charge(_id: String) -> Result<u32, String> { Ok(7) }
    /// async fn pay(execution: Execution) -> Result<u32, StepError<String>> {
    ///     let step = execution.step("charge", &700).reconcile(|question: Question| async move {
    ///         match find_charge(question.execution().operation().to_string()).await {
    ///             Ok(Some(number)) => question.happened(&number),
    ///             Ok(None) => Finding::DidNot,
    ///             Err(_) => Finding::CannotTell,
    ///         }
    ///     });
    ///     step.run_with(async |step| charge(step.operation().to_string()).await).await
    /// }
    /// # let _ = pay;
    /// ```
    pub fn reconcile<L, F>(mut self, look: L) -> Self
    where
        L: Fn(Question) -> F + Send + Sync + 'static,
        F: Future<Output = Finding> + Send + 'static,
    {
        self.look = Some(Look::new(look));
        self
    }

    /// Runs `work`, or gives the value that an earlier attempt stored.
    pub async fn run<T, E, W, F>(self, work: W) -> Result<T, StepError<E>>
    where
        T: Serialize + DeserializeOwned,
        W: FnOnce() -> F,
        F: Future<Output = Result<T, E>>,
    {
        self.run_with(|_| work()).await
    }

    /// The same with an execution of its own: its lease, with which the step can complete its record in
    /// its own transaction, and its attempt.
    pub async fn run_with<T, E, W, F>(self, work: W) -> Result<T, StepError<E>>
    where
        T: Serialize + DeserializeOwned,
        W: FnOnce(Execution) -> F,
        F: Future<Output = Result<T, E>>,
    {
        let Self {
            execution,
            name,
            input,
            on_lapse,
            look,
        } = self;
        let input = input.map_err(|source| json(name, "input", source))?;
        let input = canonical_json(&input).unwrap_or(input);
        if !is_name(name) {
            return Err(StepError::Name {
                name: name.to_owned(),
            });
        }
        if !execution.begin_step(name) {
            return Err(StepError::Repeated {
                name: name.to_owned(),
            });
        }
        let Some((engine, parent, lease)) = execution.origin() else {
            return work(execution.clone()).await.map_err(StepError::Failed);
        };
        if execution.is_lost() {
            return Err(StepError::Lost {
                name: name.to_owned(),
            });
        }
        let call = engine.step_call(parent, name, &input, on_lapse);
        let call = match look {
            Some(look) => call.reconcile(look.about(&input)),
            None => call,
        };
        let call = Arc::new(call);
        let slot = call.slot;
        let keep_for = call.keep_for;
        let kept = |source| StepError::Store {
            name: name.to_owned(),
            source,
        };
        let mut verdict = Box::pin(engine.begin(Arc::clone(&call))).await;
        if former::may_be_former(&verdict) {
            let forgetting = Box::pin(engine.forget_former(parent, lease, &call));
            if forgetting.await.map_err(kept)? {
                verdict = Box::pin(engine.begin(call)).await;
            }
        }
        match verdict {
            Verdict::Execute(held) => {
                let inside = held.execution().clone();
                let (outcome, made) = match work(inside.clone()).await {
                    Ok(value) => {
                        let response = written(&value, &inside);
                        (finished(response, engine.members(&input)), Ok(value))
                    }
                    Err(error) => (failed(), Err(StepError::Failed(error))),
                };
                let answer = Box::pin(engine.finish(held, outcome)).await;
                match (made, answer) {
                    (
                        Ok(value),
                        Answer::Ran {
                            response,
                            as_returned: true,
                            ..
                        },
                    ) => match why_not_kept(&response) {
                        Some(why) => Err(not_kept(name, why)),
                        None => Ok(value),
                    },
                    (
                        _,
                        Answer::Ran {
                            response,
                            as_returned: false,
                            ..
                        },
                    ) => read(name, &response),
                    (_, Answer::Replayed(replay)) => read(name, &replay.response),
                    (Ok(_), Answer::Refused(refusal)) => Err(refused(name, slot, refusal)),
                    (
                        Err(error),
                        Answer::Ran {
                            as_returned: true, ..
                        }
                        | Answer::Refused(_),
                    ) => Err(error),
                }
            }
            Verdict::Replay(replay) => {
                engine.keep_step(&slot, keep_for).await.map_err(kept)?;
                read(name, &replay.response)
            }
            Verdict::Refuse(refusal) if refusal.reason == Reason::Mismatch => {
                let what = engine.changed(&slot, &input).await;
                Err(StepError::Changed {
                    name: name.to_owned(),
                    what,
                })
            }
            Verdict::Refuse(refusal) => Err(refused(name, slot, refusal)),
            // Its policy is closed: without a store nothing of it runs.
            Verdict::PassThrough(_) => Err(refused(name, slot, Refusal::new(Reason::StoreDown))),
        }
    }
}

impl Engine {
    /// The call of a step of `parent`.
    fn step_call(
        &self,
        parent: &Call,
        name: &str,
        input: &[u8],
        on_lapse: Option<OnLapse>,
    ) -> Call {
        let mut fingerprint = FingerprintBuilder::new();
        fingerprint.part(Part::Operation, name.as_bytes());
        fingerprint.part(Part::Input, input);
        let fingerprint = fingerprint.finish();
        let policy = Arc::new(step_policy(&parent.policy, on_lapse));
        let operation = format!("{}{SEPARATOR}{name}", parent.meta.operation);
        let meta = Arc::new(Meta {
            operation: operation.into(),
            ..Meta::clone(&parent.meta)
        });
        let call = |parent: &Call| {
            self.step_call_at(parent.slot.step(name), parent, fingerprint, &policy, &meta)
        };
        match &parent.former {
            Some(former) => call(parent).after(call(former)),
            None => call(parent),
        }
    }

    fn step_call_at(
        &self,
        slot: Slot,
        parent: &Call,
        fingerprint: Fingerprint,
        policy: &Arc<Policy>,
        meta: &Arc<Meta>,
    ) -> Call {
        Call {
            slot,
            key: parent.key.clone(),
            fingerprint,
            policy: Arc::clone(policy),
            keep_for: parent.keep_for.saturating_add(kept_longer(parent)),
            meta: Arc::clone(meta),
            former: None,
            attempt_min: 1,
            reconcile: None,
            is_reconciled: false,
            intake: parent.intake.clone(),
            route: parent.route.clone(),
            began: self.now(),
            is_step: true,
        }
    }

    /// Keeps a finished step for as long as an attempt that begins now may need it.
    async fn keep_step(&self, slot: &Slot, keep_for: Duration) -> Result<(), StoreError> {
        let Some(operate) = self.inner.store.operate() else {
            return Ok(());
        };
        let Some(record) = operate.get(slot).await? else {
            return Ok(());
        };
        let short = keep_for.saturating_sub(record.keep_left);
        // Steps of one attempt are read within moments: not each of them is worth a write.
        if short > keep_for / 8 {
            operate.extend(slot, short).await?;
        }
        Ok(())
    }

    /// Short keyed digests of an input: of each member of an object, or of the whole.
    fn members(&self, input: &[u8]) -> Vec<(String, String)> {
        let digest = |value: &[u8]| {
            let digest = self.inner.secret.credential(value);
            digest
                .iter()
                .take(6)
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
        match serde_json::from_slice(input) {
            Ok(serde_json::Value::Object(members)) if members.len() <= MEMBERS_MAX => members
                .iter()
                .map(|(name, value)| (name.clone(), digest(value.to_string().as_bytes())))
                .collect(),
            Ok(_) | Err(_) => vec![(String::new(), digest(input))],
        }
    }

    /// What differs between this input and the one that the step's record was made with.
    async fn changed(&self, slot: &Slot, input: &[u8]) -> String {
        let unknown = || "which part of it is not known".to_owned();
        let Some(operate) = self.inner.store.operate() else {
            return unknown();
        };
        let record = operate.get(slot).await.ok().flatten();
        let before = record.as_ref().and_then(|record| record.response());
        let before = before
            .and_then(|it| it.headers.get(&INPUT))
            .and_then(|it| it.to_str().ok());
        let Some(before) =
            before.and_then(|it| serde_json::from_str::<Vec<(String, String)>>(it).ok())
        else {
            return unknown();
        };
        let now = self.members(input);
        let named =
            |name: &str| before.iter().chain(&now).all(|it| !it.0.is_empty()) && !name.is_empty();
        let mut said = Vec::new();
        for (name, value) in &now {
            match before.iter().find(|(other, _)| other == name) {
                Some((_, other)) if other == value => {}
                Some(_) if named(name) => said.push(format!("member `{name}` has another value")),
                None if named(name) => said.push(format!("member `{name}` is new")),
                Some(_) | None => {}
            }
        }
        for (name, _) in &before {
            if named(name) && now.iter().all(|(other, _)| other != name) {
                said.push(format!("member `{name}` is missing"));
            }
        }
        if said.is_empty() {
            "its value is another one".to_owned()
        } else {
            said.join(", ")
        }
    }
}

/// How much longer than its parent a step is kept, however late the parent ends.
fn kept_longer(parent: &Call) -> Duration {
    let Policy {
        execution_max,
        lease_for,
        ..
    } = &*parent.policy;
    execution_max.saturating_add(*lease_for)
}

/// The rules of a step: only values are stored, and what an earlier attempt still holds is waited
/// for until it lapses.
fn step_policy(parent: &Policy, on_lapse: Option<OnLapse>) -> Policy {
    Policy {
        on_lapse: on_lapse.unwrap_or(parent.on_lapse),
        duplicate: Duplicate::Wait(parent.lease_for.saturating_add(PATIENCE_MORE)),
        store_down: StoreDown::Closed,
        stored: StoredRule::success(),
        ..parent.clone()
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"-_.:".contains(&it);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

fn finished(mut response: Response, members: Vec<(String, String)>) -> Outcome {
    let told = serde_json::to_string(&members).ok();
    // A name that no header can hold is not told.
    if let Some(told) = told.and_then(|it| HeaderValue::from_str(&it).ok()) {
        response.headers.insert(INPUT.clone(), told);
    }
    response.into()
}

/// Not stored; the error itself goes to the handler.
fn failed() -> Outcome {
    Response::new(StatusCode::INTERNAL_SERVER_ERROR, "").into()
}

fn refused<E>(name: &str, slot: Slot, refusal: Refusal) -> StepError<E> {
    let name = name.to_owned();
    if refusal.reason == Reason::OutcomeUnknown {
        // Only what is asked about again can be tried again.
        return match refusal.retryable {
            Some(true) => StepError::CannotTell {
                name,
                retry_after: refusal.retry_after,
            },
            Some(false) | None => StepError::InDoubt { name, slot },
        };
    }
    StepError::Refused { name, refusal }
}

fn read<T: DeserializeOwned, E>(name: &str, response: &Response) -> Result<T, StepError<E>> {
    if let Some(why) = why_not_kept(response) {
        return Err(not_kept(name, why));
    }
    match response.origin {
        Origin::Handler => serde_json::from_slice(&response.body)
            .map_err(|source| json(name, "stored value", source)),
        Origin::Panicked | Origin::TooLarge => Err(StepError::Refused {
            name: name.to_owned(),
            refusal: Refusal::new(Reason::ResponseTooLarge),
        }),
    }
}

fn not_kept<E>(name: &str, why: String) -> StepError<E> {
    StepError::NotKept {
        name: name.to_owned(),
        why,
    }
}

fn json<E>(name: &str, what: &'static str, source: serde_json::Error) -> StepError<E> {
    StepError::Json {
        name: name.to_owned(),
        what,
        source,
    }
}
