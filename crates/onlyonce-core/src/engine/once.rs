//! The whole life of a call. The detached task owns the flight before the claim is sent, so a
//! caller who hangs up only stops waiting; duplicates in this process wait for the same flight.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;

use crate::event::Event;
use crate::policy::Duplicate;
use crate::refusal::{Reason, Refusal};
use crate::response::Response;

use super::Engine;
use super::begin::{Claiming, in_progress, mismatch};
use super::call::{Answer, Call, Outcome, Replay, Verdict};
use super::execution::Execution;
use super::finish::Held;
use super::flight::{Flight, FlightGuard, Joined, Phase};

impl Engine {
    /// Runs `work` once for this call's key, and answers every duplicate with its result.
    ///
    /// The work runs in a task of its own: dropping the returned future does not stop it.
    pub async fn once<W, F>(&self, call: Call, work: W) -> Answer
    where
        W: FnOnce(Execution) -> F + Send + 'static,
        F: Future<Output = Outcome> + Send + 'static,
    {
        loop {
            match self.inner.flights.join(&call, self.clone()) {
                Joined::Lead(flight) => {
                    let phases = flight.watch();
                    tokio::spawn(self.clone().fly(flight, call.clone(), work));
                    let answer = lead(phases, &call).await;
                    self.report(&call, &answer, false);
                    return answer;
                }
                Joined::Attach(flight) => {
                    if let Some(answer) = self.follow(&flight, &call).await {
                        self.report(&call, &answer, true);
                        return answer;
                    }
                }
            }
        }
    }

    /// Claims the slot for a caller who runs the work by hand.
    pub async fn begin(&self, call: Call) -> Verdict {
        loop {
            match self.inner.flights.join(&call, self.clone()) {
                Joined::Lead(flight) => return self.begin_leading(flight, call).await,
                Joined::Attach(flight) => match self.follow(&flight, &call).await {
                    Some(answer) => {
                        self.report(&call, &answer, true);
                        return verdict(answer);
                    }
                    None => continue,
                },
            }
        }
    }

    async fn begin_leading(&self, flight: FlightGuard, call: Call) -> Verdict {
        let answer = match self.claim(&call, &flight).await {
            Claiming::Granted(lease) => {
                let execution = self.take_off(&call, &flight, lease);
                return Verdict::Execute(Held {
                    engine: self.clone(),
                    call,
                    execution,
                    flight: Some(flight),
                });
            }
            Claiming::Unprotected => {
                self.emit(&call, &Event::Unprotected);
                let execution = Execution::new(call.key.clone(), None, Arc::clone(&flight.lost));
                flight.end(Answer::Refused(Refusal::new(Reason::StoreDown)));
                return Verdict::PassThrough(execution);
            }
            Claiming::Replay(replay) => Answer::Replayed(replay),
            Claiming::Refuse(refusal) => Answer::Refused(refusal),
        };
        flight.end(answer.clone());
        self.report(&call, &answer, false);
        verdict(answer)
    }

    /// The leader's flight, from claim to answer, in a task of its own.
    async fn fly<W, F>(self, flight: FlightGuard, call: Call, work: W)
    where
        W: FnOnce(Execution) -> F + Send + 'static,
        F: Future<Output = Outcome> + Send + 'static,
    {
        let execution = match self.claim(&call, &flight).await {
            Claiming::Granted(lease) => self.take_off(&call, &flight, lease),
            Claiming::Unprotected => {
                self.emit(&call, &Event::Unprotected);
                flight.enter(Phase::Running);
                Execution::new(call.key.clone(), None, Arc::clone(&flight.lost))
            }
            Claiming::Replay(replay) => return flight.end(Answer::Replayed(replay)),
            Claiming::Refuse(refusal) => return flight.end(Answer::Refused(refusal)),
        };
        let answer = match self.execute(&call, &execution, work).await {
            Ok(outcome) => self.settle(&call, &flight, &execution, outcome).await,
            Err(TimedOut) => {
                self.settle(&call, &flight, &execution, Outcome::Unknown)
                    .await;
                let refusal = Refusal::new(Reason::TimedOut);
                Answer::Refused(refusal.retry_after(call.policy.retry_after))
            }
        };
        flight.end(answer);
    }

    /// The claim is granted: from now on its lease is kept alive, and duplicates wait for us.
    fn take_off(&self, call: &Call, flight: &Arc<Flight>, lease: crate::store::Lease) -> Execution {
        self.keep_alive(flight, lease.clone());
        flight.enter(Phase::Running);
        Execution::new(call.key.clone(), Some(lease), Arc::clone(&flight.lost))
    }

    /// Runs the work to its end, its panic or its deadline.
    async fn execute<W, F>(
        &self,
        call: &Call,
        execution: &Execution,
        work: W,
    ) -> Result<Outcome, TimedOut>
    where
        W: FnOnce(Execution) -> F,
        F: Future<Output = Outcome>,
    {
        let started = self.now();
        let execution = execution.clone();
        let running = AssertUnwindSafe(async move { work(execution).await }).catch_unwind();
        let after = call.policy.execution_max;
        let ended = tokio::time::timeout(after, running).await;
        let took = self.now().saturating_sub(started);
        match ended {
            Ok(Ok(Outcome::Finished(response))) => {
                Ok(Outcome::Finished(Response { took, ..response }))
            }
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(_panic)) => {
                self.emit(call, &Event::Panicked);
                Ok(Outcome::Finished(Response {
                    took,
                    ..Response::panicked()
                }))
            }
            Err(_elapsed) => {
                // Dropped half-way: what it did until then, nobody knows.
                self.emit(call, &Event::TimedOut { after });
                Err(TimedOut)
            }
        }
    }

    /// Waits with a flight of this process. Nothing, if it ended without a word on our request:
    /// then we ask the store ourselves.
    async fn follow(&self, flight: &Arc<Flight>, call: &Call) -> Option<Answer> {
        let mut phases = flight.watch();
        let waiter = flight.wait();
        let mut attached = false;
        let deadline = sleep_for(call.policy.duplicate.patience());
        tokio::pin!(deadline);
        loop {
            let phase = phases.borrow_and_update().clone();
            if call.fingerprint != flight.fingerprint {
                if flight.is_confirmed() {
                    return Some(Answer::Refused(mismatch(&flight.meta, call)));
                }
                if matches!(phase, Phase::Ended(_)) {
                    return None;
                }
            } else if let Some(answer) = share(&phase, flight, call, waiter.position) {
                return Some(answer);
            } else if !attached && !matches!(phase, Phase::Claiming) {
                attached = true;
                let waiters = waiter.position + 1;
                self.emit(call, &Event::Attached { waiters });
            }
            tokio::select! {
                biased;
                changed = phases.changed() => {
                    if changed.is_err() {
                        return None;
                    }
                }
                () = &mut deadline, if !matches!(phase, Phase::Claiming) => {
                    return Some(Answer::Refused(in_progress(call)));
                }
            }
        }
    }

    /// Says once, for each caller, what it got.
    pub(super) fn report(&self, call: &Call, answer: &Answer, attached: bool) {
        match answer {
            Answer::Ran { .. } => {}
            Answer::Replayed(replay) => {
                if replay.expires_at.is_some() {
                    self.count_replay(call);
                }
                self.emit(
                    call,
                    &Event::Replayed {
                        original_at: replay.original_at.unwrap_or_default(),
                        original_trace: replay.original_trace.clone(),
                        attached,
                    },
                );
            }
            Answer::Refused(refusal) => {
                let reason = refusal.reason;
                self.emit(call, &Event::Refused { reason });
            }
        }
    }
}

/// The handler passed its deadline.
struct TimedOut;

/// The leader's caller waits for the end, or for the news that storing takes long.
async fn lead(mut phases: watch::Receiver<Phase>, call: &Call) -> Answer {
    let heard = phases
        .wait_for(|phase| matches!(phase, Phase::Ended(_) | Phase::Stalled))
        .await;
    match heard.as_deref() {
        Ok(Phase::Ended(answer)) => answer.clone(),
        Ok(Phase::Claiming | Phase::Waiting | Phase::Running | Phase::Stalled) => {
            Answer::Refused(stalled(call))
        }
        Err(_) => Answer::Refused(Refusal::new(Reason::OutcomeUnknown)),
    }
}

/// What a duplicate of the same meaning gets in this phase; nothing while it should wait.
fn share(phase: &Phase, flight: &Flight, call: &Call, position: usize) -> Option<Answer> {
    let (waiters_max, running) = match phase {
        Phase::Claiming => (call.policy.local_waiters_max, false),
        // The flight itself is the first of those who wait for another process.
        Phase::Waiting => (call.policy.waiters_max.saturating_sub(1), true),
        Phase::Running => (call.policy.local_waiters_max, true),
        Phase::Stalled => return Some(Answer::Refused(stalled(call))),
        Phase::Ended(Answer::Ran { response, receipt }) => {
            let replay = Replay::shared(response, receipt.as_ref(), &flight.meta);
            return Some(Answer::Replayed(replay));
        }
        Phase::Ended(answer) => return Some(answer.clone()),
    };
    if running && call.policy.duplicate == Duplicate::Refuse {
        return Some(Answer::Refused(in_progress(call)));
    }
    (position >= waiters_max).then(|| {
        let refusal = Refusal::new(Reason::TooManyWaiters);
        Answer::Refused(refusal.retry_after(call.policy.retry_after))
    })
}

fn stalled(call: &Call) -> Refusal {
    Refusal::new(Reason::NotStored).retry_after(call.policy.retry_after)
}

fn verdict(answer: Answer) -> Verdict {
    match answer {
        Answer::Replayed(replay) => Verdict::Replay(replay),
        Answer::Refused(refusal) => Verdict::Refuse(refusal),
        Answer::Ran { response, receipt } => Verdict::Replay(Replay {
            original_at: receipt.map(|receipt| receipt.created_at),
            expires_at: receipt.map(|receipt| receipt.expires_at),
            response,
            original_trace: None,
        }),
    }
}

/// A sleep that even the longest patience fits in.
fn sleep_for(patience: Duration) -> tokio::time::Sleep {
    const PATIENCE_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    tokio::time::sleep(patience.min(PATIENCE_MAX))
}
