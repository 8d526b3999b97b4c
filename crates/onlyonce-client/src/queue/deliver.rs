//! Sends what waits. An operation is picked and noted as sent in one transaction, sent, and its
//! outcome written in another; a process that dies in between sends it again, under the same key.
//! Each transaction has the outcomes of all attempts that are over, and all that is sent next.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use sqlx::SqliteConnection;
use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep;

use super::error::QueueError;
use super::rows::Row;
use super::{OperationId, Queue, Shared, begin, millis, outcome, rows};
use crate::cause::{Cause, Failure};
use crate::sender::Sent;

/// A service that asks for more is asked again after this.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// An operation on its way.
struct Flight {
    row: Row,
    airborne: Airborne,
}

/// An attempt that is over and not written down yet. Its operation counts as being sent until it is.
struct Landed {
    row: Row,
    sent: Result<Sent, Failure>,
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
}

impl Queue {
    /// Sends what waits, as it comes, until it is dropped or the database fails.
    pub async fn run(&self) -> Result<Infallible, QueueError> {
        loop {
            self.deliver(Until::Dropped).await?;
        }
    }

    /// Sends what waits until nothing does: every operation is done or has failed for good, but
    /// for compensations behind one that failed.
    pub async fn drain(&self) -> Result<(), QueueError> {
        self.deliver(Until::Idle).await
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
        let _only = self.shared.delivering.lock().await;
        let parallel = self.shared.options.parallel.max(1);
        let mut changes = self.shared.changed.subscribe();
        // Dropping the set ends what is in flight.
        let mut flights = JoinSet::new();
        let mut landed = Vec::new();
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
                let picked = self.turn(&landed, free).await?;
                landed.clear();
                pause = picked.pause;
                is_idle = picked.is_empty && pause.is_none();
                for flight in picked.flights {
                    flights.spawn(self.clone().fly(flight));
                }
            }
            if until == Until::Idle && is_idle && !is_airborne && flights.is_empty() {
                return Ok(());
            }
            tokio::select! {
                Some(ended) = flights.join_next() => landed.extend(land(ended)),
                // The other end lives as long as this queue does.
                _ = changes.changed() => {}
                () = sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
        }
    }

    /// Writes down what came of attempts, and picks operations to send: in one transaction, so that
    /// both share the wait for the disk. That an operation will be sent is on disk before it is.
    async fn turn(&self, landed: &[Landed], at_most: usize) -> Result<Picked, QueueError> {
        let mut database = self.shared.database.lock().await;
        let now = self.now();
        let mut transaction = begin(&self.shared.folder, &mut database).await?;
        if !landed.is_empty() {
            self.settle(&mut transaction, landed).await?;
            outcome::sweep(&mut transaction, self.log_start()).await?;
        }
        let picked = self.pick(&mut transaction, at_most, now).await?;
        self.commit(transaction).await?;
        Ok(picked)
    }

    async fn pick(
        &self,
        transaction: &mut SqliteConnection,
        at_most: usize,
        now: i64,
    ) -> Result<Picked, QueueError> {
        let in_flight: Vec<i64> = self.shared.in_flight().iter().map(|id| id.0).collect();
        let due = rows::due(transaction, now, &in_flight, at_most).await?;
        let is_empty = due.is_empty();
        let wall = self.wall();
        let (expired, sent): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|row| self.is_expired(row, wall));
        for row in &expired {
            outcome::failed(transaction, row, Cause::Expired, "", wall).await?;
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
        Ok(Picked {
            flights: sent.into_iter().map(|row| self.take_off(row)).collect(),
            is_empty,
            pause,
        })
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
        let sent = self.shared.sender.attempt(&row.operation, &row.key).await;
        Landed {
            row,
            sent,
            _airborne: airborne,
        }
    }

    /// Writes down what came of attempts.
    async fn settle(
        &self,
        transaction: &mut SqliteConnection,
        landed: &[Landed],
    ) -> Result<(), QueueError> {
        let mut done = Vec::new();
        for Landed { row, sent, .. } in landed {
            match sent {
                Ok(sent) => done.push((row.id, &sent.reply)),
                Err(failure) => self.settle_failure(transaction, row, failure).await?,
            }
        }
        outcome::done_all(transaction, &done, self.wall()).await
    }

    async fn settle_failure(
        &self,
        transaction: &mut SqliteConnection,
        row: &Row,
        failure: &Failure,
    ) -> Result<(), QueueError> {
        let (cause, detail, wall) = (failure.cause, &failure.detail, self.wall());
        if has_nothing_to_undo(row, failure) {
            return outcome::done(transaction, row.id, failure.reply.as_deref(), wall).await;
        }
        if self.is_final(row, cause) {
            return outcome::failed(transaction, row, cause, detail, wall).await;
        }
        let due_at = self.now().saturating_add(millis(self.delay(row, failure)));
        outcome::later(transaction, row, cause, detail, due_at).await
    }

    /// Whether to give up. A credential that is too old is renewed one day; only what the service
    /// itself gets wrong again and again is given up for it.
    fn is_final(&self, row: &Row, cause: Cause) -> bool {
        let is_hopeful = cause.is_retryable() || cause == Cause::Unauthorised;
        let is_last = row.failures + 1 >= self.shared.options.failures_max;
        !is_hopeful || (cause == Cause::Failed && is_last)
    }

    /// Never nothing: another attempt is made in another moment.
    fn delay(&self, row: &Row, failure: &Failure) -> Duration {
        let entropy = &**self.shared.sender.own_entropy();
        let delay = self
            .shared
            .backoff
            .delay(failure, row.attempts + 1, entropy);
        delay.clamp(Duration::from_millis(1), RETRY_AFTER_MAX)
    }
}

/// A compensation of something that is not there, as the service itself says.
fn has_nothing_to_undo(row: &Row, failure: &Failure) -> bool {
    let gone = [StatusCode::NOT_FOUND, StatusCode::GONE];
    let status = failure.reply.as_ref().map(|reply| reply.status);
    row.group.is_some_and(|place| place.is_undo)
        && failure.cause == Cause::Rejected
        && status.is_some_and(|status| gone.contains(&status))
}

/// A panic of the application's own code, in signing, is its own again.
fn land(ended: Result<Landed, JoinError>) -> Option<Landed> {
    match ended {
        Ok(landed) => Some(landed),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_cancelled) => None,
    }
}
