//! While the slot secret is rotated, every call is two: one under the former secret, which processes
//! that know only that one would meet, and inside of it one under the secret in force, which those
//! that know only the new one would meet. Both are claimed, run as one, and stored.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::event::Event;
use crate::lock;
use crate::policy::Policy;
use crate::refusal::Reason;

use super::Engine;
use super::call::{Answer, Call, Outcome, Verdict};
use super::execution::Execution;
use super::finish::Held;
use super::once::Work;

/// What the outer call has to spare for storing the inner one.
const STORING_MAX: Duration = Duration::from_secs(10);

impl Engine {
    /// The engine under the former secret, while the secret is rotated. It says nothing of what it
    /// does; this one does.
    pub fn former(&self) -> Option<&Self> {
        self.inner.former.as_ref()
    }

    /// The other half of this call, if the secret is being rotated.
    pub(super) fn rotating(&self, call: &Call) -> Option<(Self, Arc<Call>)> {
        let former = self.inner.former.clone()?;
        let before = Call::clone(call.former.as_ref()?).patient();
        Some((former, Arc::new(before)))
    }

    /// Runs `work` once for both.
    pub(super) async fn once_in_both(
        &self,
        (former, before): (Self, Arc<Call>),
        call: Arc<Call>,
        work: Work,
    ) -> Answer {
        let own = Arc::new(Mutex::new(None));
        let (said, engine, inner) = (Arc::clone(&own), self.clone(), Arc::clone(&call));
        let outer = move |execution: Execution| async move {
            let answer = engine.once_here(inner, work).await;
            let outcome = echo(&answer, &execution);
            *lock(&said) = Some(answer);
            outcome
        };
        let answer = former.once_here(before, outer).await;
        match lock(&own).take() {
            Some(own) => own,
            None => {
                self.tell(&call, &answer);
                answer
            }
        }
    }

    /// Claims both for a caller who runs the work by hand.
    pub(super) async fn begin_both(
        &self,
        (former, before): (Self, Arc<Call>),
        call: Arc<Call>,
    ) -> Verdict {
        let outer = match former.begin_here(before).await {
            Verdict::Execute(held) => held,
            Verdict::Replay(replay) => {
                self.tell(&call, &Answer::Replayed(replay.clone()));
                return Verdict::Replay(replay);
            }
            Verdict::Refuse(refusal) => {
                self.tell(&call, &Answer::Refused(refusal.clone()));
                return Verdict::Refuse(refusal);
            }
            unprotected @ Verdict::PassThrough(_) => return unprotected,
        };
        let verdict = self.begin_here(call).await;
        match verdict {
            Verdict::Execute(held) => Verdict::Execute(held.within(outer)),
            Verdict::Replay(replay) => {
                outer.end_like(&Answer::Replayed(replay.clone())).await;
                Verdict::Replay(replay)
            }
            Verdict::Refuse(refusal) => {
                outer.end_like(&Answer::Refused(refusal.clone())).await;
                Verdict::Refuse(refusal)
            }
            Verdict::PassThrough(execution) => {
                outer.end_with(Outcome::NotRun).await;
                Verdict::PassThrough(execution)
            }
        }
    }

    /// Says what a caller got from the former half.
    fn tell(&self, call: &Call, answer: &Answer) {
        match answer {
            Answer::Ran { .. } => {}
            Answer::Replayed(replay) => {
                let event = Event::Replayed {
                    original_at: replay.original_at.unwrap_or_default(),
                    original_trace: replay.original_trace.clone(),
                    attached: false,
                    replays: replay.replays,
                    took: self.now().saturating_sub(call.began),
                };
                self.emit(call, &event);
            }
            Answer::Refused(refusal) => self.refused(call, refusal),
        }
    }
}

impl Call {
    /// Makes this one wait for and run as long as the call inside of it may.
    fn patient(mut self) -> Self {
        let mut policy = Policy::clone(&self.policy);
        let inside = policy.execution_max.saturating_add(STORING_MAX);
        policy.execution_max = inside.saturating_add(policy.duplicate.patience());
        self.policy = Arc::new(policy);
        self
    }
}

impl Held {
    /// Ends the outer claim as the inner one ended.
    pub(super) async fn end_like(self, answer: &Answer) {
        let outcome = echo(answer, &self.execution);
        self.end_with(outcome).await;
    }

    async fn end_with(mut self, outcome: Outcome) {
        let Some(flight) = self.flight.take() else {
            return;
        };
        let engine = self.engine.clone();
        let settling = engine.settle(&self.call, &flight, &self.execution, outcome);
        let answer = settling.await;
        flight.end(answer);
    }
}

/// What came of the inner call, as the outcome of the outer one.
fn echo(answer: &Answer, outer: &Execution) -> Outcome {
    match answer {
        Answer::Ran {
            response, receipt, ..
        } => {
            if receipt.is_none() {
                outer.do_not_store();
            }
            Outcome::Finished(Arc::clone(response))
        }
        // Made by somebody who knows only the new secret: it is found there.
        Answer::Replayed(replay) => {
            outer.do_not_store();
            Outcome::Finished(Arc::clone(&replay.response))
        }
        Answer::Refused(refusal) => match refusal.reason {
            Reason::OutcomeUnknown | Reason::TimedOut | Reason::NotStored => Outcome::Unknown,
            Reason::MissingKey
            | Reason::BadKey
            | Reason::BadTtl
            | Reason::Unscoped
            | Reason::RequestTooLarge
            | Reason::RequestUnreadable
            | Reason::Mismatch
            | Reason::OtherCredential
            | Reason::InProgress
            | Reason::TooManyWaiters
            | Reason::OverQuota
            | Reason::TooManyBadRequests
            | Reason::NotRun
            | Reason::StoreDown
            | Reason::ShuttingDown
            | Reason::Panicked
            | Reason::ResponseTooLarge => Outcome::NotRun,
        },
    }
}
