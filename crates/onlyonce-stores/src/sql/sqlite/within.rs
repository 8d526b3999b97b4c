//! Finishing a record inside a transaction of the caller: its rows and the record are committed
//! together, or not at all.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::entry::Change;
use onlyonce_core::{Completed, Lease, Renewed, Response, StoreError};
use sqlx::{Sqlite, Transaction};

use super::statements::NOW;
use super::{SqliteStore, rows, trouble};
use crate::sql::shared::{Held, whole};

impl SqliteStore {
    /// Locks the record of `lease` for the rest of the transaction `tx`, which must be on the same
    /// database file; make it the first statement. [`Renewed::Lost`] says that the slot is no longer
    /// ours: roll back.
    ///
    /// In SQLite that lock is one on the whole file: until `tx` ends nobody else writes anything,
    /// and renewals of other leases wait. Keep it short.
    pub async fn lock_in(
        &self,
        tx: &mut Transaction<'_, Sqlite>,
        lease: &Lease,
    ) -> Result<Renewed, StoreError> {
        let lock = self.statements.rare(&format!(
            "UPDATE {{table}} SET token = token \
             WHERE slot = ? AND token = ? AND state = 'P' AND expires_at > {NOW}"
        ));
        let lock = sqlx::query(lock)
            .bind(lease.slot.as_bytes().to_vec())
            .bind(lease.token.as_bytes().to_vec());
        let locked = lock.execute(&mut **tx).await.map_err(trouble::failed)?;
        match locked.rows_affected() {
            0 => Ok(Renewed::Lost),
            _ => Ok(Renewed::Kept),
        }
    }

    /// [`complete`](onlyonce_core::Store::complete) inside the transaction `tx`, which must be on
    /// the same database file: the answer is stored when `tx` is committed, together with what
    /// else it wrote. Roll it back unless this says [`Completed::Stored`].
    ///
    /// How durable that is, is up to the caller's connection: `synchronous` should be `FULL` there
    /// too. Begin with [`lock_in`](Self::lock_in), so that no other transaction can come between.
    pub async fn complete_in(
        &self,
        tx: &mut Transaction<'_, Sqlite>,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        // The write lock first: what is read under it stays true.
        self.lock_in(tx, lease).await?;
        let now = rows::now(tx).await.map_err(trouble::failed)?;
        let slots = [lease.slot];
        let mut found = rows::read(tx, &self.statements, &slots)
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
                rows::write(tx, &self.statements, &lease.slot, &held, now)
                    .await
                    .map_err(trouble::failed)?;
            }
        }
        Ok(completed)
    }
}
