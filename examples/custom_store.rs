//! A store of your own: five verbs, each one atomic step. Here that is a map behind a mutex;
//! against a database, each verb is one conditional statement on the database's clock.
//!
//! `cargo run -p onlyonce-examples --example custom_store`

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onlyonce::RunError;
use onlyonce::core::{
    Claim, Claimed, Clock, Completed, Engine, Lease, OnLapse, OsEntropy, Overtaken, Record,
    Release, Released, Renewed, Response, Slot, SlotSecret, State, Store, StoreError,
    StoreErrorKind, SystemClock, Token, async_trait,
};
use onlyonce::store::Receipt;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Beyond this many live records, new keys are refused: a live one is never forgotten.
const RECORDS_MAX: usize = 10_000;

/// Records in a map.
pub(crate) struct MapStore {
    clock: Arc<dyn Clock>,
    map: Mutex<Map>,
    /// Told of every claim that ended.
    changed: Notify,
}

#[derive(Default)]
struct Map {
    kept: BTreeMap<Slot, Kept>,
    /// Tokens released as "not run", and until when a late claim must not revive them.
    dead: BTreeMap<(Slot, Token), Duration>,
}

/// A record with its deadlines: moments on the store's clock, which never leave the store.
struct Kept {
    record: Record,
    lease_until: Duration,
    expires: Duration,
    /// How long the record outlives its lease.
    tail: Duration,
}

impl MapStore {
    /// An empty store on this clock.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            map: Mutex::default(),
            changed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for MapStore {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let mut map = self.lock();
        let now = self.clock.now();
        if map.is_dead(claim, now) {
            return Ok(Claimed::Dead);
        }
        let Some(held) = map.live(&claim.slot, now) else {
            map.make_room(now)?;
            return Ok(map.grant(claim, None, &*self.clock));
        };
        if held.is_pending() && held.record.token == claim.token {
            // A repeated claim, whose reply was lost: the same attempt with a whole lease.
            held.renew(claim.lease_for, &*self.clock);
            return Ok(granted(claim, held.record.attempt, None));
        }
        if !held.yields_to(claim, now) {
            return Ok(Claimed::Taken(held.read(now)));
        }
        let lapsed = held.record.clone();
        let granted = map.grant(claim, Some(lapsed), &*self.clock);
        self.changed.notify_waiters();
        Ok(granted)
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        Ok(match self.lock().held_by(lease, self.clock.now()) {
            Some(held) => {
                held.renew(lease_for, &*self.clock);
                Renewed::Kept
            }
            None => Renewed::Lost,
        })
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        let mut map = self.lock();
        let now = self.clock.now();
        if let Some(held) = map.held_by(lease, now) {
            let receipt = held.finish(response, keep_for, &*self.clock);
            self.changed.notify_waiters();
            return Ok(Completed::Stored(receipt));
        }
        Ok(match map.live(&lease.slot, now) {
            Some(kept) => Completed::Found(kept.read(now)),
            None => Completed::Absent,
        })
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        let mut map = self.lock();
        let now = self.clock.now();
        let held = map.held_by(lease, now);
        let was_held = held.is_some();
        match (why, held) {
            (Release::Unknown, Some(held)) => held.end_unknown(now),
            // The attempt that it took over from may have happened: that is not forgotten.
            (Release::NotRun, Some(held)) if held.record.attempt > 1 => held.end_unknown(now),
            (Release::NotRun, Some(_)) => drop(map.kept.remove(&lease.slot)),
            (Release::Unknown | Release::NotRun, None) => {}
        }
        // Even if nothing was held: its claim may still be on the way.
        if was_held || why == Release::NotRun {
            map.bury(lease, now);
        }
        if was_held {
            self.changed.notify_waiters();
            return Ok(Released::Ended);
        }
        Ok(match map.live(&lease.slot, now) {
            Some(kept) => Released::Found(kept.read(now)),
            None => Released::Ended,
        })
    }

    async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        let over = async {
            loop {
                // Before looking: a change after the look is then not missed.
                let changed = self.changed.notified();
                let left = self.lock().lease_left(slot, seen, self.clock.now());
                if left.is_zero() {
                    return;
                }
                // A change or a lapse; either way, look again.
                let _ = timeout(left, changed).await;
            }
        };
        let _ = timeout(at_most, over).await;
        Ok(())
    }
}

impl Map {
    fn live(&mut self, slot: &Slot, now: Duration) -> Option<&mut Kept> {
        self.kept.get_mut(slot).filter(|kept| kept.expires > now)
    }

    /// The pending claim of this lease: lapsed or not, as long as nobody overtook it.
    fn held_by(&mut self, lease: &Lease, now: Duration) -> Option<&mut Kept> {
        self.live(&lease.slot, now)
            .filter(|kept| kept.is_pending() && kept.record.token == lease.token)
    }

    fn lease_left(&mut self, slot: &Slot, seen: &Token, now: Duration) -> Duration {
        match self.live(slot, now) {
            Some(kept) if kept.is_pending() && kept.record.token == *seen => {
                kept.lease_until.saturating_sub(now)
            }
            Some(_) | None => Duration::ZERO,
        }
    }

    /// Puts the claim into its slot, after the lapsed one if there is one.
    fn grant(&mut self, claim: &Claim, lapsed: Option<Record>, clock: &dyn Clock) -> Claimed {
        let kept = Kept::claimed(claim, lapsed.as_ref(), clock);
        let attempt = kept.record.attempt;
        self.kept.insert(claim.slot, kept);
        let overtook = lapsed.map(|lapsed| Overtaken {
            age: clock.wall().since(lapsed.created_at),
            meta: lapsed.meta,
        });
        granted(claim, attempt, overtook)
    }

    fn make_room(&mut self, now: Duration) -> Result<(), StoreError> {
        if self.kept.len() >= RECORDS_MAX {
            self.kept.retain(|_, kept| kept.expires > now);
        }
        if self.kept.len() >= RECORDS_MAX {
            return Err(StoreError::new("map", StoreErrorKind::Full));
        }
        Ok(())
    }

    fn is_dead(&self, claim: &Claim, now: Duration) -> bool {
        let until = self.dead.get(&(claim.slot, claim.token));
        until.is_some_and(|until| *until > now)
    }

    fn bury(&mut self, lease: &Lease, now: Duration) {
        self.dead.retain(|_, until| *until > now);
        let until = now.saturating_add(lease.lease_for);
        self.dead.insert((lease.slot, lease.token), until);
    }
}

impl Kept {
    fn claimed(claim: &Claim, lapsed: Option<&Record>, clock: &dyn Clock) -> Self {
        let lease_until = clock.now().saturating_add(claim.lease_for);
        let keep_left = claim.lease_for.saturating_add(claim.keep_for);
        let record = Record {
            token: claim.token,
            fingerprint: claim.fingerprint,
            on_lapse: claim.on_lapse,
            attempt: lapsed.map_or(1, |lapsed| lapsed.attempt.saturating_add(1)),
            meta: Arc::clone(&claim.meta),
            created_at: lapsed.map_or(clock.wall(), |lapsed| lapsed.created_at),
            completed_at: None,
            expires_at: clock.wall().plus(keep_left),
            keep_left,
            replays: 0,
            state: State::Pending {
                lease_left: claim.lease_for,
            },
        };
        Self {
            record,
            lease_until,
            expires: lease_until.saturating_add(claim.keep_for),
            tail: claim.keep_for,
        }
    }

    fn is_pending(&self) -> bool {
        matches!(self.record.state, State::Pending { .. })
    }

    /// Whether another token's claim may take over: lapsed, the same request, and both re-run.
    fn yields_to(&self, claim: &Claim, now: Duration) -> bool {
        self.is_pending()
            && self.lease_until <= now
            && self.record.on_lapse.both_rerun(claim.on_lapse)
            && self.record.fingerprint == claim.fingerprint
    }

    fn renew(&mut self, lease_for: Duration, clock: &dyn Clock) {
        self.lease_until = clock.now().saturating_add(lease_for);
        self.keep(lease_for.saturating_add(self.tail), clock);
    }

    fn finish(
        &mut self,
        response: &Arc<Response>,
        keep_for: Duration,
        clock: &dyn Clock,
    ) -> Receipt {
        self.record.state = State::finished(Arc::clone(response));
        self.record.completed_at = Some(clock.wall());
        self.keep(keep_for, clock);
        Receipt {
            created_at: self.record.created_at,
            completed_at: clock.wall(),
            expires_at: self.record.expires_at,
        }
    }

    /// Ends the lease at once. How long the record is kept was promised with the claim.
    fn end_unknown(&mut self, now: Duration) {
        match self.record.on_lapse {
            OnLapse::Rerun => self.lease_until = now,
            OnLapse::Hold => self.record.state = State::Unknown,
        }
    }

    /// Keeps the record this long from now.
    fn keep(&mut self, keep_for: Duration, clock: &dyn Clock) {
        self.expires = clock.now().saturating_add(keep_for);
        self.record.expires_at = clock.wall().plus(keep_for);
    }

    /// The record as of now: durations come out, never moments.
    fn read(&self, now: Duration) -> Record {
        let mut record = self.record.clone();
        record.keep_left = self.expires.saturating_sub(now);
        if let State::Pending { lease_left } = &mut record.state {
            *lease_left = self.lease_until.saturating_sub(now);
        }
        record
    }
}

fn granted(claim: &Claim, attempt: u32, overtook: Option<Overtaken>) -> Claimed {
    let lease = Lease {
        attempt,
        ..claim.lease()
    };
    Claimed::Granted { lease, overtook }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A store without an operators' side cannot keep the slot secret, so it is configured: the
    // same one in every process. Two engines on one store stand for two processes here.
    let store = Arc::new(MapStore::new(Arc::new(SystemClock::new())));
    let secret = SlotSecret::generate(&OsEntropy::new());
    let engine = || Engine::builder(Arc::clone(&store)).secret(secret.clone());
    let one = engine().open().await?.job("ship");
    let two = engine().open().await?.job("ship");

    let (first, second) = tokio::try_join!(
        one.run("order-7", "Oslo", async || ship("one").await),
        two.run("order-7", "Oslo", async || ship("two").await),
    )?;
    println!("one: {:?}, replayed: {}", first.value, first.replayed);
    println!("two: {:?}, replayed: {}", second.value, second.replayed);
    assert_eq!(first.value, second.value);
    assert_ne!(first.replayed, second.replayed);

    let other = two.run("order-7", "Rome", async || ship("two").await).await;
    let Err(RunError::Refused(refusal)) = other else {
        panic!("the key belongs to another order: {other:?}");
    };
    println!("same key, to Rome: {refusal}");
    Ok(())
}

/// Takes long enough for the other engine to come and wait.
async fn ship(by: &str) -> Result<String, String> {
    tokio::time::sleep(Duration::from_millis(50)).await;
    println!("shipped by {by}");
    Ok(format!("shipped by {by}"))
}
