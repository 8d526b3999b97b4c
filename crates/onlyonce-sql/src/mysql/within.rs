//! Finishing a record inside a transaction of its holder, together with rows of its own.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::entry::Change;
use onlyonce_core::{Completed, Lease, Renewed, Response, StoreError};
use sqlx::{MySql, Transaction};

use super::MySqlStore;
use super::rows::{self, Row};
use super::trouble::{Trouble, unreadable};
use crate::steps::{Cells, Held, from_millis, whole};

impl MySqlStore {
    /// Takes the claim into a transaction: let this be its first statement. Until the transaction
    /// ends the claim counts as alive, whatever its lease says, and nobody takes it over; if the
    /// answer is [`Renewed::Lost`], roll back.
    ///
    /// ```no_run
    /// # use onlyonce_core::{Completed, Lease, Renewed, Response};
    /// # use onlyonce_sql::MySqlStore;
    /// # use std::sync::Arc;
    /// # async fn pay(
    /// #     store: &MySqlStore, lease: &Lease, response: &Arc<Response>,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = store.pool().begin().await?;
    /// let Renewed::Kept = store.lock_in(&mut tx, lease).await? else { return Ok(()) };
    /// sqlx::query("INSERT INTO payments VALUES ()").execute(&mut *tx).await?;
    /// let Completed::Stored(_) = store.complete_in(&mut tx, lease, response, lease.keep_for).await?
    ///     else { return Ok(()) };
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    pub async fn lock_in(
        &self,
        transaction: &mut Transaction<'_, MySql>,
        lease: &Lease,
    ) -> Result<Renewed, StoreError> {
        let lock = sqlx::query(self.server.statements.lock_in())
            .bind(lease.slot.as_bytes().to_vec())
            .bind(lease.token.as_bytes().to_vec());
        let locked = lock.fetch_optional(&mut **transaction).await;
        match locked.map_err(Trouble::from)? {
            Some(_) => Ok(Renewed::Kept),
            None => Ok(Renewed::Lost),
        }
    }

    /// Stores the answer inside a transaction: it is there once that commits, together with all
    /// else the transaction did, or not at all. [`Completed::Stored`] means "if it commits"; on any
    /// other answer roll back, for somebody else's result stands or nothing does.
    ///
    /// The engine's own completion then finds the record finished with the same token. If the fate
    /// of the commit is unknown, read the record: it says which.
    ///
    /// A deadlock, or a lock that is not to be had in time, is an error here: only the caller can
    /// run its transaction again.
    pub async fn complete_in(
        &self,
        transaction: &mut Transaction<'_, MySql>,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        let statements = &self.server.statements;
        let clock = sqlx::query_scalar(statements.clock());
        let read = sqlx::query(statements.read_locked()).bind(lease.slot.as_bytes().to_vec());
        let row = read.fetch_optional(&mut **transaction).await;
        let row = row.map_err(Trouble::from)?;
        // Read once the row is locked: no later decision sees an earlier time.
        let now: i64 = clock
            .fetch_one(&mut **transaction)
            .await
            .map_err(Trouble::from)?;
        let now = from_millis(now);
        let mut held = match row.as_ref().and_then(Row::read) {
            Some((_, row)) => row.held.map_err(|why| unreadable(&why))?,
            None => Held::default(),
        };
        let (completed, change) = held.entry.complete(lease, response, whole(keep_for), now);
        if change != Change::Nothing
            && let Some(cells) = Cells::of(&held, now)
        {
            let write = rows::overwrite(statements, &lease.slot, cells);
            let written = write.execute(&mut **transaction).await;
            written.map_err(Trouble::from)?;
        }
        Ok(completed)
    }
}
