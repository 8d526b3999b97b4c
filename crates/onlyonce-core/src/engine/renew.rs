//! Leases are renewed at a third of their length, by a task of their own: a handler that blocks
//! its thread does not lose its claim. One task for all flights.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::event::{About, Event, Verb};
use crate::store::{Lease, Renewed};

use super::begin::failed;
use super::flight::Flight;
use super::{Engine, Inner};

/// How long the task sleeps at most. A task that a handler wakes may wait behind that handler,
/// so the usual leases must not need to wake it: it looks by itself, in time.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// When the next renewal is due, and how to tell the task of an earlier one.
pub(super) struct Renewals {
    /// Microseconds on the engine's clock; `u64::MAX` while nothing is due.
    due: AtomicU64,
    /// When the task will look by itself.
    looks: AtomicU64,
    sooner: Arc<Notify>,
}

impl Default for Renewals {
    fn default() -> Self {
        Self {
            due: AtomicU64::new(u64::MAX),
            looks: AtomicU64::new(0),
            sooner: Arc::default(),
        }
    }
}

impl Renewals {
    /// Makes sure the task looks by `due`.
    fn schedule(&self, due: Duration) {
        let due = micros(due);
        self.due.fetch_min(due, Ordering::SeqCst);
        if due < self.looks.load(Ordering::SeqCst) {
            self.sooner.notify_one();
        }
    }

    /// How long the task may sleep from `now`: not at all if something is due.
    fn pause(&self, now: Duration) -> Duration {
        let now = micros(now);
        let latest = now.saturating_add(micros(LOOK_EVERY));
        // Announced before `due` is read: whoever schedules after that sees it and tells us.
        self.looks.store(latest, Ordering::SeqCst);
        let looks = self.due.load(Ordering::SeqCst).min(latest);
        self.looks.store(looks, Ordering::SeqCst);
        Duration::from_micros(looks.saturating_sub(now))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Its task sees that the engine is gone, and ends.
        self.renewals.sooner.notify_one();
    }
}

fn micros(moment: Duration) -> u64 {
    u64::try_from(moment.as_micros()).unwrap_or(u64::MAX - 1)
}

pub(super) fn start(inner: &Arc<Inner>) {
    let sooner = Arc::clone(&inner.renewals.sooner);
    tokio::spawn(run(Arc::downgrade(inner), sooner));
}

async fn run(engine: Weak<Inner>, sooner: Arc<Notify>) {
    loop {
        let Some(inner) = engine.upgrade() else {
            return;
        };
        let pause = inner.renewals.pause(inner.clock.now());
        if pause.is_zero() {
            Engine { inner }.renew_due();
            continue;
        }
        drop(inner);
        tokio::select! {
            biased;
            () = sooner.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

impl Engine {
    /// Keeps the flight's lease alive until it ends.
    pub(super) fn keep_alive(&self, flight: &Arc<Flight>, lease: Lease, now: Duration) {
        let due = now + lease.lease_for / 3;
        flight.keep(lease, now, due);
        self.inner.renewals.schedule(due);
    }

    /// Renews what is due, each in a task of its own: a store that hangs on one hangs on one.
    fn renew_due(&self) {
        self.inner.renewals.due.store(u64::MAX, Ordering::SeqCst);
        let now = self.now();
        for flight in self.inner.flights.all() {
            let Some((next, lease)) = flight.renewal(now) else {
                continue;
            };
            if let Some(lease) = lease {
                tokio::spawn(self.clone().renew(Arc::clone(&flight), lease));
            }
            self.inner.renewals.schedule(next);
        }
    }

    async fn renew(self, flight: Arc<Flight>, lease: Lease) {
        let event = match self.inner.store.renew(&lease, lease.lease_for).await {
            Ok(Renewed::Kept) => Event::Renewed,
            Ok(Renewed::Lost) => {
                let is_loss = flight.lose();
                self.inner.flights.put_aside(&flight);
                if !is_loss {
                    return;
                }
                Event::LeaseLost
            }
            Ok(Renewed::Busy) => {
                self.renew_soon(&flight, &lease);
                return;
            }
            Err(error) => {
                self.renew_soon(&flight, &lease);
                failed(Verb::Renew, 1, &error, self.inner.server.clone())
            }
        };
        let about = About {
            slot: &lease.slot,
            meta: &flight.meta,
            fingerprint: Some(&flight.fingerprint),
            intake: flight.intake.as_deref(),
            route: None,
        };
        self.emit_about(&about, &event);
    }

    /// Tries again what did not prolong the lease, well before its end.
    fn renew_soon(&self, flight: &Flight, lease: &Lease) {
        let soon = self.now() + lease.lease_for / 10;
        flight.renew_by(soon);
        self.inner.renewals.schedule(soon);
    }
}
