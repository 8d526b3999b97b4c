//! Sends what waits. An operation is picked and noted as sent in one transaction, sent, and its
//! outcome written in another; a process that dies in between sends it again, under the same key.
//! Each transaction has the outcomes of all attempts that are over, and all that is sent next.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use sqlx::SqliteConnection;
use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep;

use super::attempted::{AttemptOutcome, Attempted};
use super::error::QueueError;
use super::rows::Row;
use super::{OperationId, Queue, Shared, begin, millis, outcome, rows};
use crate::cause::{Cause, Failure};
use crate::sender::Sent;

/// An operation on its way.
struct Flight {
    row: Row,
    airborne: Airborne,
}

/// An attempt that is over and not written down yet. Its operation counts as being sent until it is.
pub(super) struct Landed {
    pub(super) row: Row,
    pub(super) sent: Result<Sent, Failure>,
    _airborne: Airborne,
}

/// What to do now, and when to look again.
struct Picked {
    flights: Vec<Flight>,
    /// Whether there was nothing to send, nor to give up.
    is_empty: bool,
    /// Until the next operation is due.
    pause: Option<Duration>,
}

/// Says that an operation is being sent, as long as it lives.
struct Airborne {
    shared: Arc<Shared>,
    id: OperationId,
}

impl Drop for Airborne {
    fn drop(&mut self) {
        self.shared.in_flight().remove(&self.id);
        self.shared.changed.send_replace(());
    }
}

/// When to stop sending.
#[derive(Clone, Copy, PartialEq)]
enum Until {
    /// Nothing waits any more.
    Idle,
    /// Never.
    Dropped,
    /// All that was due at this time was sent, once.
    Sent(i64),
}

impl Queue {
    /// Sends what waits, as it comes, until it is dropped or the database fails.
    pub async fn run(&self) -> Result<Infallible, QueueError> {
        self.run_with(|| ()).await
    }

    /// The same, and says so once it has the right to send: see [`open_shared`](Self::open_shared).
    pub async fn run_with(&self, ready: impl FnOnce()) -> Result<Infallible, QueueError> {
        self.deliver_with(Until::Dropped, ready).await?;
        loop {
            self.deliver(Until::Dropped).await?;
        }
    }

    /// Sends what waits until nothing does: every operation is done or has failed for good, but
    /// for compensations behind one that failed.
    pub async fn drain(&self) -> Result<(), QueueError> {
        self.deliver(Until::Idle).await
    }

    /// Sends what is due now, once: what is not done after that is due later, and waits for the next call.
    pub async fn send_due(&self) -> Result<(), QueueError> {
        self.deliver(Until::Sent(self.now())).await
    }

    /// Sends what waits now rather than after its pause: the network is back.
    pub async fn hurry(&self) -> Result<(), QueueError> {
        let mut database = self.shared.database.lock().await;
        sqlx::query("UPDATE operations SET due_at = 0 WHERE state = 'waiting' AND due_at > ?")
            .bind(self.now())
            .execute(&mut *database)
            .await?;
        self.shared.folder.check()?;
        drop(database);
        self.shared.changed.send_replace(());
        Ok(())
    }

    async fn deliver(&self, until: Until) -> Result<(), QueueError> {
        self.deliver_with(until, || ()).await
    }

    async fn deliver_with(&self, until: Until, ready: impl FnOnce()) -> Result<(), QueueError> {
        let _only = self.shared.delivering.lock().await;
        let _sending = self.shared.folder.lock_sending().await?;
        self.forget_impossible_pauses().await?;
        ready();
        let parallel = self.shared.options.parallel.max(1);
        let mut changes = self.shared.changed.subscribe();
        // Dropping the set ends what is in flight.
        let mut flights = JoinSet::new();
        let mut landed = Vec::new();
        let mut seen = None;
        loop {
            changes.borrow_and_update();
            while let Some(ended) = flights.try_join_next() {
                landed.extend(land(ended));
            }
            // Also what was in flight when an earlier `drain` was dropped: it is about to land.
            let is_airborne = !self.shared.in_flight().is_empty();
            let free = parallel - flights.len();
            let (mut pause, mut is_idle) = (None, false);
            if free > 0 {
                let now = match until {
                    Until::Sent(now) => now,
                    Until::Idle | Until::Dropped => self.now(),
                };
                let picked = self.turn(&landed, free, now).await?;
                landed.clear();
                pause = picked.pause;
                is_idle = picked.is_empty && (pause.is_none() || matches!(until, Until::Sent(_)));
                for flight in picked.flights {
                    flights.spawn(self.clone().fly(flight));
                }
            }
            if until != Until::Dropped && is_idle && !is_airborne && flights.is_empty() {
                return Ok(());
            }
            tokio::select! {
                Some(ended) = flights.join_next() => landed.extend(land(ended)),
                // The other end lives as long as this queue does.
                _ = changes.changed() => {}
                () = sleep(self.bounded(pause.unwrap_or_default())), if pause.is_some() => {}
                () = self.changed_elsewhere(&mut seen), if self.shared.folder.is_shared() => {}
            }
        }
    }

    /// Writes down what came of attempts, and picks operations to send: in one transaction, so that
    /// both share the wait for the disk. That an operation will be sent is on disk before it is.
    async fn turn(
        &self,
        landed: &[Landed],
        at_most: usize,
        now: i64,
    ) -> Result<Picked, QueueError> {
        let mut database = self.shared.database.lock().await;
        let mut transaction = begin(&self.shared.folder, &mut database).await?;
        let mut attempted = Vec::new();
        if !landed.is_empty() {
            attempted = self.settle(&mut transaction, landed).await?;
            outcome::sweep(&mut transaction, self.log_start()).await?;
        }
        let (picked, expired) = self.pick(&mut transaction, at_most, now).await?;
        self.commit(transaction).await?;
        drop(database);
        attempted.extend(expired);
        self.shared.observer.tell(&attempted);
        Ok(picked)
    }

    async fn pick(
        &self,
        transaction: &mut SqliteConnection,
        at_most: usize,
        now: i64,
    ) -> Result<(Picked, Vec<Attempted>), QueueError> {
        let in_flight: Vec<i64> = self.shared.in_flight().iter().map(|id| id.0).collect();
        let due = rows::due(transaction, now, &in_flight, at_most).await?;
        let is_empty = due.is_empty();
        let wall = self.wall();
        let (expired, sent): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|row| self.is_expired(row, wall));
        for row in &expired {
            let expired = Failure::new(Cause::Expired, "");
            outcome::failed(transaction, row, &expired, wall).await?;
        }
        let ids: Vec<i64> = sent.iter().map(|row| row.id.0).collect();
        if !ids.is_empty() {
            rows::sent(transaction, &ids, wall).await?;
        }
        if !expired.is_empty() {
            self.shared.changed.send_replace(());
        }
        // Under the same lock: what is edited now is either picked above or seen here.
        let next = rows::next_due(transaction, now).await?;
        let pause = next.map(|due_at| Duration::from_millis((due_at - now).unsigned_abs()));
        let picked = Picked {
            flights: sent.into_iter().map(|row| self.take_off(row)).collect(),
            is_empty,
            pause,
        };
        let given_up = expired.iter().map(|row| {
            let (cause, detail) = (Cause::Expired, String::new());
            Attempted::new(row, AttemptOutcome::Failed { cause, detail })
        });
        Ok((picked, given_up.collect()))
    }

    fn take_off(&self, row: Row) -> Flight {
        let id = row.id;
        self.shared.in_flight().insert(id);
        Flight {
            row,
            airborne: Airborne {
                shared: Arc::clone(&self.shared),
                id,
            },
        }
    }

    /// Whether the service may have forgotten that this operation ran, or would before an attempt
    /// of now can have reached it.
    fn is_expired(&self, row: &Row, wall: i64) -> bool {
        let life = millis(self.shared.options.key_life);
        let on_the_way = millis(self.shared.sender.own_retry().attempt_timeout);
        row.sent_at.is_some_and(|sent_at| {
            let age = wall.saturating_sub(sent_at);
            age.saturating_add(on_the_way) >= life
        })
    }

    async fn fly(self, flight: Flight) -> Landed {
        let Flight { row, airborne } = flight;
        if row.attempts > 0 {
            self.shared.sender.count_retry();
        }
        let sender = &self.shared.sender;
        let sent = if may_still_run(&row) {
            sender.attempt_again(&row.operation, &row.key).await
        } else {
            sender.attempt(&row.operation, &row.key).await
        };
        Landed {
            row,
            sent,
            _airborne: airborne,
        }
    }
}

/// Whether the last attempt may still be running at the service: its answer was lost, or the process
/// that made it.
fn may_still_run(row: &Row) -> bool {
    row.sent_at.is_some() && row.cause.is_none_or(Cause::may_still_run)
}

/// A panic of the application's own code, in signing, is its own again.
fn land(ended: Result<Landed, JoinError>) -> Option<Landed> {
    match ended {
        Ok(landed) => Some(landed),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_cancelled) => None,
    }
}
