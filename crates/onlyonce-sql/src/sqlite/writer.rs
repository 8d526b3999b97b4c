//! The one connection of this process that writes. Everything that waits for it goes into one
//! transaction, so that one fsync carries many requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::entry::Change;
use onlyonce_core::operate::Ended;
use onlyonce_core::{Slot, StoreError};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, Sqlite, SqliteConnection, Transaction};
use tokio::sync::{Mutex, MutexGuard};

use super::connect::Ready;
use super::place::Place;
use super::rows::Rows;
use super::statements::Statements;
use super::time::Time;
use super::{rows, trouble};
use crate::shared::{Replaced, Waiters};
use crate::steps::Held;
use onlyonce_storekit::batch::{Asked, Gatherer};

/// A step on one slot's row. It may be taken again, on another state of the row, if the
/// transaction it was part of failed.
pub(super) struct Step {
    pub(super) slot: Slot,
    pub(super) take: Box<Take>,
}

type Take = dyn Fn(&mut Held, Duration) -> Change + Send + Sync;

pub(super) type Taken = Result<(), StoreError>;

/// The writing side of a store.
pub(super) struct Writer {
    options: SqliteConnectOptions,
    /// Nothing after an error that may have spoiled it: the next user connects anew.
    connection: Mutex<Option<SqliteConnection>>,
    pub(super) place: Place,
    pub(super) time: Time,
    statements: Arc<Statements>,
    waiters: Arc<Waiters>,
    archive: bool,
    pub(super) replaced: Replaced,
}

impl Writer {
    pub(super) fn new(
        options: SqliteConnectOptions,
        ready: Ready,
        statements: Arc<Statements>,
        waiters: Arc<Waiters>,
        archive: bool,
    ) -> Self {
        Self {
            options,
            connection: Mutex::new(None),
            place: ready.place,
            time: ready.time,
            statements,
            waiters,
            archive,
            replaced: Replaced::default(),
        }
    }

    /// Gathers steps for this writer.
    pub(super) fn gather(self: &Arc<Self>, batch_max: usize) -> Gatherer<Step, Taken> {
        let writer = Arc::clone(self);
        Gatherer::spawn(1, batch_max, move |batch| {
            let writer = Arc::clone(&writer);
            async move { writer.answer(batch).await }
        })
    }

    /// The connection, for a transaction of one's own.
    pub(super) async fn connection(&self) -> Result<Connected<'_>, sqlx::Error> {
        let mut guard = self.connection.lock().await;
        if guard.is_none() {
            *guard = Some(self.options.connect().await?);
        }
        Ok(Connected(guard))
    }

    async fn answer(&self, batch: Vec<Asked<Step, Taken>>) {
        let steps: Vec<_> = batch.iter().map(|asked| &asked.question).collect();
        match self.run(&steps).await {
            Ok(taken) => {
                for (asked, taken) in batch.into_iter().zip(taken) {
                    asked.answer(taken);
                }
            }
            // One step's trouble must not be its neighbours': each for itself. A lock that was not
            // to be had is everybody's.
            Err(error) if batch.len() > 1 && !trouble::is_busy(&error) => {
                for asked in batch {
                    let taken = self.run(&[&asked.question]).await;
                    asked.answer(taken.map_err(trouble::failed).and_then(only));
                }
            }
            Err(error) => {
                let error = trouble::failed(error);
                for asked in batch {
                    asked.answer(Err(trouble::again(&error)));
                }
            }
        }
    }

    /// Takes all steps in one transaction. A row that cannot be read fails its own steps alone.
    async fn run(&self, steps: &[&Step]) -> Result<Vec<Taken>, sqlx::Error> {
        let mut connection = self.connection().await?;
        let run = self.run_on(connection.get(), steps).await;
        if let Err(error) = &run {
            connection.spoiled_by(error);
        }
        run
    }

    async fn run_on(
        &self,
        connection: &mut SqliteConnection,
        steps: &[&Step],
    ) -> Result<Vec<Taken>, sqlx::Error> {
        let mut transaction = begin(connection).await?;
        // Read under the lock: no later decision sees an earlier time.
        let now = self.time.now();
        self.time.keep(&mut transaction, &self.statements).await?;
        let slots: BTreeSet<_> = steps.iter().map(|step| step.slot).collect();
        let slots: Vec<_> = slots.into_iter().collect();
        let mut touched =
            Touched::new(rows::read(&mut transaction, &self.statements, &slots).await?);
        let taken = steps.iter().map(|step| touched.take(step, now)).collect();
        for (slot, row) in &touched.written {
            if self.archive && row.replaced {
                rows::archive(&mut transaction, &self.statements, slot, now).await?;
            }
            if let Some(Ok(held)) = touched.rows.get(slot) {
                rows::write(&mut transaction, &self.statements, slot, held, now).await?;
            }
        }
        transaction.commit().await?;
        self.place.check()?;
        for (slot, row) in touched.written {
            if row.settled {
                self.waiters.wake(&slot);
            }
            if let Some(ended) = row.ended {
                self.replaced.add(ended);
            }
        }
        Ok(taken)
    }
}

/// The rows of a transaction, and what its steps did to them.
struct Touched {
    rows: Rows,
    written: BTreeMap<Slot, Written>,
}

#[derive(Default)]
struct Written {
    /// Who waits for it must be woken.
    settled: bool,
    /// It held a record that had expired.
    replaced: bool,
    /// What is told of that record.
    ended: Option<Ended>,
}

impl Touched {
    fn new(rows: Rows) -> Self {
        let written = BTreeMap::new();
        Self { rows, written }
    }

    fn take(&mut self, step: &Step, now: Duration) -> Taken {
        let row = self.rows.entry(step.slot).or_insert(Ok(Held::default()));
        let row = row.as_mut().map_err(|why| trouble::unreadable(why))?;
        let record = row.entry.kept.as_ref();
        let replaced = record.is_some_and(|record| record.is_expired(now));
        let ended = record.and_then(|record| Ended::of_kept(step.slot, record, now));
        let change = (step.take)(row, now);
        if change != Change::Nothing {
            let written = self.written.entry(step.slot).or_default();
            written.settled |= change == Change::Settled;
            written.replaced |= replaced;
            written.ended = written.ended.take().or(ended);
        }
        Ok(())
    }
}

/// What became of a batch of one.
fn only(taken: Vec<Taken>) -> Taken {
    taken.into_iter().next().unwrap_or(Ok(()))
}

/// Begins a transaction that writes: it has the file's lock from the start, so it never has to be
/// taken back because another was faster.
pub(super) async fn begin(
    connection: &mut SqliteConnection,
) -> Result<Transaction<'_, Sqlite>, sqlx::Error> {
    connection.begin_with("BEGIN IMMEDIATE").await
}

/// The writing connection, for one user at a time.
pub(super) struct Connected<'a>(MutexGuard<'a, Option<SqliteConnection>>);

impl Connected<'_> {
    pub(super) fn get(&mut self) -> &mut SqliteConnection {
        self.0.as_mut().expect("connected when it was given out")
    }

    /// Takes note of an error: unless it was harmless, the next user connects anew.
    pub(super) fn spoiled_by(&mut self, error: &sqlx::Error) {
        if !trouble::is_harmless(error) {
            *self.0 = None;
        }
    }
}
