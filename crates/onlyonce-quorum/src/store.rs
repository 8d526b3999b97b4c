//! The store on top of the registers: each verb is one step of [`Entry`](onlyonce_core::entry::Entry)
//! on the slot's register.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::entry::Change;
use onlyonce_core::operate::Operate;
use onlyonce_core::{
    Claim, Claimed, Clock, Completed, Entropy, Lease, Record, Release, Released, Renewed, Response,
    Slot, Store, StoreError, StoreErrorKind, Token, async_trait,
};
use tokio::sync::{Mutex, MutexGuard};

use crate::NAME;
use crate::acceptor::Acceptor;
use crate::epoch::SharedEpoch;
use crate::finding::Found;
use crate::proposer::{Decision, Manner, Proposer};
use crate::register::{Releasing, SlotRegister};
use crate::trouble::unreadable;

/// Steps of this process on one slot go one after the other, as far as these locks tell slots apart.
const LANES: usize = 1024;
/// But nobody waits longer than this for another one.
const LANE_WAIT_MAX: Duration = Duration::from_millis(250);

/// What a store over servers looks after besides its registers.
#[async_trait]
pub trait Upkeep: Send + Sync + 'static {
    /// [`Operate::recheck`].
    async fn recheck(&self) -> Result<(), StoreError>;

    /// Called with each sweep.
    async fn tend(&self, store: &QuorumStore) -> Result<(), StoreError>;

    /// [`Operate::connected`].
    fn connected(&self) -> u64;
}

/// Records on a majority of independent servers.
pub struct QuorumStore {
    pub(crate) proposer: Proposer,
    pub(crate) upkeep: Arc<dyn Upkeep>,
    lanes: Box<[Mutex<()>]>,
}

impl std::fmt::Debug for QuorumStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.proposer.fmt(f)
    }
}

impl QuorumStore {
    /// A store over these servers, which are all there are.
    pub fn new(
        acceptors: Vec<Arc<dyn Acceptor>>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        epoch: Arc<SharedEpoch>,
        upkeep: Arc<dyn Upkeep>,
    ) -> Self {
        Self {
            proposer: Proposer::new(acceptors, clock, entropy, epoch),
            upkeep,
            lanes: (0..LANES).map(|_| Mutex::new(())).collect(),
        }
    }

    /// Takes one atomic step on a slot.
    pub(crate) async fn step<T: Clone>(
        &self,
        slot: &Slot,
        manner: Manner,
        mut step: impl FnMut(&mut SlotRegister, Duration) -> (T, Change),
    ) -> Result<T, StoreError> {
        self.decide(slot, manner, |found| {
            SlotRegister::step(found, &mut step).map_err(unreadable)
        })
        .await
    }

    async fn decide<T: Clone>(
        &self,
        slot: &Slot,
        manner: Manner,
        step: impl FnMut(&Found) -> Result<Decision<T>, StoreError>,
    ) -> Result<T, StoreError> {
        let _lane = self.lane(slot).await;
        self.proposer.run(&name(slot), manner, step).await
    }

    async fn lane(&self, slot: &Slot) -> Option<MutexGuard<'_, ()>> {
        let [first, second, ..] = slot.as_bytes();
        let lane = usize::from(u16::from_be_bytes([*first, *second])) % LANES;
        let lane = self.lanes[lane].lock();
        tokio::time::timeout(LANE_WAIT_MAX, lane).await.ok()
    }

    /// What is in the slot: one round trip if a majority agrees.
    pub(crate) async fn read<T: Clone>(
        &self,
        slot: &Slot,
        mut read: impl FnMut(&SlotRegister, Duration) -> T,
    ) -> Result<T, StoreError> {
        if let Some(found) = self.proposer.look(&name(slot)).await? {
            let (register, now) = SlotRegister::read(&found).map_err(unreadable)?;
            return Ok(read(&register, now));
        }
        // Written back first: what was read can then no longer be lost.
        self.step(slot, Manner::Plain, |register, now| {
            (read(register, now), Change::Nothing)
        })
        .await
    }

    /// A claim that makes no new record, because servers have no room.
    async fn claim_known(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        self.decide(&claim.slot, Manner::Plain, |found| {
            let (register, now) = SlotRegister::read(found).map_err(unreadable)?;
            if register.entry.live(now).is_none() {
                return Err(StoreError::new(NAME, StoreErrorKind::Full));
            }
            SlotRegister::step(found, |register, now| register.claim(claim, now))
                .map_err(unreadable)
        })
        .await
    }
}

/// The name of a slot's register.
pub(crate) fn name(slot: &Slot) -> Arc<[u8]> {
    Arc::from(slot.to_string().into_bytes())
}

#[async_trait]
impl Store for QuorumStore {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let claimed = self
            .step(&claim.slot, Manner::Claim, |register, now| {
                register.claim(claim, now)
            })
            .await;
        match claimed {
            Err(error) if error.kind == StoreErrorKind::Full => self.claim_known(claim).await,
            other => other,
        }
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        self.step(&lease.slot, Manner::Holder, |register, now| {
            register.entry.renew(lease, lease_for, now)
        })
        .await
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        self.step(&lease.slot, Manner::Holder, |register, now| {
            register.entry.complete(lease, response, keep_for, now)
        })
        .await
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        let mut releasing = Releasing::new(lease, why);
        self.step(&lease.slot, Manner::Holder, |register, now| {
            releasing.step(register, now)
        })
        .await
    }

    async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        match tokio::time::timeout(at_most, self.wait_for(slot, seen)).await {
            Ok(settled) => settled,
            Err(_) => Ok(()),
        }
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }
}

impl QuorumStore {
    /// The record in the slot, if there is a live one.
    pub(crate) async fn record(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        self.read(slot, |register, now| register.entry.get(now))
            .await
    }
}
