//! Before the handler: the claim, the wait for another process, and the verdict. [`judge`] alone
//! decides; stores only report.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::event::{Event, ServerAddress, Verb};
use crate::fingerprint::Fingerprint;
use crate::policy::StoreDown;
use crate::record::{Meta, Record, Replay, Token};
use crate::refusal::{Original, Reason, Refusal};
use crate::store::{
    Claim, Claimed, Lease, Overtaken, Release, Renewed, StoreError, StoreErrorKind,
};

use super::call::{Answer, Call};
use super::flight::{Flight, Phase};
use super::judge::{Judgement, is_stale, judge};
use super::{Engine, Inner};

/// Claims tried before the store counts as down. Safe: the token makes them one claim.
const CLAIM_TRIES_MAX: u32 = 3;
const CLAIM_RETRY_DELAY: Duration = Duration::from_millis(20);
/// A store that wakes us for nothing is not asked more often than this.
const WAKE_PAUSE_MIN: Duration = Duration::from_millis(1);

/// How much later than asked a store may answer that nothing changed.
const SETTLED_GRACE: Duration = Duration::from_millis(20);

/// What a claim led to.
pub(super) enum Claiming {
    /// The slot is ours; heard at this moment on our clock.
    Granted(Lease, Duration),
    Unprotected,
    Replay(Replay),
    Refuse(Refusal),
}

/// What came of following, or asking beside, a flight of this process.
pub(super) enum Followed {
    Answer(Answer),
    /// No word on our request: try again.
    Again,
    /// The slot is ours, whatever that flight still waits for; heard at this moment.
    Granted(Lease, Duration),
}

/// The refusal of a call whose slot holds a record of another meaning.
pub(super) fn mismatched(record: &Record, call: &Call) -> Refusal {
    let at = Some(record.created_at);
    mismatch(&record.meta, record.fingerprint, at, call)
}

/// Another meaning under the same key; or the same under another unverified credential.
pub(super) fn mismatch(
    held: &Meta,
    fingerprint: Fingerprint,
    at: Option<Timestamp>,
    call: &Call,
) -> Refusal {
    let reason = if held.credential == call.meta.credential {
        Reason::Mismatch
    } else {
        Reason::OtherCredential
    };
    let mut refusal = Refusal::new(reason);
    refusal.original = Some(Box::new(Original {
        actor: held.actor.clone(),
        holder: Arc::clone(&held.holder),
        trace: held.trace.clone(),
        fingerprint,
        at,
    }));
    refusal
}

pub(super) fn in_progress(call: &Call) -> Refusal {
    Refusal::new(Reason::InProgress).retry_after(call.policy.retry_after)
}

fn too_many_running(call: &Call) -> Refusal {
    Refusal::new(Reason::TooManyRunning).retry_after(call.policy.retry_after)
}

fn shutting_down() -> Refusal {
    Refusal::new(Reason::ShuttingDown).retry_after(RETRY_NOW)
}

pub(super) fn store_down(call: &Call) -> Refusal {
    Refusal::new(Reason::StoreDown).retry_after(call.policy.retry_after)
}

impl Engine {
    /// Whether this call comes too late. What is part of an execution may end with it.
    fn refuses(&self, call: &Call) -> bool {
        self.is_closing() && !call.is_step
    }

    /// Claims the slot for `flight`, waiting for whoever holds it as long as the policy allows.
    pub(super) async fn claim(&self, call: &Call, flight: &Arc<Flight>) -> Claiming {
        let started = self.now();
        let admitted = call.is_step || self.inner.flights.admit(flight);
        if !admitted && !Box::pin(self.has_ended(call)).await {
            return Claiming::Refuse(too_many_running(call));
        }
        if call.reconcile.is_some()
            && let Some(refusal) = Box::pin(self.too_early(call)).await
        {
            return Claiming::Refuse(refusal);
        }
        let mut attempt = ClaimAttempt::new(self, call);
        let mut waiting: Option<Wait<'_>> = None;
        let mut asked = started;
        loop {
            if self.refuses(call) {
                return Claiming::Refuse(shutting_down());
            }
            let (claimed, heard) = attempt.send(asked).await;
            let record = match claimed {
                Ok(Claimed::Granted { lease, .. }) if self.refuses(call) => {
                    let why = lease.unused();
                    self.release(call, lease, why).await;
                    continue;
                }
                // What it was let through to hear again is gone.
                Ok(Claimed::Granted { lease, .. }) if !admitted => {
                    let why = lease.unused();
                    self.release(call, lease, why).await;
                    return Claiming::Refuse(too_many_running(call));
                }
                Ok(Claimed::Granted { lease, overtook }) => {
                    if let Some(wait) = waiting.take() {
                        wait.claimed();
                    }
                    let times = Times {
                        waited: heard.saturating_sub(started),
                        asked: heard.saturating_sub(asked),
                    };
                    self.emit_granted(call, &lease, overtook, times);
                    return Claiming::Granted(lease, heard);
                }
                Ok(Claimed::Taken(record)) => record,
                Ok(Claimed::Dead) => {
                    attempt.renew_token();
                    continue;
                }
                Err(_) if self.refuses(call) => continue,
                Err(_) if !admitted => return Claiming::Refuse(store_down(call)),
                Err(error) => return self.claim_failed(call, &error),
            };
            attempt.not_ours();
            let at_most = match judge(&record, call) {
                Judgement::Replay(replay) => {
                    return Claiming::Replay(replay.asked_for(heard.saturating_sub(asked)));
                }
                Judgement::Refuse(refusal) => return Claiming::Refuse(refusal),
                Judgement::ClaimAgain => WAKE_PAUSE_MIN,
                Judgement::Wait { at_most } => at_most,
            };
            let patience = call.policy.duplicate.patience();
            let left = patience.saturating_sub(heard.saturating_sub(started));
            if left.is_zero() {
                if waiting.is_some() {
                    let waited = heard.saturating_sub(started);
                    let timeout = patience;
                    self.emit(call, &Event::GaveUp { waited, timeout });
                }
                return Claiming::Refuse(in_progress(call));
            }
            if waiting.is_none() {
                let holder = Arc::clone(&record.meta.holder);
                flight.wait_for(&holder);
                flight.enter(Phase::Waiting);
                waiting = Some(Wait::begin(self, call, 1, Arc::clone(&holder)));
                self.emit(call, &Event::Waiting { holder });
            }
            // Boxed: waiting is rare, and its state would weigh on every claim.
            Box::pin(self.await_change(call, &record, at_most.min(left))).await;
            asked = self.now();
        }
    }

    /// Takes over a lapsed claim, waiting for nobody. A slot that turns out to be free is given back:
    /// what was there has expired.
    pub(super) async fn claim_lapsed(&self, call: &Call) -> Option<(Lease, Duration)> {
        let mut attempt = ClaimAttempt::new(self, call);
        let (claimed, heard) = attempt.send(self.now()).await;
        match claimed {
            Ok(Claimed::Granted { lease, .. }) if lease.attempt > 1 => Some((lease, heard)),
            Ok(Claimed::Granted { lease, .. }) => {
                let why = lease.unused();
                self.release(call, lease, why).await;
                None
            }
            Ok(Claimed::Taken(_) | Claimed::Dead) => {
                attempt.not_ours();
                None
            }
            Err(_) => None,
        }
    }

    /// Whether the store has the last word on this call already, so that it runs nothing here.
    async fn has_ended(&self, call: &Call) -> bool {
        let Some(operate) = self.inner.store.operate() else {
            return false;
        };
        match operate.get(&call.slot).await {
            Ok(Some(record)) => match judge(&record, call) {
                Judgement::Replay(_) | Judgement::Refuse(_) => true,
                Judgement::Wait { .. } | Judgement::ClaimAgain => false,
            },
            Ok(None) | Err(_) => false,
        }
    }

    /// Asks the store about a call that may not lead, because a flight of another meaning is at
    /// its slot without holding it. Waits for a change no longer than `left`.
    pub(super) async fn ask(&self, call: &Call, left: Duration) -> Followed {
        if self.is_closing() {
            return Followed::Answer(Answer::Refused(shutting_down()));
        }
        let started = self.now();
        let mut attempt = ClaimAttempt::new(self, call);
        let (claimed, heard) = attempt.send(started).await;
        let record = match claimed {
            Ok(Claimed::Taken(record)) => record,
            Ok(Claimed::Granted { lease, .. }) if self.is_closing() => {
                let why = lease.unused();
                self.release(call, lease, why).await;
                return Followed::Answer(Answer::Refused(shutting_down()));
            }
            Ok(Claimed::Granted { lease, overtook }) => {
                let asked = heard.saturating_sub(started);
                let waited = asked;
                self.emit_granted(call, &lease, overtook, Times { waited, asked });
                return Followed::Granted(lease, heard);
            }
            Ok(Claimed::Dead) => return Followed::Again,
            Err(_) => return Followed::Answer(Answer::Refused(store_down(call))),
        };
        attempt.not_ours();
        let at_most = match judge(&record, call) {
            Judgement::Replay(replay) => {
                let replay = replay.asked_for(heard.saturating_sub(started));
                return Followed::Answer(Answer::Replayed(replay));
            }
            Judgement::Refuse(refusal) => return Followed::Answer(Answer::Refused(refusal)),
            Judgement::ClaimAgain => WAKE_PAUSE_MIN,
            Judgement::Wait { at_most } => at_most,
        };
        if left.is_zero() {
            return Followed::Answer(Answer::Refused(in_progress(call)));
        }
        self.await_change(call, &record, at_most.min(left)).await;
        Followed::Again
    }

    fn emit_granted(&self, call: &Call, lease: &Lease, overtook: Option<Overtaken>, times: Times) {
        if let Some(Overtaken { meta, age }) = overtook {
            let holder = Arc::clone(&meta.holder);
            self.emit(call, &Event::TookOver { holder, age });
        }
        let (attempt, keep_for) = (lease.attempt, call.keep_for);
        let Times { waited, asked } = times;
        self.emit(
            call,
            &Event::Claimed {
                attempt,
                waited,
                asked,
                keep_for,
            },
        );
    }

    /// Returns when the slot may have changed, or it is time to look again, or to shut down.
    pub(super) async fn await_change(&self, call: &Call, record: &Record, at_most: Duration) {
        let began = self.now();
        let store = &self.inner.store;
        let settled = async {
            // A store whose reply hangs does not hold us longer than we asked for.
            let reply = store.settled(&call.slot, &record.token, at_most);
            let reply = tokio::time::timeout(at_most.saturating_add(SETTLED_GRACE), reply).await;
            if let Ok(Err(error)) = reply {
                self.store_failed(call, Verb::Settled, 1, &error);
            }
            // A claim that lapsed, or a store that cannot tell, returns at once: do not spin.
            if self.now().saturating_sub(began) < WAKE_PAUSE_MIN {
                tokio::time::sleep(WAKE_PAUSE_MIN).await;
            }
        };
        tokio::select! {
            biased;
            () = self.closed() => {}
            () = settled => {}
        }
    }

    fn claim_failed(&self, call: &Call, error: &StoreError) -> Claiming {
        match (call.policy.store_down, error.kind) {
            (StoreDown::Open, StoreErrorKind::Unavailable | StoreErrorKind::Full) => {
                Claiming::Unprotected
            }
            (
                StoreDown::Open,
                StoreErrorKind::Corrupt | StoreErrorKind::TooLarge | StoreErrorKind::Unsafe,
            )
            | (StoreDown::Closed, _) => Claiming::Refuse(store_down(call)),
        }
    }

    pub(super) fn store_failed(&self, call: &Call, verb: Verb, attempt: u32, error: &StoreError) {
        let kind = error.kind;
        if kind == StoreErrorKind::Unavailable && !error.is_unsent() {
            // What answers next may have lost its data.
            self.inner.agreement.doubt();
        }
        let server = self.inner.server.clone();
        self.emit(call, &failed(verb, attempt, error, server));
    }
}

/// How long a claim took: all of it, and the store's part of it.
struct Times {
    waited: Duration,
    asked: Duration,
}

/// A failure of the store as it is told.
pub(super) fn failed(
    verb: Verb,
    attempt: u32,
    error: &StoreError,
    server: Option<Arc<ServerAddress>>,
) -> Event {
    Event::StoreFailed {
        verb,
        kind: error.kind,
        backend: error.store,
        attempt,
        cause: error.cause().into(),
        server,
    }
}

/// The wait of one caller for a slot: told when it is over, also if the caller goes away.
pub(super) struct Wait<'a> {
    engine: &'a Engine,
    call: &'a Call,
    since: Duration,
    queue_depth: usize,
    holder: Arc<str>,
    is_claimed: bool,
}

impl<'a> Wait<'a> {
    pub(super) fn begin(
        engine: &'a Engine,
        call: &'a Call,
        queue_depth: usize,
        holder: Arc<str>,
    ) -> Self {
        Self {
            engine,
            call,
            since: engine.now(),
            queue_depth,
            holder,
            is_claimed: false,
        }
    }

    /// It ends with the slot.
    fn claimed(mut self) {
        self.is_claimed = true;
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let event = Event::Waited {
            waited: self.engine.now().saturating_sub(self.since),
            queue_depth: self.queue_depth,
            holder: Arc::clone(&self.holder),
            claimed: self.is_claimed,
        };
        self.engine.emit(self.call, &event);
    }
}

/// A lease that cannot be freshened now, because somebody's transaction has its record.
fn busy() -> StoreError {
    StoreError::new("engine", StoreErrorKind::Unavailable)
        .caused_by("a transaction holds the record")
}

/// What a server that goes away tells its callers: another one can take them at once.
pub(super) const RETRY_NOW: Duration = Duration::from_secs(1);

/// A claim under way. If it is dropped before its end, the store is told: a claim whose reply
/// was lost, or whose caller went away, must not hold the slot.
struct ClaimAttempt<'a> {
    engine: &'a Engine,
    call: &'a Call,
    claim: Claim,
    /// The store may hold our token without our knowing.
    doubtful: bool,
}

impl<'a> ClaimAttempt<'a> {
    fn new(engine: &'a Engine, call: &'a Call) -> Self {
        let token = Token::generate(&*engine.inner.entropy);
        Self {
            engine,
            call,
            claim: call.claim(token),
            doubtful: false,
        }
    }

    fn renew_token(&mut self) {
        self.claim.token = Token::generate(&*self.engine.inner.entropy);
        self.doubtful = false;
    }

    fn not_ours(&mut self) {
        self.doubtful = false;
    }

    /// Sends the claim, again if its reply is lost; granted only with most of the lease left, and
    /// only by a store that still has what all processes agreed on. Says when it heard.
    async fn send(&mut self, mut sent: Duration) -> (Result<Claimed, StoreError>, Duration) {
        let mut tries: u32 = 0;
        loop {
            let was_doubtful = std::mem::replace(&mut self.doubtful, true);
            let claimed = self.claim().await;
            let mut heard = self.engine.now();
            let error = match claimed {
                Ok(Claimed::Granted { lease, overtook }) => {
                    match self.freshen(&lease, sent, &mut heard).await {
                        Ok(true) => {
                            self.doubtful = false;
                            return (Ok(Claimed::Granted { lease, overtook }), heard);
                        }
                        Ok(false) => {
                            // Overtaken before we began: nothing ran, so start over as a new attempt.
                            self.renew_token();
                            sent = heard;
                            continue;
                        }
                        Err(error) => error,
                    }
                }
                Ok(other) => return (Ok(other), heard),
                Err(error) => {
                    self.engine
                        .store_failed(self.call, Verb::Claim, tries + 1, &error);
                    if error.is_unsent() {
                        self.doubtful = was_doubtful;
                    }
                    error
                }
            };
            tries += 1;
            // What was refused without asking the store, as by an open breaker, is refused again.
            let is_worth_a_try = error.kind == StoreErrorKind::Unavailable && !error.is_unsent();
            if tries >= CLAIM_TRIES_MAX || !is_worth_a_try {
                return (Err(error), heard);
            }
            tokio::time::sleep(CLAIM_RETRY_DELAY * tries).await;
            sent = self.engine.now();
        }
    }

    /// One claim, under the secret that all processes have agreed on.
    async fn claim(&self) -> Result<Claimed, StoreError> {
        let Inner {
            store, agreement, ..
        } = &*self.engine.inner;
        agreement.refusal()?;
        let claimed = store.claim(&self.claim).await?;
        if let Claimed::Granted { .. } = claimed {
            agreement.confirm(&**store).await?;
        }
        Ok(claimed)
    }

    /// Renews a lease of which more than a third passed on the way, until one arrives fresh;
    /// false if it is lost.
    async fn freshen(
        &self,
        lease: &Lease,
        mut sent: Duration,
        heard: &mut Duration,
    ) -> Result<bool, StoreError> {
        while is_stale(lease, heard.saturating_sub(sent)) {
            sent = *heard;
            let renewed = self.engine.inner.store.renew(lease, lease.lease_for).await;
            *heard = self.engine.now();
            match renewed {
                Ok(Renewed::Kept) => {}
                Ok(Renewed::Lost) => return Ok(false),
                Ok(Renewed::Busy) => return Err(busy()),
                Err(error) => {
                    self.engine.store_failed(self.call, Verb::Renew, 1, &error);
                    return Err(error);
                }
            }
        }
        Ok(true)
    }
}

impl Drop for ClaimAttempt<'_> {
    fn drop(&mut self) {
        if self.doubtful {
            // Whether it took over from an attempt that may have happened was never heard: the store
            // knows, and does not forget that one.
            self.engine
                .release_in_background(self.call, self.claim.lease(), Release::NotRun);
        }
    }
}
