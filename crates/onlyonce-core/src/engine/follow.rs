//! Duplicates in this process: they wait for the flight that is at their slot already, and share
//! its answer.

use std::sync::Arc;
use std::time::Duration;

use crate::event::Event;
use crate::policy::Duplicate;
use crate::record::Replay;
use crate::refusal::{Reason, Refusal};

use super::Engine;
use super::begin::{Followed, Wait, in_progress, mismatch};
use super::call::{Answer, Call};
use super::finish::not_stored;
use super::flight::{Flight, Phase};

impl Engine {
    /// Waits with a flight of this process.
    pub(super) async fn follow(
        &self,
        flight: &Arc<Flight>,
        call: &Call,
        patience: &mut Patience,
    ) -> Followed {
        let left = patience.left(self, call);
        if call.fingerprint != flight.fingerprint {
            return self.follow_another(flight, call, left).await;
        }
        let waiter = flight.wait();
        let mut wait: Option<Wait<'_>> = None;
        let deadline = sleep_for(left);
        tokio::pin!(deadline);
        loop {
            let (phase, seen) = flight.look();
            if matches!(phase, Phase::Left) {
                return Followed::Again;
            }
            if let Some(answer) = share(&phase, flight, call) {
                return Followed::Answer(answer);
            }
            if is_crowded(&phase, call, waiter.position) {
                let turned_away = Event::TurnedAway {
                    waited: patience.waited(self),
                    queue_depth: waiter.position + 1,
                    holder: flight.holder(),
                };
                self.emit(call, &turned_away);
                let refusal = Refusal::new(Reason::TooManyWaiters);
                let refusal = refusal.retry_after(call.policy.retry_after);
                return Followed::Answer(Answer::Refused(refusal));
            }
            if wait.is_none() && !matches!(phase, Phase::Claiming) {
                let waiters = waiter.position + 1;
                wait = Some(Wait::begin(self, call, waiters, flight.holder()));
                self.emit(call, &Event::Attached { waiters });
            }
            tokio::select! {
                biased;
                () = flight.changed(seen) => {}
                () = &mut deadline, if !matches!(phase, Phase::Claiming) => {
                    let timeout = call.policy.duplicate.patience();
                    let waited = patience.waited(self);
                    self.emit(call, &Event::GaveUp { waited, timeout });
                    return Followed::Answer(Answer::Refused(in_progress(call)));
                }
            }
        }
    }

    /// A flight of another meaning is at our slot. It never waits for us nor we for it: what the
    /// slot holds decides, and if this flight does not hold it, the store is asked.
    async fn follow_another(&self, flight: &Arc<Flight>, call: &Call, left: Duration) -> Followed {
        loop {
            let (phase, seen) = flight.look();
            match phase {
                Phase::Claiming => flight.changed(seen).await,
                Phase::Running | Phase::Stalled if flight.holds_the_slot() => {
                    let refusal = mismatch(&flight.meta, flight.fingerprint, None, call);
                    return Followed::Answer(Answer::Refused(refusal));
                }
                Phase::Running | Phase::Stalled | Phase::Waiting => {
                    return self.ask(call, left).await;
                }
                Phase::Ended(_) | Phase::Left => return Followed::Again,
            }
        }
    }
}

/// How long a duplicate still waits, over all flights it follows.
#[derive(Default)]
pub(super) struct Patience {
    since: Option<Duration>,
}

impl Patience {
    /// How long it has waited by now.
    fn waited(&self, engine: &Engine) -> Duration {
        self.since
            .map_or(Duration::ZERO, |since| engine.now().saturating_sub(since))
    }

    fn left(&mut self, engine: &Engine, call: &Call) -> Duration {
        let now = engine.now();
        let waited = now.saturating_sub(*self.since.get_or_insert(now));
        call.policy.duplicate.patience().saturating_sub(waited)
    }
}

/// What a duplicate of the same meaning gets in this phase; nothing while it should wait.
fn share(phase: &Phase, flight: &Flight, call: &Call) -> Option<Answer> {
    match phase {
        Phase::Claiming => None,
        Phase::Waiting | Phase::Running => {
            let refuses = call.policy.duplicate == Duplicate::Refuse;
            refuses.then(|| Answer::Refused(in_progress(call)))
        }
        Phase::Stalled => Some(Answer::Refused(not_stored(call))),
        Phase::Left => None,
        Phase::Ended(Answer::Ran {
            response, receipt, ..
        }) => {
            let replay = Replay::shared(response, receipt.as_ref(), &flight.meta);
            Some(Answer::Replayed(replay))
        }
        Phase::Ended(answer) => Some(answer.clone()),
    }
}

/// Whether as many wait in this phase as may, before the one at `position`.
fn is_crowded(phase: &Phase, call: &Call, position: usize) -> bool {
    let waiters_max = match phase {
        Phase::Claiming | Phase::Running => call.policy.local_waiters_max,
        // The flight itself is the first of those who wait for another process.
        Phase::Waiting => call.policy.waiters_max.saturating_sub(1),
        Phase::Stalled | Phase::Left | Phase::Ended(_) => return false,
    };
    position >= waiters_max
}

/// A sleep that even the longest patience fits in.
fn sleep_for(patience: Duration) -> tokio::time::Sleep {
    const PATIENCE_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    tokio::time::sleep(patience.min(PATIENCE_MAX))
}
