//! Settling without a retry: what lapsed is looked up in the background, each operation under a claim of
//! its own. Nothing is run here, and only what certainly happened changes a record.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::derived::DerivedId;
use crate::event::Found;
use crate::key::{Key, KeyRule};
use crate::operate::{Filter, Page, StateName};
use crate::policy::Policy;
use crate::record::{Meta, OnLapse, Record, Token};
use crate::slot::{Slot, SlotMap};
use crate::store::StoreError;

use super::Engine;
use super::begin::{RETRY_NOW, in_progress};
use super::call::Call;
use super::finish::in_doubt;
use super::flight::Joined;
use super::reconcile::{Finding, Reconcile, Way};

/// Records that are read at a time.
const PAGE_RECORDS: usize = 200;
/// Looks of one round.
const LOOKS_MAX: usize = 100;
/// Looks in a row that cannot tell end a round: the service that is asked is in trouble.
const UNCLEAR_MAX: usize = 3;
/// The longest pause between two looks at one operation.
const PAUSE_MAX: Duration = Duration::from_secs(60 * 60);
/// How near two ends of a record are that are the same one: a look leaves it where it was, and a caller's
/// claim does not.
const SAME_END: Duration = Duration::from_millis(500);
/// Beyond these a pause does not double.
const DOUBLINGS_MAX: u32 = 16;
/// Operations whose next look is planned. One more is looked at when there is room again.
const PLANNED_MAX: usize = 10_000;

/// An operation whose outcome is unknown, as far as its record tells: neither its key nor its request
/// is kept.
#[derive(Clone, Copy, Debug)]
pub struct Unsettled {
    operation: DerivedId,
    attempt: u32,
}

impl Unsettled {
    /// The operation's id, as every attempt at it had it.
    pub fn operation(&self) -> DerivedId {
        self.operation
    }

    /// The attempt that asks: more than 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }
}

/// Looks up the lapsed operations of one name, so that nobody has to retry them first.
///
/// What happened gets its answer. What did not happen, or cannot be told, stays as it is: a retry looks
/// again, and runs it. Each operation is looked at under a claim, so by one process at a time; after a
/// look all processes leave it alone for a pause, twice as long each time and at most an hour, or `every`
/// where that is longer. What retries find out or not puts no look off. A look does not begin a record's
/// retention anew.
///
/// Records of other services on the same store are looked at too where they have the same name: an id
/// that the service asked does not know changes nothing.
pub struct Settler {
    engine: Engine,
    operation: Arc<str>,
    policy: Arc<Policy>,
    reconcile: Reconcile,
    every: Duration,
    planned: SlotMap<Plan>,
    /// Where the next round goes on.
    after: Option<Slot>,
    pass: u64,
}

/// When to look at an operation next.
struct Plan {
    /// The claim that was seen last: another one is another look or run.
    token: Token,
    /// When the record of that claim ends, in milliseconds.
    ends: u64,
    /// Looks without a retry so far, as far as this process knows, or as many as fit its age.
    looks: u32,
    due: Duration,
    /// The pass over the store in which it was seen last.
    pass: u64,
}

/// What came of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Round {
    /// Operations that happened: their answers are stored.
    pub happened: usize,
    /// Operations that did not happen: a retry runs them.
    pub did_not: usize,
    /// Operations of which neither is known.
    pub cannot_tell: usize,
}

impl Round {
    fn looks(&self) -> usize {
        self.happened + self.did_not + self.cannot_tell
    }

    fn count(&mut self, found: Found) {
        match found {
            Found::Happened => self.happened += 1,
            Found::DidNot => self.did_not += 1,
            Found::CannotTell => self.cannot_tell += 1,
        }
    }
}

impl Settler {
    /// Settles operations of this name on `engine`, each with pauses of at least `every`. A look takes at
    /// most 10 seconds, and an answer is kept as `policy` says.
    pub fn new<L, F>(
        engine: &Engine,
        operation: impl Into<Arc<str>>,
        policy: &Policy,
        every: Duration,
        look: L,
    ) -> Self
    where
        L: Fn(Unsettled) -> F + Send + Sync + 'static,
        F: Future<Output = Finding> + Send + 'static,
    {
        let reconcile = Reconcile::new(move |execution| {
            look(Unsettled {
                operation: execution.operation(),
                attempt: execution.attempt(),
            })
        });
        Self {
            engine: engine.clone(),
            operation: operation.into(),
            policy: Arc::new(policy.clone().bounded()),
            reconcile,
            every,
            planned: SlotMap::default(),
            after: None,
            pass: 0,
        }
    }

    /// Looks for at most this long; then it cannot tell.
    #[must_use]
    pub fn within(mut self, within: Duration) -> Self {
        self.reconcile = self.reconcile.within(within);
        self
    }

    /// How long to wait for the first round: a random share of `every`, so that processes which start
    /// together do not look together.
    pub fn first(&self) -> Duration {
        let mut share = [0];
        self.engine.inner.entropy.fill(&mut share);
        self.every / 256 * u32::from(share[0])
    }

    /// Looks at what is due, within bounds; the next round goes on where this one ended. While the slot
    /// secret is rotated it does nothing: the id of an operation is derived from the former secret then,
    /// and a record does not tell under which of the two it was made.
    pub async fn round(&mut self) -> Result<Round, StoreError> {
        let mut round = Round::default();
        let engine = self.engine.clone();
        let Some(operate) = engine.inner.store.operate() else {
            return Ok(round);
        };
        if engine.former().is_some() {
            return Ok(round);
        }
        let filter = Filter {
            state: Some(StateName::Lapsed),
            operation: Some(self.operation.to_string()),
            ..Filter::default()
        };
        let mut unclear = 0;
        loop {
            let page = Page {
                after: self.after,
                records_max: PAGE_RECORDS,
            };
            let listed = operate.list(&filter, &page).await?;
            let is_last = listed.len() < page.records_max;
            for (slot, record) in listed {
                let is_over = round.looks() >= LOOKS_MAX || unclear >= UNCLEAR_MAX;
                if is_over || engine.is_closing() {
                    return Ok(round);
                }
                self.after = Some(slot);
                if !self.is_due(slot, &record) {
                    continue;
                }
                // Another process may have looked since it was listed.
                let now = operate.get(&slot).await?;
                let Some(record) = now.filter(|it| it.is_lapsed() && it.token == record.token)
                else {
                    continue;
                };
                let Some(found) = self.settle(slot, &record).await else {
                    continue;
                };
                unclear = match found {
                    Found::Happened | Found::DidNot => 0,
                    Found::CannotTell => unclear + 1,
                };
                round.count(found);
            }
            if is_last {
                self.after = None;
                let pass = self.pass;
                self.planned.retain(|_, plan| plan.pass == pass);
                self.pass += 1;
                return Ok(round);
            }
        }
    }

    /// Whether this record is to be looked at now; plans it otherwise.
    fn is_due(&mut self, slot: Slot, record: &Record) -> bool {
        let lease_for = self.policy.lease_for;
        if record.on_lapse != OnLapse::Rerun || record.keep_left <= lease_for * 2 {
            return false;
        }
        let now = self.engine.now();
        let ends = record.expires_at.as_millis();
        let Some(plan) = self.planned.get_mut(&slot) else {
            let room = self.planned.len() < PLANNED_MAX;
            if record.attempt == 1 {
                return room && !self.engine.is_put_off(&slot);
            }
            if room {
                // It was looked at or run lately. How often is unknown; how long ago it began is known.
                let looks = looks_at(record.age(), self.every);
                self.plan(slot, record.token, ends, looks, self.every);
            }
            return false;
        };
        plan.pass = self.pass;
        if plan.token != record.token {
            plan.token = record.token;
            let is_look = ends.abs_diff(plan.ends) <= millis(SAME_END);
            plan.ends = ends;
            if is_look {
                let looks = plan.looks.saturating_add(1);
                let pause = self.pause(looks);
                self.plan(slot, record.token, ends, looks, pause);
                return false;
            }
        }
        plan.due <= now
    }

    /// How long all leave an operation alone after so many looks.
    fn pause(&self, looks: u32) -> Duration {
        let doublings = looks.saturating_sub(1).min(DOUBLINGS_MAX);
        let pause = self.every.saturating_mul(1 << doublings);
        pause.min(PAUSE_MAX.max(self.every))
    }

    /// Leaves an operation alone for `pause`, after so many looks.
    fn plan(&mut self, slot: Slot, token: Token, ends: u64, looks: u32, pause: Duration) {
        let plan = Plan {
            token,
            ends,
            looks,
            due: self.engine.now() + pause,
            pass: self.pass,
        };
        self.planned.insert(slot, plan);
    }

    /// Looks at one operation, under a claim; nothing if it could not be claimed.
    async fn settle(&mut self, slot: Slot, record: &Record) -> Option<Found> {
        let call = Arc::new(self.call(slot, record)?);
        // An answer is kept as if it had just been given, and at least as long as its caller asked for.
        let keep_for = self.policy.keep_for.max(record.keep_left);
        let (found, token) = self.engine.settle_lapsed(call, keep_for).await?;
        match found {
            Found::Happened => {
                self.planned.remove(&slot);
            }
            Found::DidNot | Found::CannotTell => {
                let before = self.planned.get(&slot).map_or(0, |plan| plan.looks);
                let looks = before.saturating_add(1);
                let ends = record.expires_at.as_millis();
                self.plan(slot, token, ends, looks, self.pause(looks));
            }
        }
        Some(found)
    }

    /// The call that the record was made for, as far as it tells.
    fn call(&self, slot: Slot, record: &Record) -> Option<Call> {
        let Engine { inner } = &self.engine;
        let policy = &self.policy;
        // The key is not kept. This one stands in for it, and nothing sees it: nothing runs.
        let id = DerivedId::of_operation(&slot).to_string();
        let key = Key::new(&id, &KeyRule::default()).ok()?;
        let meta = Meta {
            holder: Arc::clone(&inner.holder),
            ..Meta::clone(&record.meta)
        };
        let names = (None, Some(Arc::clone(&self.operation)));
        let now = self.engine.now();
        let call = Call::new(slot, &key, record.fingerprint, policy, names, meta, now);
        // The claim and what is left of it end when the record would have ended.
        let keep_for = record.keep_left.saturating_sub(policy.lease_for);
        Some(call.keep_for(keep_for).reconcile(self.reconcile.clone()))
    }
}

impl fmt::Debug for Settler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settler")
            .field("operation", &self.operation)
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Takes over a lapsed claim, looks, and stores what happened or gives the claim back. Returns what
    /// was found, and the claim it was found under.
    async fn settle_lapsed(&self, call: Arc<Call>, keep_for: Duration) -> Option<(Found, Token)> {
        let Joined::Lead(flight) = self.inner.flights.join(&call, self.clone()) else {
            return None;
        };
        let (lease, heard) = self.claim_lapsed(&call).await?;
        let token = lease.token;
        let execution = self.take_off(&call, &flight, lease, heard);
        let reconcile = call.reconcile.as_ref()?;
        let finding = self
            .look(&call, reconcile, &execution, Way::Background)
            .await;
        let found = finding.found();
        match finding {
            Finding::Happened(response) => {
                execution.keep_for(keep_for);
                let answer = self.store_found(&call, &flight, &execution, response).await;
                flight.end(answer);
            }
            Finding::DidNot => {
                let refusal = in_progress(&call).retry_after(RETRY_NOW);
                self.give_back(&call, &flight, &execution, refusal).await;
                // Whoever waits here tries for itself: it looks, and runs.
                flight.leave();
            }
            Finding::CannotTell => {
                let refusal = in_doubt(&call).retry_after(self.put_off(call.slot));
                let answer = self.give_back(&call, &flight, &execution, refusal).await;
                flight.end(answer);
            }
        }
        Some((found, token))
    }
}

/// How many looks fit into this time, as each pause is twice as long as the one before.
fn looks_at(age: Duration, every: Duration) -> u32 {
    let pauses = age.as_millis() / every.as_millis().max(1);
    pauses.checked_ilog2().map_or(1, |looks| looks + 1)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
