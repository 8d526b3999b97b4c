//! Finishing a record inside a transaction of its holder, together with rows of its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::{Completed, Lease, Renewed, Response, StoreError};
use sqlx::postgres::{PgRow, Postgres};
use sqlx::{AssertSqlSafe, Transaction};

use super::PostgresStore;
use super::arg::{self, Arg};
use super::batches::Verb;
use super::statements::Statement;
use super::trouble::{Then, Trouble};
use super::verbs::Completing;

/// How often a record is looked at that changes while it is looked at.
const LOOKS_MAX: usize = 100;

impl PostgresStore {
    /// Takes the claim into a transaction: let this be its first statement. Until the transaction
    /// ends the claim counts as alive, whatever its lease says, and nobody takes it over; if the
    /// answer is [`Renewed::Lost`], roll back.
    ///
    /// ```no_run
    /// # use onlyonce_core::{Completed, Lease, Renewed, Response};
    /// # use onlyonce_sql::PostgresStore;
    /// # use std::sync::Arc;
    /// # async fn pay(
    /// #     store: &PostgresStore, pool: &sqlx::PgPool, lease: &Lease, response: &Arc<Response>,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = pool.begin().await?;
    /// let Renewed::Kept = store.lock_in(&mut tx, lease).await? else { return Ok(()) };
    /// sqlx::query("INSERT INTO payments DEFAULT VALUES").execute(&mut *tx).await?;
    /// let Completed::Stored(_) = store.complete_in(&mut tx, lease, response, lease.keep_for).await?
    ///     else { return Ok(()) };
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    pub async fn lock_in(
        &self,
        transaction: &mut Transaction<'_, Postgres>,
        lease: &Lease,
    ) -> Result<Renewed, StoreError> {
        let args = [
            Arg::Bytes(Bytes::copy_from_slice(lease.slot.as_bytes())),
            Arg::Bytes(Bytes::copy_from_slice(lease.token.as_bytes())),
        ];
        let found = self
            .ask_inside(transaction, &self.server.statements.lock_in, &args)
            .await?;
        Ok(if found.is_empty() {
            Renewed::Lost
        } else {
            Renewed::Kept
        })
    }

    /// Stores the answer inside a transaction: it is there once that commits, together with all
    /// else the transaction did, or not at all. [`Completed::Stored`] means "if it commits"; on any
    /// other answer roll back, for somebody else's result stands or nothing does.
    ///
    /// The engine's own completion then finds the record finished with the same token. Who waits in
    /// other processes is told by that, and not by this transaction: one that notifies would hold
    /// up every other. If the fate of the commit is unknown, read the record: it says which.
    ///
    /// A serialization failure or a deadlock is an error here: only the caller can run its
    /// transaction again.
    pub async fn complete_in(
        &self,
        transaction: &mut Transaction<'_, Postgres>,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        let completing = Completing::new(lease, response, keep_for);
        let args = Completing::args(&[&completing], false);
        for _ in 0..LOOKS_MAX {
            let rows = self
                .ask_inside(transaction, &self.server.statements.complete_in, &args)
                .await?;
            // A row that changed while the statement waited for it is in no answer.
            if let Some(row) = rows.first() {
                return Ok(completing.read(row)?.0);
            }
        }
        Err(Trouble::unavailable(Then::Tell, "the record does not stand still").into())
    }

    async fn ask_inside(
        &self,
        transaction: &mut Transaction<'_, Postgres>,
        what: &Statement,
        args: &[Arg],
    ) -> Result<Vec<PgRow>, StoreError> {
        let query = sqlx::query(AssertSqlSafe(Arc::clone(&what.sql)))
            .persistent(!self.server.lines.terms().pooled);
        let rows = arg::bind(query, args).fetch_all(&mut **transaction).await;
        Ok(rows.map_err(Trouble::from)?)
    }
}
