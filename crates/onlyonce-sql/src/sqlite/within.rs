//! Finishing a record inside a transaction of the caller: its rows and the record are committed
//! together, or not at all.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::entry::Change;
use onlyonce_core::{Completed, Lease, Renewed, Response, StoreError};
use sqlx::{Sqlite, Transaction};

use super::{SqliteStore, rows, trouble};
use crate::steps::{Held, to_millis, whole};

impl SqliteStore {
    /// Takes the claim into a transaction on the same database file: let this be its first
    /// statement. Until the transaction ends nobody takes the claim over; if the answer is
    /// [`Renewed::Lost`], roll back.
    ///
    /// In SQLite that locks the whole file: until the transaction ends nobody else writes anything,
    /// and claims, completions and renewals of all others wait, for `timeout_ms` at most. Keep it
    /// much shorter than a lease: a lease that lapses meanwhile can be taken over right after.
    ///
    /// ```no_run
    /// # use onlyonce_core::{Completed, Lease, Renewed, Response};
    /// # use onlyonce_sql::SqliteStore;
    /// # use std::sync::Arc;
    /// # async fn pay(
    /// #     store: &SqliteStore, lease: &Lease, response: &Arc<Response>,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = store.pool().begin().await?;
    /// let Renewed::Kept = store.lock_in(&mut tx, lease).await? else { return Ok(()) };
    /// sqlx::query("INSERT INTO payments DEFAULT VALUES").execute(&mut *tx).await?;
    /// let Completed::Stored(_) = store.complete_in(&mut tx, lease, response, lease.keep_for).await?
    ///     else { return Ok(()) };
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    pub async fn lock_in(
        &self,
        transaction: &mut Transaction<'_, Sqlite>,
        lease: &Lease,
    ) -> Result<Renewed, StoreError> {
        let lock = self.statements.rare(
            "UPDATE {table} SET token = token \
             WHERE slot = ? AND token = ? AND state = 'P' AND expires_at > ?",
        );
        let lock = sqlx::query(lock)
            .bind(lease.slot.as_bytes().to_vec())
            .bind(lease.token.as_bytes().to_vec())
            .bind(to_millis(self.writer.time.now()));
        let locked = lock
            .execute(&mut **transaction)
            .await
            .map_err(trouble::failed)?;
        match locked.rows_affected() {
            0 => Ok(Renewed::Lost),
            _ => Ok(Renewed::Kept),
        }
    }

    /// Stores the answer inside a transaction: it is there once that commits, together with all
    /// else the transaction did, or not at all. [`Completed::Stored`] means "if it commits"; on any
    /// other answer roll back, for somebody else's result stands or nothing does.
    ///
    /// The engine's own completion then finds the record finished with the same token. How durable
    /// the commit is, is up to the caller's connection: those of [`pool`](Self::pool) have
    /// `synchronous = FULL` if the store was opened by its URL.
    pub async fn complete_in(
        &self,
        transaction: &mut Transaction<'_, Sqlite>,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        // The write lock first: what is read under it stays true.
        self.lock_in(transaction, lease).await?;
        let now = self.writer.time.now();
        let slots = [lease.slot];
        let mut found = rows::read(transaction, &self.statements, &slots)
            .await
            .map_err(trouble::failed)?;
        let mut held = match found.remove(&lease.slot) {
            Some(held) => held.map_err(|why| trouble::unreadable(&why))?,
            None => Held::default(),
        };
        let (completed, change) = held.entry.complete(lease, response, whole(keep_for), now);
        match change {
            Change::Nothing => {}
            Change::Written | Change::Settled => {
                rows::write(transaction, &self.statements, &lease.slot, &held, now)
                    .await
                    .map_err(trouble::failed)?;
            }
        }
        Ok(completed)
    }
}
