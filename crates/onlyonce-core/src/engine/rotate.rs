//! While the slot secret is rotated, every call is two: one under the former secret, which processes
//! that know only that one would meet, and inside of it one under the secret in force, which those
//! that know only the new one would meet. Both are claimed, run as one, and stored.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::lock;
use crate::policy::{Fate, Policy};
use crate::record::{Meta, Replay};
use crate::refusal::Reason;

use super::Engine;
use super::call::{Answer, Call, Outcome, Verdict};
use super::execution::Execution;
use super::finish::Held;
use super::flight::Flight;
use super::once::{Work, replayed};

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
        let before = call.around()?.patient();
        Some((former, Arc::new(before)))
    }

    /// Runs `work` once for both.
    pub(super) async fn once_in_both<T: Send + 'static>(
        &self,
        (former, before): (Self, Arc<Call>),
        call: Arc<Call>,
        work: Work<T>,
    ) -> (Answer, Option<T>) {
        // Noted beside the outer flight, whose caller may be answered before that ends.
        let own = Arc::new(Mutex::new(None));
        let (said, engine, inner) = (Arc::clone(&own), self.clone(), Arc::clone(&call));
        let outer = move |execution: Execution| async move {
            let inner = inner.inside(execution.attempt());
            let flown = Arc::new(Mutex::new(None));
            let noted = Arc::clone(&flown);
            let work = move |inside: Execution| {
                *lock(&noted) = inside.flight();
                work(inside)
            };
            let (mut answer, value) = engine.once_here(Arc::clone(&inner), work).await;
            *lock(&said) = Some((answer.clone(), value));
            if is_not_stored(&answer) {
                // Its callers are told so; the slot stays ours until the result is stored, or not.
                execution.stall();
                let flown = lock(&flown).take();
                answer = engine.stored_at_last(inner, flown).await;
            }
            (echo(&answer, &execution), ())
        };
        let (answer, _) = former.once_here(before, outer).await;
        match lock(&own).take() {
            Some((own, value)) => (either(own, answer, &call.meta), value),
            None => {
                self.tell(&call, &answer);
                (answer, None)
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
            Verdict::Execute(held) => held.kept_back(),
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
        let call = call.inside(outer.execution().attempt());
        let verdict = self.begin_here(call).await;
        let outcome = match verdict {
            Verdict::Execute(held) => return Verdict::Execute(held.within(outer)),
            Verdict::Replay(ref replay) => {
                echo(&Answer::Replayed(replay.clone()), outer.execution())
            }
            Verdict::Refuse(ref refusal) => {
                echo(&Answer::Refused(refusal.clone()), outer.execution())
            }
            Verdict::PassThrough(_) => Outcome::NotRun,
        };
        // In a task of its own: it ends like the inner one, even if its caller goes away.
        drop(tokio::spawn(outer.end_with(outcome)).await);
        verdict
    }

    /// What becomes of a result that the store did not take at first: of the flight that was flown
    /// for this call, or of another's that it was attached to.
    async fn stored_at_last(&self, call: Arc<Call>, flown: Option<Arc<Flight>>) -> Answer {
        let attached = || {
            let flight = self.inner.flights.find(&call.slot);
            flight.filter(|it| it.fingerprint == call.fingerprint)
        };
        if let Some(flight) = flown.or_else(attached)
            && let Some(answer) = flight.ended().await
        {
            return answer;
        }
        // It is over: the store knows how it ended, and nothing is left to run.
        let nothing = async |execution: Execution| match execution.attempt() {
            1 => (Outcome::NotRun, ()),
            // Taken over from the one that ran it, and as much in doubt as before.
            _ => (Outcome::Unknown, ()),
        };
        Box::pin(self.once_here(call, nothing)).await.0
    }

    /// Says what a caller got from the former half.
    fn tell(&self, call: &Call, answer: &Answer) {
        match answer {
            Answer::Ran { .. } => {}
            Answer::Replayed(replay) => {
                let took = self.now().saturating_sub(call.began);
                self.emit(call, &replayed(replay, false, took));
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
    /// Ends the outer claim as the inner one ended; gives what the caller may hear of both.
    pub(super) async fn end_like(self, answer: Answer) -> Answer {
        let outcome = echo(&answer, &self.execution);
        let call = Arc::clone(&self.call);
        match self.end_with(outcome).await {
            Some(outer) => either(answer, outer, &call.meta),
            None => answer,
        }
    }

    async fn end_with(mut self, outcome: Outcome) -> Option<Answer> {
        let flight = self.flight.take()?;
        let engine = self.engine.clone();
        let settling = engine.settle(&self.call, &flight, &self.execution, outcome);
        let answer = settling.await;
        Some(flight.end(answer))
    }
}

fn is_not_stored(answer: &Answer) -> bool {
    matches!(answer, Answer::Refused(refusal) if refusal.reason == Reason::NotStored)
}

/// The inner answer, unless processes that know the former secret would contradict it: it is not
/// stored for them yet, or they are told another one, because the outer claim was overtaken or an
/// operator answered for it.
fn either(inner: Answer, outer: Answer, original: &Meta) -> Answer {
    match (inner, outer) {
        (refused @ Answer::Refused(_), _) => refused,
        (_, outer @ Answer::Replayed(_)) => outer,
        (_, outer) if is_not_stored(&outer) => outer,
        (inner, Answer::Ran { as_returned, .. }) if as_returned => inner,
        (Answer::Ran { .. }, outer @ Answer::Ran { .. }) => outer,
        (
            Answer::Replayed(_),
            Answer::Ran {
                response, receipt, ..
            },
        ) => Answer::Replayed(Replay::shared(&response, receipt.as_ref(), original)),
        (inner, Answer::Refused(_)) => inner,
    }
}

/// What came of the inner call, as the outcome of the outer one.
fn echo(answer: &Answer, outer: &Execution) -> Outcome {
    match answer {
        Answer::Ran {
            response,
            receipt,
            in_doubt,
            ..
        } => {
            match receipt {
                // As long as the handler asked for, which told only the inner one.
                Some(receipt) => {
                    outer.keep_for(receipt.expires_at.since(receipt.completed_at));
                    // Whatever its status: it was for the inner one to say what is stored.
                    outer.wish(Fate::Stored);
                }
                None if *in_doubt => outer.leave_in_doubt(),
                None => outer.do_not_store(),
            }
            Outcome::Finished(Arc::clone(response))
        }
        // Made by somebody who knows only the new secret: it is found there. What is not stored there
        // was shared with this caller because it waited; who came to this flight later did not.
        Answer::Replayed(replay) => {
            if replay.expires_at.is_none() {
                outer.end_alone();
            }
            outer.do_not_store();
            Outcome::Finished(Arc::clone(&replay.response))
        }
        Answer::Refused(refusal) => match refusal.reason {
            Reason::OutcomeUnknown | Reason::TimedOut | Reason::NotStored => Outcome::Unknown,
            Reason::MissingKey
            | Reason::BadKey
            | Reason::KeyOutOfTime
            | Reason::BadTtl
            | Reason::Unscoped
            | Reason::Unverified
            | Reason::RequestTooLarge
            | Reason::RequestUnreadable
            | Reason::RequestEncoded
            | Reason::Mismatch
            | Reason::OtherCredential
            | Reason::InProgress
            | Reason::TooManyWaiters
            | Reason::TooManyRunning
            | Reason::TooMuchBuffered
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
