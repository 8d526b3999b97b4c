//! The end of a statement that nobody waits for any more: it is cancelled.

use std::sync::Arc;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Connection, Row};
use tokio::time::timeout;

use super::lines::{Line, Lines};
use super::places::Places;
use crate::shared::{Asking, GIVEN_UP_MAX, GivenUp};

/// The server's process behind a connection: its number, and when it began, in microseconds, for
/// numbers are used again.
#[derive(Clone, Copy)]
pub(super) struct Backend {
    pid: i32,
    began: i64,
}

const BEGAN: &str = "(date_part('epoch', backend_start) * 1000000)::int8";

impl Backend {
    /// The process behind `connection`, if the server tells.
    pub(super) async fn of(connection: &mut PgConnection) -> Result<Option<Self>, sqlx::Error> {
        let text = format!(
            "SELECT pid, {BEGAN} AS began FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        );
        let row = sqlx::raw_sql(AssertSqlSafe(text)).fetch_optional(connection);
        let Some(row) = row.await? else {
            return Ok(None);
        };
        Ok(Some(Self {
            pid: row.try_get("pid")?,
            began: row.try_get("began")?,
        }))
    }

    /// Cancels what it does now.
    async fn cancel(self, options: &PgConnectOptions) -> Result<(), sqlx::Error> {
        let Self { pid, began } = self;
        let text = format!(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity
             WHERE pid = {pid} AND {BEGAN} = {began}"
        );
        let mut connection = PgConnection::connect_with(options).await?;
        let cancel = sqlx::raw_sql(AssertSqlSafe(text));
        cancel.execute(&mut connection).await?;
        connection.close().await
    }
}

/// A statement that the server has answered, and the connection it was asked on.
pub(super) struct Ended {
    pub(super) line: Line,
    pub(super) rows: Result<Vec<PgRow>, sqlx::Error>,
}

/// Cancels what is given up.
pub(super) struct Cancel {
    pub(super) lines: Arc<Lines>,
    pub(super) places: Arc<Places>,
    /// Unknown where the session is somebody else's: then its end is waited for.
    pub(super) backend: Option<Backend>,
}

impl GivenUp<Ended> for Cancel {
    async fn see_off(self, asking: Asking<Ended>) {
        if let Some(mut ended) = self.end_of(asking).await {
            // A cancellation that comes late must not meet another statement.
            ended.line.spoil();
        }
    }
}

impl Cancel {
    /// The end of a statement; nothing if that cannot be seen.
    async fn end_of(&self, mut asking: Asking<Ended>) -> Option<Ended> {
        if let Some(backend) = self.backend {
            let cancelling = async {
                let _turn = self.places.cancelling.lock().await;
                let options = self.lines.source.options(self.places.chosen);
                timeout(self.lines.terms().timeout, backend.cancel(&options)).await
            };
            let cancelled = tokio::select! {
                biased;
                ended = &mut asking => return Some(ended),
                cancelled = cancelling => cancelled,
            };
            match cancelled {
                // Where the server has no room for one more connection, its end is waited for.
                Ok(Ok(()) | Err(sqlx::Error::Database(_))) => {}
                // The server is away: there is nothing to wait for.
                Ok(Err(_)) | Err(_) => return None,
            }
        }
        timeout(GIVEN_UP_MAX, asking).await.ok()
    }
}
