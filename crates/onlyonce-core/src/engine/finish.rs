//! After the handler: the answer is stored before anyone hears it, or the claim is given back.
//! What the store does not take now is tried on in the background, bounded in count and bytes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;

use crate::event::{Event, Verb};
use crate::record::{OnLapse, Record, Replay};
use crate::refusal::{Reason, Refusal};
use crate::response::{Origin, Response};
use crate::store::{
    Completed, Lease, Receipt, Release, Released, Renewed, StoreError, StoreErrorKind,
};

use super::Engine;
use super::begin::RETRY_NOW;
use super::call::{Answer, Call, Outcome};
use super::execution::Execution;
use super::flight::{Flight, FlightGuard, Phase};
use super::found::End;
use super::judge::{fate, release_of};
use super::retry::Retry;

/// Completions tried before the caller is told to come back.
const COMPLETE_TRIES_MAX: u32 = 3;
/// The largest answer that is offered to a store which does not know its own bound.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// A granted claim, to be run by hand and ended with [`Engine::finish`]. Dropped without that,
/// its outcome is unknown.
pub struct Held {
    pub(super) engine: Engine,
    pub(super) call: Arc<Call>,
    pub(super) execution: Execution,
    /// Taken by `finish`; whoever drops the rest has not finished.
    pub(super) flight: Option<FlightGuard>,
    /// Whether its caller has it: before that, nothing can have run.
    pub(super) handed_out: bool,
    /// The claim under the former secret, while the secret is rotated.
    pub(super) within: Option<Box<Held>>,
}

impl Held {
    /// What the handler may know and say.
    pub fn execution(&self) -> &Execution {
        &self.execution
    }

    /// Whether something may have happened before that is found out now.
    pub(super) fn looks_first(&self) -> bool {
        self.call.looks_first(&self.execution)
    }

    /// Not for its caller before another claim is granted as well, which it is then around.
    pub(super) fn kept_back(mut self) -> Self {
        self.handed_out = false;
        self
    }

    pub(super) fn within(mut self, mut outer: Self) -> Self {
        outer.handed_out = true;
        self.within = Some(Box::new(outer));
        self
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(flight) = self.flight.take() else {
            return;
        };
        if let Some(lease) = self.execution.lease() {
            let why = if self.handed_out {
                Release::Unknown
            } else {
                lease.unused()
            };
            self.engine
                .release_in_background(&self.call, lease.clone(), why);
        }
        if !self.handed_out {
            flight.leave();
        }
    }
}

impl Engine {
    /// Ends what [`begin`](Engine::begin) started. The answer is what the caller may hear.
    ///
    /// Runs in a task of its own: a result that is there is stored, even if its caller goes away.
    pub async fn finish(&self, mut held: Held, outcome: Outcome) -> Answer {
        let (engine, call) = (self.clone(), Arc::clone(&held.call));
        let finishing = tokio::spawn(async move {
            let flight = held.flight.take()?;
            let ending = engine.end(&held.call, &flight, &held.execution, outcome);
            let answer = ending.await;
            engine.emit_ended(&held.call, &held.execution);
            let answer = flight.end(answer);
            engine.report(&held.call, &answer, false);
            Some(match held.within.take() {
                Some(outer) => outer.end_like(answer).await,
                None => answer,
            })
        });
        let unknown = || Answer::Refused(in_doubt(&call));
        finishing.await.ok().flatten().unwrap_or_else(unknown)
    }

    /// Ends the claim; finds out first what became of an attempt that was lost, where it can.
    pub(super) async fn end(
        &self,
        call: &Call,
        flight: &Arc<Flight>,
        execution: &Execution,
        outcome: Outcome,
    ) -> Answer {
        if let (Some(reconcile), Outcome::Unknown, Some(_)) =
            (&call.reconcile, &outcome, execution.lease())
        {
            return Box::pin(self.look_after(call, flight, execution, reconcile)).await;
        }
        self.settle(call, flight, execution, outcome).await
    }

    /// Stores or releases, and says what the callers get.
    pub(super) async fn settle(
        &self,
        call: &Call,
        flight: &Arc<Flight>,
        execution: &Execution,
        outcome: Outcome,
    ) -> Answer {
        let Some(lease) = execution.lease().cloned() else {
            return unprotected(outcome);
        };
        flight.settle();
        let wishes = execution.wishes();
        let mut response = match outcome {
            Outcome::Finished(response) => response,
            Outcome::NotRun => {
                if let Some(answer) = self.give_up(call, &lease, lease.unused()).await {
                    return answer;
                }
                self.emit(call, &Event::NotRun);
                return Answer::Refused(not_started(call, lease.attempt));
            }
            Outcome::Unknown => {
                let is_left = wishes.may_go_on && self.leave(call, &lease).await;
                if !is_left && let Some(answer) = self.give_up(call, &lease, Release::Unknown).await
                {
                    return answer;
                }
                self.emit(call, &Event::OutcomeUnknown);
                return Answer::Refused(in_doubt(call));
            }
        };
        if let Some(resource) = wishes.resource {
            Arc::make_mut(&mut response).resource = Some(resource);
        }
        let fate = wishes.fate.unwrap_or_else(|| fate(call, &response));
        if let Some(why) = release_of(fate, &lease) {
            let is_unknown = wishes.may_go_on && why == Release::Unknown;
            if is_unknown && self.leave(call, &lease).await {
                return self.in_doubt_with(call, response, why);
            }
            return self.not_kept(call, &lease, response, why).await;
        }
        if response.origin == Origin::TooLarge {
            let bytes_max = call.policy.limits.response_bytes_max;
            let bytes = wishes.bytes;
            self.emit(call, &Event::TooLarge { bytes, bytes_max });
        }
        let keep_for = wishes.keep_for.unwrap_or(call.keep_for);
        self.complete(call, flight, &lease, response, keep_for)
            .await
    }

    /// Ends a claim whose answer is not stored.
    async fn not_kept(
        &self,
        call: &Call,
        lease: &Lease,
        response: Arc<Response>,
        why: Release,
    ) -> Answer {
        // Overtaken, or completed by the handler itself before it failed: what is stored counts.
        if let Some(record) = self.release(call, lease.clone(), why).await {
            return Box::pin(self.found(call, lease, response, End::Release(why), record)).await;
        }
        self.in_doubt_with(call, response, why)
    }

    /// What a caller gets whose answer is not stored.
    fn in_doubt_with(&self, call: &Call, response: Arc<Response>, why: Release) -> Answer {
        let status = response.status.as_u16();
        self.emit(call, &Event::NotKept { status });
        let in_doubt = why == Release::Unknown && call.policy.on_lapse == OnLapse::Hold;
        if in_doubt {
            self.emit(call, &Event::OutcomeUnknown);
        }
        Answer::Ran {
            response,
            receipt: None,
            in_doubt,
            as_returned: true,
        }
    }

    /// Stores the result; what goes wrong on the way is boxed, for it is rare and large.
    async fn complete(
        &self,
        call: &Call,
        flight: &Arc<Flight>,
        lease: &Lease,
        mut response: Arc<Response>,
        keep_for: Duration,
    ) -> Answer {
        if response.bytes() > self.answer_bytes_max() {
            response = self.marker(call, &response);
        }
        let completed = self.inner.store.complete(lease, &response, keep_for).await;
        if let Ok(Completed::Stored(receipt)) = completed {
            return self.stored(call, response, receipt);
        }
        Box::pin(self.complete_at_last(call, flight, lease, response, keep_for, completed)).await
    }

    /// Leaves a claim to its lease, a whole one from now on, where its outcome is found out later: until then
    /// nobody asks, for it may still be on its way. Returns whether it was ours to leave.
    async fn leave(&self, call: &Call, lease: &Lease) -> bool {
        if !call.is_reconciled {
            return false;
        }
        match self.inner.store.renew(lease, lease.lease_for).await {
            Ok(Renewed::Kept | Renewed::Busy) => true,
            Ok(Renewed::Lost) => false,
            Err(error) => {
                // Not renewed, it ends when it would have ended.
                self.store_failed(call, Verb::Renew, 1, &error);
                true
            }
        }
    }

    /// Ends a claim that has no answer. An overtaken holder still has one: the stored one.
    pub(super) async fn give_up(&self, call: &Call, lease: &Lease, why: Release) -> Option<Answer> {
        let record = self.release(call, lease.clone(), why).await?;
        let replay = Replay::of(&record).filter(|_| record.fingerprint == call.fingerprint)?;
        if record.token == lease.token {
            return Some(self.completed_by_handler(call, &record, replay, Duration::ZERO));
        }
        self.emit(call, &Event::Overtaken);
        Some(Answer::Replayed(replay))
    }

    /// Completes until the store has taken the result or says whose it has instead.
    async fn complete_at_last(
        &self,
        call: &Call,
        flight: &Arc<Flight>,
        lease: &Lease,
        mut response: Arc<Response>,
        keep_for: Duration,
        mut completed: Result<Completed, StoreError>,
    ) -> Answer {
        let mut retry = Retry::for_at_most(lease.lease_for.saturating_add(keep_for));
        let mut background = None;
        loop {
            match completed {
                Ok(Completed::Stored(receipt)) => return self.stored(call, response, receipt),
                Ok(Completed::Found(record)) => {
                    if record.token != lease.token {
                        self.step_aside(flight);
                    }
                    let found = self.found(call, lease, response, End::Complete(keep_for), record);
                    return found.await;
                }
                Ok(Completed::Absent) => {
                    // Forgotten or expired while it ran. The caller's answer is all there is.
                    self.emit(call, &Event::Abandoned);
                    return Answer::Ran {
                        response,
                        receipt: None,
                        in_doubt: false,
                        as_returned: true,
                    };
                }
                Err(error) if is_too_large(&error, &response) => {
                    response = self.marker(call, &response);
                    completed = self.inner.store.complete(lease, &response, keep_for).await;
                    continue;
                }
                Err(error) => self.store_failed(call, Verb::Complete, retry.tries, &error),
            }
            if retry.tries == COMPLETE_TRIES_MAX {
                self.emit(call, &Event::Stalled);
                flight.enter(Phase::Stalled);
                background = self.background(response.bytes());
            }
            let in_bounds = retry.tries < COMPLETE_TRIES_MAX || background.is_some();
            if !in_bounds || !retry.pause(self).await {
                self.emit(call, &Event::Abandoned);
                return Answer::Refused(not_stored(call));
            }
            completed = self.inner.store.complete(lease, &response, keep_for).await;
        }
    }

    /// Another has the slot, whatever this flight still waits for: who comes now asks the store, which
    /// knows more than that a result was not stored.
    fn step_aside(&self, flight: &Arc<Flight>) {
        flight.give_up();
        self.inner.flights.put_aside(flight);
    }

    fn answer_bytes_max(&self) -> usize {
        let known = self.inner.store.response_bytes_max();
        known.unwrap_or(ANSWER_BYTES_MAX)
    }

    /// What is stored instead of an answer that the store cannot take: that it ran, and no more.
    fn marker(&self, call: &Call, response: &Response) -> Arc<Response> {
        let bytes_max = self.answer_bytes_max();
        let bytes = Some(response.bytes());
        self.emit(call, &Event::TooLarge { bytes, bytes_max });
        Arc::new(Response {
            took: response.took,
            resource: response.resource.clone(),
            ..Response::too_large()
        })
    }

    /// Says that the claim is over, and how long it lasted.
    pub(super) fn emit_ended(&self, call: &Call, execution: &Execution) {
        if let Some(since) = execution.since() {
            let held = self.now().saturating_sub(since);
            self.emit(call, &Event::Ended { held });
        }
    }

    pub(super) fn emit_stored(
        &self,
        call: &Call,
        response: &Response,
        took: Duration,
        receipt: &Receipt,
    ) {
        self.emit(
            call,
            &Event::Stored {
                status: response.status.as_u16(),
                bytes: response.bytes(),
                took,
                expires_at: receipt.expires_at,
                keep_for: receipt.expires_at.since(receipt.completed_at),
                resource: response.resource.as_deref().map(Into::into),
            },
        );
    }

    pub(super) fn stored(&self, call: &Call, response: Arc<Response>, receipt: Receipt) -> Answer {
        self.emit_stored(call, &response, response.took, &receipt);
        Answer::Ran {
            response,
            receipt: Some(receipt),
            in_doubt: false,
            as_returned: true,
        }
    }

    /// Gives the claim back; goes on trying in the background if the store fails.
    /// Says what is there instead, if the claim was not ours to give back any more.
    pub(super) async fn release(&self, call: &Call, lease: Lease, why: Release) -> Option<Record> {
        match self.inner.store.release(&lease, why).await {
            Ok(Released::Ended) => None,
            Ok(Released::Found(record)) => Some(record),
            Err(error) => {
                self.store_failed(call, Verb::Release, 1, &error);
                self.release_in_background(call, lease, why);
                None
            }
        }
    }

    pub(super) fn release_in_background(&self, call: &Call, lease: Lease, why: Release) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let Some(background) = self.background(0) else {
            self.emit(call, &Event::Abandoned);
            return;
        };
        let (engine, call) = (self.clone(), call.clone());
        runtime.spawn(async move {
            let _background = background;
            let mut retry = Retry::for_at_most(lease.lease_for.saturating_add(lease.keep_for));
            while let Err(error) = engine.inner.store.release(&lease, why).await {
                engine.store_failed(&call, Verb::Release, retry.tries, &error);
                if !retry.pause(&engine).await {
                    engine.emit(&call, &Event::Abandoned);
                    return;
                }
            }
        });
    }

    /// A place in the background, if there is room.
    fn background(&self, bytes: usize) -> Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)> {
        let count = Arc::clone(&self.inner.background_count);
        let room = Arc::clone(&self.inner.background_bytes);
        let bytes = u32::try_from(bytes).ok()?;
        Some((
            count.try_acquire_owned().ok()?,
            room.try_acquire_many_owned(bytes).ok()?,
        ))
    }
}

pub(super) fn not_stored(call: &Call) -> Refusal {
    Refusal::new(Reason::NotStored).retry_after(call.policy.retry_after)
}

/// Whether the store will never take this answer. A marker that it does not take either is a fault
/// of the store.
fn is_too_large(error: &StoreError, response: &Response) -> bool {
    error.kind == StoreErrorKind::TooLarge && response.origin != Origin::TooLarge
}

/// The outcome of an attempt of this call is not known.
pub(super) fn in_doubt(call: &Call) -> Refusal {
    if call.is_reconciled {
        let refusal = Refusal::to_be_reconciled(Reason::OutcomeUnknown);
        return refusal.retry_after(call.policy.retry_after);
    }
    Refusal::in_doubt(Reason::OutcomeUnknown, call.policy.on_lapse)
}

/// This attempt of a call did not start.
fn not_started(call: &Call, attempt: u32) -> Refusal {
    let refusal = Refusal::not_started(attempt, call.policy.on_lapse, call.is_reconciled);
    match refusal.retryable {
        Some(false) => refusal,
        Some(true) | None => refusal.retry_after(RETRY_NOW),
    }
}

fn unprotected(outcome: Outcome) -> Answer {
    match outcome {
        Outcome::Finished(response) => Answer::Ran {
            response,
            receipt: None,
            in_doubt: false,
            as_returned: true,
        },
        Outcome::NotRun => {
            let refusal = Refusal::not_started(1, OnLapse::Rerun, false);
            Answer::Refused(refusal.retry_after(RETRY_NOW))
        }
        // Nothing is recorded of it, whatever the policy says.
        Outcome::Unknown => {
            Answer::Refused(Refusal::in_doubt(Reason::OutcomeUnknown, OnLapse::Rerun))
        }
    }
}
