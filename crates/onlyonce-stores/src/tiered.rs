//! Finished answers in a quick shared store, such as Redis, before a durable one, such as a database
//! (B6). The durable store alone decides; the quick one may lose anything at any time.
//!
//! What keeps it correct under delete and expiry: a copy is made only under a marker that was set
//! *before* the durable store was asked, and that lasts a few seconds. Forgetting removes the marker
//! too, so that an answer that was read before it cannot come back after it; and a copy is kept
//! shorter than its original by as long as a marker lasts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::{
    Claim, Claimed, Clock, Completed, Entropy, Fingerprint, Lease, Meta, OnLapse, Operate,
    OsEntropy, Record, Replay, Response, Slot, State, Store, StoreError, SystemClock, Token,
    async_trait,
};
use tokio::sync::Semaphore;

use crate::wrap::{forward, lock, operators};

mod copy;

const NAME: &str = "tiered";
/// How long a marker lasts: an answer that takes longer is copied when it is first read.
const MARKED_FOR: Duration = Duration::from_secs(5);
/// A copy ends this much before its original, whatever happened on its way.
const MARGIN: Duration = Duration::from_millis(5100);
/// No copy is kept longer: one that was missed by somebody who forgot its original elsewhere ends.
const KEPT_MAX: Duration = Duration::from_secs(3600);
/// Markers of claims that run in this process.
const MARKERS_MAX: usize = 10_000;
/// Copies that are being made at the same time; beyond it an answer is copied when it is read next.
const COPYING_MAX: usize = 64;

/// A store that keeps copies of finished answers of the store inside it in a quicker one.
///
/// A claim asks the quick store first, and the one inside if there is no copy. Nothing is copied
/// that is not stored inside, and nothing is decided by the quick store: without it, or with what it
/// has lost, everything goes on more slowly. A `forget` is in force everywhere when it returns; if the
/// quick store cannot be reached, it is an error, and is to be repeated. Everybody who forgets
/// records has to do so through the same pair of stores; a copy that was missed ends after an hour.
pub struct Tiered {
    quick: Arc<dyn Store>,
    inner: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    markers: Mutex<HashMap<Slot, Marker>>,
    copying: Arc<Semaphore>,
}

/// The marker of a claim that runs in this process.
struct Marker {
    /// Whose claim it is.
    token: Token,
    lease: Lease,
    sent: Duration,
    on_lapse: OnLapse,
    meta: Arc<Meta>,
}

impl Tiered {
    /// Keeps copies of what is finished in `durable` in `quick`, where nothing else is kept.
    pub fn new(quick: Arc<dyn Store>, durable: Arc<dyn Store>) -> Self {
        Self {
            quick,
            inner: durable,
            clock: Arc::new(SystemClock::new()),
            entropy: Arc::new(OsEntropy::new()),
            markers: Mutex::default(),
            copying: Arc::new(Semaphore::new(COPYING_MAX)),
        }
    }

    /// Goes by another clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Makes its tokens with another randomness.
    #[must_use]
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.entropy = entropy;
        self
    }

    /// The copy, or else a marker under which one may be made.
    async fn look(&self, claim: &Claim) -> (Option<Record>, Option<Lease>) {
        let marker = Claim {
            token: Token::generate(&*self.entropy),
            on_lapse: OnLapse::Rerun,
            lease_for: MARKED_FOR,
            keep_for: Duration::ZERO,
            ..claim.clone()
        };
        match self.quick.claim(&marker).await {
            Ok(Claimed::Taken(found)) => (copy::read(&found), None),
            Ok(Claimed::Granted { lease, .. }) => (None, Some(lease)),
            // It is only slower without.
            Ok(Claimed::Dead) | Err(_) => (None, None),
        }
    }

    /// Keeps the marker for the end of this claim.
    fn remember(&self, claim: &Claim, lease: Lease, sent: Duration) {
        let mut markers = lock(&self.markers);
        if markers.len() >= MARKERS_MAX {
            markers.retain(|_, marker| sent.saturating_sub(marker.sent) < MARKED_FOR);
        }
        if markers.len() < MARKERS_MAX {
            let marker = Marker {
                token: claim.token,
                lease,
                sent,
                on_lapse: claim.on_lapse,
                meta: Arc::clone(&claim.meta),
            };
            markers.insert(claim.slot, marker);
        }
    }

    /// The marker of this claim, if it may still be there.
    fn marker(&self, lease: &Lease) -> Option<Marker> {
        let marker = lock(&self.markers).remove(&lease.slot)?;
        let age = self.clock.now().saturating_sub(marker.sent);
        (marker.token == lease.token && age < MARKED_FOR).then_some(marker)
    }

    /// Copies a finished record under its marker; nobody waits for it.
    fn copy(&self, lease: Lease, record: &Record) {
        let keep_for = record.keep_left.saturating_sub(MARGIN).min(KEPT_MAX);
        let Some(packed) = copy::write(record) else {
            return;
        };
        if keep_for.is_zero() {
            return;
        }
        let (Ok(turn), Ok(runtime)) = (
            Arc::clone(&self.copying).try_acquire_owned(),
            tokio::runtime::Handle::try_current(),
        ) else {
            return;
        };
        let quick = Arc::clone(&self.quick);
        runtime.spawn(async move {
            let _turn = turn;
            // Whether it was made or not: the next one who reads it may try again.
            drop(quick.complete(&lease, &Arc::new(packed), keep_for).await);
        });
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for Tiered {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let sent = self.clock.now();
        let (found, marker) = self.look(claim).await;
        if let Some(record) = found {
            return Ok(Claimed::Taken(record));
        }
        let claimed = self.inner.claim(claim).await?;
        match (&claimed, marker) {
            (Claimed::Taken(record), Some(lease)) if record.fingerprint == claim.fingerprint => {
                self.copy(lease, record);
            }
            (Claimed::Granted { .. }, Some(lease)) => self.remember(claim, lease, sent),
            (Claimed::Taken(_) | Claimed::Granted { .. } | Claimed::Dead, _) => {}
        }
        Ok(claimed)
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        let marker = self.marker(lease);
        let completed = self.inner.complete(lease, response, keep_for).await?;
        if let (Completed::Stored(receipt), Some(marker)) = (&completed, marker) {
            let record = Record {
                token: lease.token,
                fingerprint: marker.lease.fingerprint,
                on_lapse: marker.on_lapse,
                attempt: lease.attempt,
                meta: marker.meta,
                created_at: receipt.created_at,
                completed_at: Some(receipt.completed_at),
                expires_at: receipt.expires_at,
                keep_left: keep_for,
                replays: 0,
                state: State::finished(Arc::clone(response)),
            };
            self.copy(marker.lease, &record);
        }
        Ok(completed)
    }

    fn recall(&self, slot: &Slot, fingerprint: &Fingerprint) -> Option<Replay> {
        self.inner.recall(slot, fingerprint)
    }

    forward!(straight: renew, release, settled, check, response_bytes_max, operate);
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Operate for Tiered {
    /// First the copy, so that nothing is forgotten unless it can be; and again afterwards, for one
    /// that was made in between.
    async fn forget(&self, slot: &Slot) -> Result<bool, StoreError> {
        let inside = operators(&*self.inner, NAME)?;
        let quick = operators(&*self.quick, NAME)?;
        quick.forget(slot).await?;
        let was_there = inside.forget(slot).await?;
        quick.forget(slot).await?;
        Ok(was_there)
    }

    /// The copy would tell of the end that the record had before.
    async fn extend(&self, slot: &Slot, extra: Duration) -> Result<bool, StoreError> {
        let was_there = operators(&*self.inner, NAME)?.extend(slot, extra).await?;
        if let Some(quick) = self.quick.operate() {
            drop(quick.forget(slot).await);
        }
        Ok(was_there)
    }

    forward!(straight: get, get_durable, list, newest, resolve, discard, sweep, sweep_ended, stats, ping, recheck, count_replays, number_replays);
    forward!(straight: agree, agreed, connected, connections, is_on_a_server, hands_over_ended);
}
