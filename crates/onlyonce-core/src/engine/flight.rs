//! What runs or waits in this process, by slot. Duplicates attach to a flight and share its
//! answer without a word to the store.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use crate::fingerprint::Fingerprint;
use crate::lock;
use crate::record::Meta;
use crate::refusal::{Reason, Refusal};
use crate::slot::{Slot, SlotMap};
use crate::store::Lease;

use super::call::{Answer, Call};

const SHARDS: usize = 64;

/// All flights of an engine.
pub(super) struct Flights {
    shards: Box<[Mutex<SlotMap<Arc<Flight>>>]>,
    count: AtomicUsize,
    /// How many of them were admitted to the store and the handler.
    admitted: AtomicUsize,
    admitted_max: usize,
    landed: Notify,
}

/// One attempt at a slot: claiming it, waiting for it, running, storing.
pub(super) struct Flight {
    slot: Slot,
    pub(super) fingerprint: Fingerprint,
    pub(super) meta: Arc<Meta>,
    pub(super) intake: Option<Arc<str>>,
    state: Mutex<State>,
    changed: Notify,
    waiters: AtomicUsize,
}

/// All that changes about a flight, but for the number of those that wait.
struct State {
    phase: Phase,
    /// Counts the phases, so that none is missed between looking and waiting.
    number: u32,
    /// The other instance that holds the slot, once that is known.
    blocked_by: Option<Arc<str>>,
    /// The lease to keep alive, while it is ours.
    renewal: Option<Renewal>,
    /// Another process has taken over our lease.
    is_lost: bool,
    /// Newcomers do not find it, because another flight has or had the slot.
    is_aside: bool,
    /// It counts among those that may run.
    is_admitted: bool,
    /// The handler has ended; from now on completing tells whether the lease was lost.
    is_settling: bool,
    /// Its answer is for its leader alone.
    is_alone: bool,
}

/// Where a flight stands.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// Asking the store.
    Claiming,
    /// Another process holds the slot.
    Waiting,
    /// The handler runs here.
    Running,
    /// It ran; the store does not take the result yet.
    Stalled,
    /// Over.
    Ended(Answer),
    /// Its leader went away before anything ran, or has an answer for itself alone: each that waited
    /// tries for itself.
    Left,
}

/// A lease to keep alive, and when to look after it next.
struct Renewal {
    lease: Lease,
    due: Duration,
    /// When the slot became ours.
    since: Duration,
}

pub(super) enum Joined {
    /// Nobody was at it: the caller is, now.
    Lead(FlightGuard),
    /// Somebody is at it in this process.
    Attach(Arc<Flight>),
}

impl Flights {
    /// No flights yet, of which at most `admitted_max` will run at a time.
    pub(super) fn new(admitted_max: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            count: AtomicUsize::new(0),
            admitted: AtomicUsize::new(0),
            admitted_max,
            landed: Notify::new(),
        }
    }

    fn shard(&self, slot: &Slot) -> &Mutex<SlotMap<Arc<Flight>>> {
        &self.shards[slot.shard(SHARDS)]
    }

    /// Attaches to the slot's flight, or starts one.
    pub(super) fn join(&self, call: &Call, owner: super::Engine) -> Joined {
        let mut shard = lock(self.shard(&call.slot));
        if let Some(flight) = shard.get(&call.slot) {
            return Joined::Attach(Arc::clone(flight));
        }
        let flight = Flight::of(call);
        shard.insert(call.slot, Arc::clone(&flight));
        Joined::Lead(self.guard(flight, owner))
    }

    /// The flight that newcomers to the slot would find.
    pub(super) fn find(&self, slot: &Slot) -> Option<Arc<Flight>> {
        lock(self.shard(slot)).get(slot).cloned()
    }

    /// Starts a flight for a call that holds the slot already, whoever else is at it.
    pub(super) fn take(&self, call: &Call, owner: super::Engine) -> FlightGuard {
        let flight = Flight::of(call);
        self.put_first(&flight);
        // It runs whatever the bound is: it has claimed already.
        self.admitted.fetch_add(1, Ordering::Relaxed);
        lock(&flight.state).is_admitted = true;
        self.guard(flight, owner)
    }

    /// Counts a flight among those that may run; returns whether there was room for it.
    pub(super) fn admit(&self, flight: &Flight) -> bool {
        let one_more = |count| (count < self.admitted_max).then_some(count + 1);
        let admitted = self
            .admitted
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        if admitted.is_ok() {
            lock(&flight.state).is_admitted = true;
        }
        admitted.is_ok()
    }

    /// Makes `flight`, which holds the slot, the one that newcomers find.
    pub(super) fn put_first(&self, flight: &Arc<Flight>) {
        let mut shard = lock(self.shard(&flight.slot));
        lock(&flight.state).is_aside = false;
        if let Some(other) = shard.insert(flight.slot, Arc::clone(flight)) {
            let still_first = Arc::ptr_eq(&other, flight);
            lock(&other.state).is_aside = !still_first;
        }
    }

    /// Takes a flight that has lost the slot out of newcomers' way.
    pub(super) fn put_aside(&self, flight: &Arc<Flight>) {
        let mut shard = lock(self.shard(&flight.slot));
        lock(&flight.state).is_aside = true;
        if shard
            .get(&flight.slot)
            .is_some_and(|it| Arc::ptr_eq(it, flight))
        {
            shard.remove(&flight.slot);
        }
    }

    fn guard(&self, flight: Arc<Flight>, owner: super::Engine) -> FlightGuard {
        self.count.fetch_add(1, Ordering::Relaxed);
        FlightGuard {
            flight,
            owner,
            ended: false,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns when nothing runs or waits any more.
    pub(super) async fn idle(&self) {
        loop {
            let landed = self.landed.notified();
            tokio::pin!(landed);
            landed.as_mut().enable();
            if self.len() == 0 {
                return;
            }
            landed.await;
        }
    }

    /// Every flight there is now.
    pub(super) fn all(&self) -> Vec<Arc<Flight>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(lock(shard).values().cloned());
        }
        all
    }

    fn remove(&self, flight: &Arc<Flight>) {
        self.put_aside(flight);
        let was_admitted = std::mem::take(&mut lock(&flight.state).is_admitted);
        if was_admitted {
            self.admitted.fetch_sub(1, Ordering::Relaxed);
        }
        if self.count.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.landed.notify_waiters();
        }
    }
}

impl Flight {
    fn of(call: &Call) -> Arc<Self> {
        Arc::new(Self {
            slot: call.slot,
            fingerprint: call.fingerprint,
            meta: Arc::clone(&call.meta),
            intake: call.intake.clone(),
            state: Mutex::new(State {
                phase: Phase::Claiming,
                number: 0,
                blocked_by: None,
                renewal: None,
                is_lost: false,
                is_aside: false,
                is_admitted: false,
                is_settling: false,
                is_alone: false,
            }),
            changed: Notify::new(),
            waiters: AtomicUsize::new(0),
        })
    }

    /// Whether newcomers do not find it, because another flight has or had the slot.
    pub(super) fn is_aside(&self) -> bool {
        lock(&self.state).is_aside
    }

    /// The phase it is in, and its number.
    pub(super) fn look(&self) -> (Phase, u32) {
        let state = lock(&self.state);
        (state.phase.clone(), state.number)
    }

    /// Returns when the phase is no longer number `seen`.
    pub(super) async fn changed(&self, seen: u32) {
        let changed = self.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let is_unchanged = lock(&self.state).number == seen;
        if is_unchanged {
            changed.await;
        }
    }

    /// The answer at its end; nothing if its leader went away.
    pub(super) async fn ended(&self) -> Option<Answer> {
        loop {
            let (phase, seen) = self.look();
            match phase {
                Phase::Ended(answer) => return Some(answer),
                Phase::Left => return None,
                Phase::Claiming | Phase::Waiting | Phase::Running | Phase::Stalled => {
                    self.changed(seen).await;
                }
            }
        }
    }

    pub(super) fn enter(&self, phase: Phase) {
        let mut state = lock(&self.state);
        state.phase = phase;
        state.number = state.number.wrapping_add(1);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Whether it ran and the store does not take the result yet.
    pub(super) fn is_stalled(&self) -> bool {
        matches!(lock(&self.state).phase, Phase::Stalled)
    }

    /// Whether another process has taken over its lease.
    pub(super) fn is_lost(&self) -> bool {
        lock(&self.state).is_lost
    }

    /// Notes that the handler has ended.
    pub(super) fn settle(&self) {
        lock(&self.state).is_settling = true;
    }

    /// Keeps its answer from those who wait: each tries for itself.
    pub(super) fn end_alone(&self) {
        lock(&self.state).is_alone = true;
    }

    /// Keeps `lease`, granted at `since`, alive from now on: it is renewed when `due`.
    pub(super) fn keep(&self, lease: Lease, since: Duration, due: Duration) {
        lock(&self.state).renewal = Some(Renewal { lease, due, since });
    }

    /// When the slot became ours; nothing while it is not.
    pub(super) fn held_since(&self) -> Option<Duration> {
        let state = lock(&self.state);
        state.renewal.as_ref().map(|renewal| renewal.since)
    }

    /// When its lease is to be renewed next, and the lease if that is now; nothing if it has none.
    pub(super) fn renewal(&self, now: Duration) -> Option<(Duration, Option<Lease>)> {
        let mut state = lock(&self.state);
        let renewal = state.renewal.as_mut()?;
        if renewal.due > now {
            return Some((renewal.due, None));
        }
        renewal.due = now + renewal.lease.lease_for / 3;
        Some((renewal.due, Some(renewal.lease.clone())))
    }

    /// Renews its lease by `due` at the latest.
    pub(super) fn renew_by(&self, due: Duration) {
        if let Some(renewal) = lock(&self.state).renewal.as_mut() {
            renewal.due = renewal.due.min(due);
        }
    }

    /// Ends the renewals: the slot is not ours any more.
    pub(super) fn give_up(&self) {
        lock(&self.state).renewal = None;
    }

    /// The same, because the store says so; returns whether the lease was lost while the handler ran.
    /// Once that has ended, this may be our own completion, which is no loss.
    pub(super) fn lose(&self) -> bool {
        let mut state = lock(&self.state);
        let was_running = state.renewal.take().is_some() && !state.is_settling;
        state.is_lost |= was_running;
        was_running
    }

    /// Whether the store has given this flight the slot, and nothing says it lost it since. Only
    /// then its meaning is what the slot holds: a flight that claims or waits may itself be refused.
    pub(super) fn holds_the_slot(&self) -> bool {
        lock(&self.state).renewal.is_some()
    }

    /// Notes which other instance has the slot.
    pub(super) fn wait_for(&self, holder: &Arc<str>) {
        lock(&self.state).blocked_by = Some(Arc::clone(holder));
    }

    /// The instance that has the slot: this one, unless the flight waits for another.
    pub(super) fn holder(&self) -> Arc<str> {
        let state = lock(&self.state);
        let other = state.blocked_by.as_ref();
        let holder = other.filter(|_| state.renewal.is_none());
        Arc::clone(holder.unwrap_or(&self.meta.holder))
    }

    pub(super) fn waiters(&self) -> usize {
        self.waiters.load(Ordering::Relaxed)
    }

    /// Takes a place among those who wait for this flight.
    pub(super) fn wait(self: &Arc<Self>) -> Waiter {
        let position = self.waiters.fetch_add(1, Ordering::Relaxed);
        Waiter {
            flight: Arc::clone(self),
            position,
        }
    }
}

/// A place among those who wait; given up when dropped.
pub(super) struct Waiter {
    flight: Arc<Flight>,
    /// How many were there before.
    pub(super) position: usize,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.flight.waiters.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Ends its flight, whatever happens: a flight without an owner would hold its slot for ever.
pub(super) struct FlightGuard {
    flight: Arc<Flight>,
    owner: super::Engine,
    ended: bool,
}

impl FlightGuard {
    /// Ends the flight; its duplicates share the answer, unless that is for its leader alone.
    pub(super) fn end(mut self, answer: Answer) -> Answer {
        let is_alone = lock(&self.flight.state).is_alone;
        let last = if is_alone {
            Phase::Left
        } else {
            Phase::Ended(answer.clone())
        };
        self.land(last);
        answer
    }

    /// Ends the flight before anything ran: each that waited tries for itself.
    pub(super) fn leave(mut self) {
        self.land(Phase::Left);
    }

    /// Off the map first: whoever comes now asks the store.
    fn land(&mut self, last: Phase) {
        if !std::mem::replace(&mut self.ended, true) {
            self.owner.inner.flights.remove(&self.flight);
            self.flight.give_up();
            self.flight.enter(last);
        }
    }
}

impl std::ops::Deref for FlightGuard {
    type Target = Arc<Flight>;

    fn deref(&self) -> &Arc<Flight> {
        &self.flight
    }
}

impl Drop for FlightGuard {
    fn drop(&mut self) {
        let (phase, _) = self.flight.look();
        self.land(match phase {
            Phase::Claiming | Phase::Waiting => Phase::Left,
            Phase::Running | Phase::Stalled => {
                Phase::Ended(Answer::Refused(Refusal::new(Reason::OutcomeUnknown)))
            }
            ended @ (Phase::Ended(_) | Phase::Left) => ended,
        });
    }
}
