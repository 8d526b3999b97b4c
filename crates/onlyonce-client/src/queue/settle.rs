//! What follows from the end of an attempt: done, failed for good, or sent again after a pause.

use std::time::Duration;

use http::StatusCode;
use sqlx::SqliteConnection;

use super::attempted::{AttemptOutcome, Attempted};
use super::deliver::Landed;
use super::error::QueueError;
use super::rows::Row;
use super::{Queue, millis, outcome};
use crate::cause::{Cause, Failure};
use crate::reply::Reply;

/// A service that asks for more is asked again after this.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

impl Queue {
    /// Writes down what came of attempts.
    pub(super) async fn settle(
        &self,
        transaction: &mut SqliteConnection,
        landed: &[Landed],
    ) -> Result<Vec<Attempted>, QueueError> {
        let mut done = Vec::new();
        let mut attempted = Vec::with_capacity(landed.len());
        for Landed { row, sent, .. } in landed {
            let outcome = match sent {
                Ok(sent) => {
                    done.push((row, &sent.reply));
                    AttemptOutcome::Done {
                        status: sent.reply.status.as_u16(),
                        is_replayed: sent.is_replayed,
                    }
                }
                Err(failure) => self.settle_failure(transaction, row, failure).await?,
            };
            attempted.push(Attempted::new(row, outcome));
        }
        outcome::done_all(transaction, &done, self.wall()).await?;
        Ok(attempted)
    }

    async fn settle_failure(
        &self,
        transaction: &mut SqliteConnection,
        row: &Row,
        failure: &Failure,
    ) -> Result<AttemptOutcome, QueueError> {
        let (cause, detail, wall) = (failure.cause, failure.detail.clone(), self.wall());
        if let Some(reply) = nothing_to_undo(row, failure) {
            outcome::done(transaction, row.id, Some(reply), wall).await?;
            return Ok(AttemptOutcome::Done {
                status: reply.status.as_u16(),
                is_replayed: false,
            });
        }
        if self.is_final(row, cause) {
            outcome::failed(transaction, row, failure, wall).await?;
            return Ok(AttemptOutcome::Failed { cause, detail });
        }
        let again_in = self.delay(row, failure);
        let due_at = self.now().saturating_add(millis(again_in));
        outcome::later(transaction, row, failure, due_at).await?;
        Ok(AttemptOutcome::Later {
            cause,
            detail,
            again_in,
        })
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
        let backoff = &self.shared.backoff;
        let mut delay = backoff.delay(failure, row.attempts + 1, entropy);
        if failure.cause == Cause::InProgress && failure.retry_after.is_none() {
            // What runs for an hour is not asked for every two seconds.
            let longer = delay.saturating_mul(row.attempts.saturating_add(1));
            delay = longer.min(backoff.backoff_max.max(delay));
        }
        delay.clamp(Duration::from_millis(1), RETRY_AFTER_MAX)
    }
}

/// The answer to a compensation of something that is not there, as the service itself says.
fn nothing_to_undo<'f>(row: &Row, failure: &'f Failure) -> Option<&'f Reply> {
    let gone = [StatusCode::NOT_FOUND, StatusCode::GONE];
    let is_undo = row.group.is_some_and(|place| place.is_undo);
    let reply = failure.reply.as_deref()?;
    let is_gone = failure.cause == Cause::Rejected && gone.contains(&reply.status);
    (is_undo && is_gone).then_some(reply)
}
