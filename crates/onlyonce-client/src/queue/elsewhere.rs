//! A queue that other processes change too: how their changes are noticed, and pauses that go by the date.

use std::time::Duration;

use tokio::time::sleep;

use super::error::QueueError;
use super::settle::RETRY_AFTER_MAX;
use super::{Queue, millis};

/// How long other processes' changes of a shared queue may go unnoticed.
const LOOK_PAUSE: Duration = Duration::from_millis(250);
/// The date may be set meanwhile, and the machine sleep: a long pause is looked at again.
const SHARED_PAUSE_MAX: Duration = Duration::from_secs(30);

impl Queue {
    /// How long a pause is slept at once.
    pub(super) fn bounded(&self, pause: Duration) -> Duration {
        if self.shared.folder.is_shared() {
            return pause.min(SHARED_PAUSE_MAX);
        }
        pause
    }

    /// Returns once another process has changed the queue since the version that was `seen`.
    pub(super) async fn changed_elsewhere(&self, seen: &mut Option<i64>) {
        loop {
            sleep(LOOK_PAUSE).await;
            let mut database = self.shared.database.lock().await;
            let version = sqlx::query_scalar("PRAGMA data_version");
            let version: Result<i64, _> = version.fetch_one(&mut *database).await;
            match version {
                Ok(version) if seen.replace(version) == Some(version) => {}
                // What is wrong with the database is found by the next that uses it.
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Pauses of a shared queue go by the date. One that was wrong must not hold up what waits.
    pub(super) async fn forget_impossible_pauses(&self) -> Result<(), QueueError> {
        if !self.shared.folder.is_shared() {
            return Ok(());
        }
        let mut database = self.shared.database.lock().await;
        sqlx::query("UPDATE operations SET due_at = 0 WHERE state = 'waiting' AND due_at > ?")
            .bind(self.now().saturating_add(millis(RETRY_AFTER_MAX)))
            .execute(&mut *database)
            .await?;
        Ok(())
    }
}
