//! Looking before running again. A claim that follows an attempt whose outcome is unknown first asks
//! whether that one happened; only positive evidence counts, for either answer.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::event::{Event, Found, Verb};
use crate::lock;
use crate::policy::Fate;
use crate::record::OnLapse;
use crate::refusal::Refusal;
use crate::response::Response;
use crate::slot::{Slot, SlotMap};
use crate::store::{Release, Renewed};

use super::Engine;
use super::begin::{RETRY_NOW, in_progress, store_down};
use super::call::{Answer, Call, Outcome};
use super::execution::Execution;
use super::finish::in_doubt;
use super::flight::Flight;

/// How long one look may take, unless it is told otherwise.
const WITHIN: Duration = Duration::from_secs(10);
/// How long a lost attempt may still be on its way, unless it is told otherwise.
const AFTER: Duration = Duration::from_secs(1);
/// The first pause after a look that could not tell; each one after it is twice as long.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Operations whose next look is put off by this process. One more is looked for at once.
const PUT_OFF_MAX: usize = 10_000;

/// What was found out about an attempt whose outcome is unknown.
#[derive(Clone, Debug)]
pub enum Finding {
    /// It happened, and this is its answer. It is stored, whatever its status.
    Happened(Arc<Response>),
    /// It did not happen, and will not any more: it is run. An operation that may still be on its way
    /// is not this.
    DidNot,
    /// Neither is known: it is not run, and asked about again later.
    CannotTell,
}

impl Finding {
    /// It happened, and this is its answer.
    pub fn happened(response: Response) -> Self {
        Self::Happened(Arc::new(response))
    }

    pub(super) fn found(&self) -> Found {
        match self {
            Self::Happened(_) => Found::Happened,
            Self::DidNot => Found::DidNot,
            Self::CannotTell => Found::CannotTell,
        }
    }
}

/// How it came to a look.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// A caller retried, or its attempt was lost.
    Asked,
    /// Nobody did.
    Background,
}

type Look = dyn Fn(Execution) -> BoxFuture<'static, Finding> + Send + Sync;

/// How to find out whether an earlier attempt at an operation happened.
///
/// It is asked under the lease of a new attempt, by one process at a time, before anything runs; and
/// after an attempt of this process whose outcome is unknown. A look that panics, or takes too long,
/// cannot tell.
#[derive(Clone)]
pub struct Reconcile {
    look: Arc<Look>,
    within: Duration,
    after: Duration,
}

impl Reconcile {
    /// Looks like this: at most 10 seconds, and a second after an attempt was lost.
    pub fn new<L, F>(look: L) -> Self
    where
        L: Fn(Execution) -> F + Send + Sync + 'static,
        F: Future<Output = Finding> + Send + 'static,
    {
        Self {
            look: Arc::new(move |execution| Box::pin(look(execution))),
            within: WITHIN,
            after: AFTER,
        }
    }

    /// Takes at most this long; then it cannot tell.
    #[must_use]
    pub fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }

    /// Waits this long after an attempt was lost, because it may still be on its way. The slot is kept
    /// meanwhile.
    #[must_use]
    pub fn after(mut self, after: Duration) -> Self {
        self.after = after;
        self
    }
}

impl fmt::Debug for Reconcile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconcile")
            .field("within", &self.within)
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Whether it is too early to ask about this slot again.
    pub(super) fn is_put_off(&self, slot: &Slot) -> bool {
        self.inner.put_off.left(slot, self.now()).is_some()
    }

    /// Puts the next look of a retry off; returns for how long.
    pub(super) fn put_off(&self, slot: Slot) -> Duration {
        self.inner.put_off.note(slot, self.now())
    }

    /// What a retry gets for which it is too early to ask again, if nobody has settled it meanwhile. It
    /// claims nothing: attempts are numbered, and a claim would look like another look to everyone who
    /// has a look planned.
    pub(super) async fn too_early(&self, call: &Call) -> Option<Refusal> {
        call.reconcile.as_ref()?;
        let left = self.inner.put_off.left(&call.slot, self.now())?;
        let found = self.inner.store.operate()?.get(&call.slot).await;
        let record = found.ok().flatten()?;
        let is_still_in_doubt = record.is_lapsed()
            && record.on_lapse == OnLapse::Rerun
            && record.fingerprint == call.fingerprint;
        is_still_in_doubt.then(|| in_doubt(call).retry_after(left))
    }

    /// Finds out whether an earlier attempt happened, if there may have been one. Returns what the
    /// caller gets, or nothing if the handler is to run.
    pub(super) async fn look_first(
        &self,
        call: &Call,
        flight: &Arc<Flight>,
        execution: &Execution,
    ) -> Option<Answer> {
        let reconcile = call.reconcile.as_ref()?;
        let left = self.inner.put_off.left(&call.slot, self.now());
        let finding = match left {
            Some(_) => Finding::CannotTell,
            None => self.look(call, reconcile, execution, Way::Asked).await,
        };
        let answer = match finding {
            Finding::DidNot => match self.confirm(call, execution).await {
                Ok(()) => return None,
                Err(refusal) => self.give_back(call, flight, execution, refusal).await,
            },
            Finding::Happened(response) => {
                self.store_found(call, flight, execution, response).await
            }
            Finding::CannotTell => {
                let pause = left.unwrap_or_else(|| self.inner.put_off.note(call.slot, self.now()));
                let refusal = in_doubt(call).retry_after(pause);
                self.give_back(call, flight, execution, refusal).await
            }
        };
        self.emit_ended(call, execution);
        Some(answer)
    }

    /// Finds out what became of an attempt of ours that was lost; ends its claim either way. That it
    /// did not happen is not believed yet: it may still be on its way, and the next attempt looks
    /// again before it runs.
    pub(super) async fn look_after(
        &self,
        call: &Call,
        flight: &Arc<Flight>,
        execution: &Execution,
        reconcile: &Reconcile,
    ) -> Answer {
        tokio::time::sleep(reconcile.after).await;
        match self.look(call, reconcile, execution, Way::Asked).await {
            Finding::Happened(response) => {
                self.store_found(call, flight, execution, response).await
            }
            Finding::DidNot => self.settle(call, flight, execution, Outcome::Unknown).await,
            Finding::CannotTell => {
                self.inner.put_off.note(call.slot, self.now());
                self.settle(call, flight, execution, Outcome::Unknown).await
            }
        }
    }

    /// One look: it ends in time and takes no panic further.
    pub(super) async fn look(
        &self,
        call: &Call,
        reconcile: &Reconcile,
        execution: &Execution,
        way: Way,
    ) -> Finding {
        let began = self.now();
        let (look, execution) = (Arc::clone(&reconcile.look), execution.clone());
        let attempt = execution.attempt();
        // In a block of its own, so that a panic before the first await is caught as well.
        let looking = AssertUnwindSafe(async move { look(execution).await }).catch_unwind();
        let finding = match tokio::time::timeout(reconcile.within, looking).await {
            Ok(Ok(finding)) => finding,
            Ok(Err(_)) | Err(_) => Finding::CannotTell,
        };
        let event = Event::Reconciled {
            found: finding.found(),
            attempt,
            took: self.now().saturating_sub(began),
            in_background: way == Way::Background,
        };
        self.emit(call, &event);
        finding
    }

    /// Stores what was found as the answer, by the ordinary completion.
    pub(super) async fn store_found(
        &self,
        call: &Call,
        flight: &Arc<Flight>,
        execution: &Execution,
        response: Arc<Response>,
    ) -> Answer {
        self.inner.put_off.settled(&call.slot);
        execution.wish(Fate::Stored);
        let found = Outcome::Finished(response);
        match self.settle(call, flight, execution, found).await {
            // Nothing was run for this caller: its answer is the stored one.
            Answer::Ran {
                response,
                receipt,
                in_doubt,
                as_returned: _,
            } => Answer::Ran {
                response,
                receipt,
                in_doubt,
                as_returned: false,
            },
            other @ (Answer::Replayed(_) | Answer::Refused(_)) => other,
        }
    }

    /// Gives the claim back, as much in doubt as before. Who was overtaken meanwhile has an answer.
    pub(super) async fn give_back(
        &self,
        call: &Call,
        flight: &Arc<Flight>,
        execution: &Execution,
        refusal: Refusal,
    ) -> Answer {
        flight.settle();
        let stored = match execution.lease() {
            Some(lease) => self.give_up(call, lease, Release::Unknown).await,
            None => None,
        };
        stored.unwrap_or(Answer::Refused(refusal))
    }

    /// Whether the lease is still ours after a look that may have taken long: nothing starts without.
    async fn confirm(&self, call: &Call, execution: &Execution) -> Result<(), Refusal> {
        let Some(lease) = execution.lease() else {
            return Ok(());
        };
        match self.inner.store.renew(lease, lease.lease_for).await {
            Ok(Renewed::Kept) => {
                self.inner.put_off.settled(&call.slot);
                Ok(())
            }
            Ok(Renewed::Lost | Renewed::Busy) => Err(in_progress(call).retry_after(RETRY_NOW)),
            Err(error) => {
                self.store_failed(call, Verb::Renew, 1, &error);
                Err(store_down(call))
            }
        }
    }
}

/// Operations that could not be told about lately: they are not asked about at every retry.
#[derive(Default)]
pub(super) struct PutOff(Mutex<SlotMap<Pause>>);

struct Pause {
    until: Duration,
    length: Duration,
}

impl PutOff {
    /// How long no look is worth it.
    fn left(&self, slot: &Slot, now: Duration) -> Option<Duration> {
        let until = lock(&self.0).get(slot)?.until;
        until.checked_sub(now).filter(|left| !left.is_zero())
    }

    /// Puts the next look off, for twice as long as the last time.
    fn note(&self, slot: Slot, now: Duration) -> Duration {
        let mut pauses = lock(&self.0);
        let before = pauses.get(&slot).map(|pause| pause.length);
        let length = before.map_or(PAUSE_MIN, |length| (length * 2).min(PAUSE_MAX));
        if before.is_none() && pauses.len() >= PUT_OFF_MAX {
            pauses.retain(|_, pause| pause.until > now);
        }
        if before.is_some() || pauses.len() < PUT_OFF_MAX {
            let until = now.saturating_add(length);
            pauses.insert(slot, Pause { until, length });
        }
        length
    }

    fn settled(&self, slot: &Slot) {
        lock(&self.0).remove(slot);
    }
}
