//! Records in a SQLite database, for several processes on one machine. One connection a process
//! writes, everything that waits for it in one transaction; the decisions are the reference's own,
//! taken under the file's write lock on the store's own clock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::entry::Change;
use onlyonce_core::record::{State, Token};
use onlyonce_core::{
    Claim, Claimed, Completed, Lease, Operate, Release, Released, Renewed, Response, Slot, Store,
    StoreError, StoreErrorKind, async_trait,
};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

use self::statements::Statements;
use self::watch::Lookout;
use self::writer::{Step, Taken, Writer};
use super::shared::{SqlOptions, Table, Waiters, lock};
use super::steps::{Held, whole};
use onlyonce_storekit::OpenError;
use onlyonce_storekit::batch::Gatherer;
use onlyonce_storekit::private;

mod connect;
mod operate;
mod place;
mod rows;
mod statements;
mod time;
mod trouble;
mod watch;
mod within;
mod writer;

/// Records in a SQLite database: `sqlite:PATH`.
///
/// Several processes on one machine may use one file; it must be on a local disk. Time is the
/// machine's: within one boot nobody can set it, and only across a reboot the date counts.
///
/// Options of the URL, besides those of [`SqlOptions`]: `mode=rw` does not make a file that is not
/// there, `vfs` names a VFS of SQLite. `connections` are those that read; there is one that writes.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let folder = tempfile::tempdir().unwrap();
/// # std::env::set_current_dir(&folder).unwrap();
/// use onlyonce_sql::SqliteStore;
///
/// let store = SqliteStore::open("sqlite:./onlyonce.db?table=payments").await.unwrap();
/// # drop(store);
/// # }
/// ```
pub struct SqliteStore {
    readers: SqlitePool,
    gathered: Gatherer<Step, Taken>,
    writer: Arc<Writer>,
    statements: Arc<Statements>,
    waiters: Arc<Waiters>,
    lookout: Arc<Lookout>,
    table: Table,
    archive: bool,
}

impl SqliteStore {
    /// Opens the database that `url` names; makes its file and tables where they are not there.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let (options, connect, creates) = connect::parse(url)?;
        let path = connect.get_filename().to_owned();
        if creates {
            // Where this fails SQLite does too, and says why.
            drop(private::make(&path));
        }
        let connect = connect::durable(connect, options.timeout);
        // What is missing later was deleted, and is not to be made again.
        let existing = connect.clone().create_if_missing(false);
        let readers = connect::readers(options.connections, existing);
        let store = Self::new(readers, connect, &options).await?;
        // Only now: a file that turned out to be somebody else's keeps its permissions.
        private::tighten_database(&path).map_err(|error| connect::unusable(&path, &error))?;
        Ok(store)
    }

    /// Uses the database of `pool`, which must be a file; `pool` is used to read. What writes, and
    /// what watches for changes, are connections of the store's own. The file is the caller's, and
    /// keeps the permissions that it has: see [`private::database`].
    pub async fn with_pool(pool: SqlitePool, options: SqlOptions) -> Result<Self, OpenError> {
        let connect = SqliteConnectOptions::clone(&pool.connect_options());
        Self::new(pool, connect::durable(connect, options.timeout), &options).await
    }

    async fn new(
        readers: SqlitePool,
        connect: SqliteConnectOptions,
        options: &SqlOptions,
    ) -> Result<Self, OpenError> {
        let table = options.check()?;
        let statements = Arc::new(Statements::new(table.clone()));
        let ready = connect::prepare(&connect, &statements, &table).await?;
        let connect = connect.create_if_missing(false);
        let waiters = Arc::<Waiters>::default();
        let writer = Arc::new(Writer::new(
            connect.clone(),
            ready,
            Arc::clone(&statements),
            Arc::clone(&waiters),
            options.archive,
        ));
        Ok(Self {
            readers,
            gathered: writer.gather(options.batch_max),
            writer,
            statements,
            lookout: Arc::new(Lookout::new(connect, Arc::clone(&waiters))),
            waiters,
            table,
            archive: options.archive,
        })
    }

    /// The pool that this store reads by, for transactions of the caller.
    pub fn pool(&self) -> &SqlitePool {
        &self.readers
    }

    /// Takes one atomic step on the slot's row.
    async fn step<T: Send + 'static>(
        &self,
        slot: Slot,
        step: impl Fn(&mut Held, Duration) -> (T, Change) + Send + Sync + 'static,
    ) -> Result<T, StoreError> {
        let told = Arc::new(Mutex::new(None));
        let telling = Arc::clone(&told);
        let take = Box::new(move |held: &mut Held, now| {
            let (answer, change) = step(held, now);
            *lock(&telling) = Some(answer);
            change
        });
        let ended = || StoreError::new(trouble::NAME, StoreErrorKind::Unavailable);
        self.gathered
            .ask(Step { slot, take })
            .await
            .ok_or_else(ended)??;
        lock(&told).take().ok_or_else(ended)
    }

    /// The slot's row as it was last committed, and the time it was read at.
    async fn look(&self, slot: &Slot) -> Result<Option<(Held, Duration)>, StoreError> {
        let time = &self.writer.time;
        let found = rows::look(&self.readers, &self.statements, time, slot).await;
        match found.map_err(trouble::failed)? {
            None => Ok(None),
            Some((Ok(held), now)) => Ok(Some((held, now))),
            Some((Err(why), _)) => Err(trouble::unreadable(&why)),
        }
    }

    /// Answers a claim that changes nothing without the write lock.
    ///
    /// A claim in vain is a read, and what was last committed when it was read is a legal answer:
    /// that moment is within the call, and a commit that can be seen is durable. So a record that
    /// is forgotten or replaced just after was still there. Only a lapse is left to the writer:
    /// the clock is read just after the row, which may have been renewed in between, and then was
    /// never lapsed.
    async fn taken(&self, claim: &Claim) -> Result<Option<Claimed>, StoreError> {
        let Some((mut held, now)) = self.look(&claim.slot).await? else {
            return Ok(None);
        };
        match held.claim(claim, now) {
            (Claimed::Taken(record), Change::Nothing) => match record.state {
                State::Pending { .. } if record.is_lapsed() => Ok(None),
                State::Pending { .. } | State::Done(_) | State::Failed(_) | State::Unknown => {
                    Ok(Some(Claimed::Taken(record)))
                }
            },
            (Claimed::Dead, Change::Nothing) => Ok(Some(Claimed::Dead)),
            _ => Ok(None),
        }
    }

    /// What is left of the lease that `seen` holds; nothing if it is over.
    async fn lease_left(&self, slot: &Slot, seen: &Token) -> Result<Option<Duration>, StoreError> {
        let found = self.look(slot).await?;
        Ok(found.and_then(|(held, now)| held.entry.lease_left_of(seen, now)))
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        if let Some(taken) = self.taken(claim).await? {
            return Ok(taken);
        }
        let claim = claim.clone();
        self.step(claim.slot, move |held, now| held.claim(&claim, now))
            .await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        let (lease, lease_for) = (lease.clone(), whole(lease_for));
        self.step(lease.slot, move |held, now| {
            held.entry.renew(&lease, lease_for, now)
        })
        .await
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        let (lease, response) = (lease.clone(), Arc::clone(response));
        let keep_for = whole(keep_for);
        self.step(lease.slot, move |held, now| {
            held.entry.complete(&lease, &response, keep_for, now)
        })
        .await
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        let lease = lease.clone();
        self.step(lease.slot, move |held, now| held.release(&lease, why, now))
            .await
    }

    async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        let watch = self.waiters.watch(slot);
        self.lookout.look();
        let enough = tokio::time::sleep(at_most);
        tokio::pin!(enough);
        loop {
            // Registered before the row is looked at: a change in between is not missed.
            let changed = watch.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let Some(lease_left) = self.lease_left(slot, seen).await? else {
                return Ok(());
            };
            tokio::select! {
                biased;
                () = &mut enough => return Ok(()),
                () = changed => {}
                () = tokio::time::sleep(lease_left) => {}
            }
        }
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }
}
