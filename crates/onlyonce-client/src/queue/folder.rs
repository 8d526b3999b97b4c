//! The queue's folder: one owner or several that share it, one database, one that sends, and nothing
//! acknowledged that is not on disk. Each right is a lock that the system takes back from a dead process.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, SqliteConnection};

use self::files::{FileId, make_private, new_private_file, private_file, sync, tighten};
use super::error::QueueError;

mod files;
#[cfg(test)]
mod tests;

const OWNER: &str = "owner";
/// Locked by the process that sends, where several share the folder.
const SENDER: &str = "sender";
/// Locked while the database is opened, where several share the folder: the first one makes it.
const OPENING: &str = "opening";
const DATABASE: &str = "queue.db";
const LOG: &str = "queue.db-wal";
const INDEX: &str = "queue.db-shm";
/// Keys are random, so a row is a change somewhere in an index: in a large queue, somewhere that the
/// usual 2 MiB of cache do not hold.
const CACHE_KIB_MAX: u32 = 32 * 1024;
/// Pages in the log before they are written where they belong: one that changed often in between is
/// written once.
const LOG_PAGES_MAX: u32 = 4096;
/// A child that its owner is just starting holds the lock for a moment more, until it becomes
/// another program.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(10);
/// How often the lock for opening is tried: a minute long.
const OPENING_TRIES: u32 = 6000;
/// How long a process waits for the database while others write.
const BUSY_MAX: Duration = Duration::from_secs(60);

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");

/// Who may use a folder at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// One queue.
    Alone,
    /// Any number of queues, of any number of processes.
    Shared,
}

/// A folder that is ours as long as this lives.
pub(super) struct Folder {
    path: PathBuf,
    access: Access,
    _owner: File,
    /// Where several share the folder.
    sender: Option<File>,
    /// The files that the queue is in, as they were when it was opened.
    files: OnceLock<Vec<(PathBuf, FileId)>>,
}

impl Folder {
    pub(super) async fn open(path: &Path, access: Access) -> Result<Self, QueueError> {
        let unusable = |source| QueueError::Folder {
            folder: path.to_owned(),
            source,
        };
        make_private(path).map_err(unusable)?;
        let owner = private_file(&path.join(OWNER)).map_err(unusable)?;
        let is_ours = locked(LOCK_TRIES, || match access {
            Access::Alone => owner.try_lock(),
            Access::Shared => owner.try_lock_shared(),
        });
        if !is_ours.await.map_err(unusable)? {
            let folder = path.to_owned();
            return Err(QueueError::InUse { folder });
        }
        let sender = match access {
            Access::Alone => None,
            Access::Shared => Some(private_file(&path.join(SENDER)).map_err(unusable)?),
        };
        Ok(Self {
            path: path.to_owned(),
            access,
            _owner: owner,
            sender,
            files: OnceLock::new(),
        })
    }

    /// Whether other processes may change the queue meanwhile.
    pub(super) fn is_shared(&self) -> bool {
        self.access == Access::Shared
    }

    /// The right to send, as long as the result lives.
    pub(super) async fn lock_sending(&self) -> Result<Sending<'_>, QueueError> {
        if let Some(sender) = &self.sender {
            let is_ours = locked(LOCK_TRIES, || sender.try_lock());
            if !is_ours.await.map_err(|source| self.unusable(source))? {
                let folder = self.path.clone();
                return Err(QueueError::Sending { folder });
            }
        }
        Ok(Sending(self.sender.as_ref()))
    }

    /// The database: what is committed is on disk.
    pub(super) async fn connect(&self) -> Result<SqliteConnection, QueueError> {
        let unusable = |source| self.unusable(source);
        if self.access == Access::Alone {
            return self.connect_now().await;
        }
        let opening = private_file(&self.path.join(OPENING)).map_err(unusable)?;
        let is_ours = locked(OPENING_TRIES, || opening.try_lock());
        if !is_ours.await.map_err(unusable)? {
            let folder = self.path.clone();
            return Err(QueueError::InUse { folder });
        }
        self.connect_now().await
    }

    async fn connect_now(&self) -> Result<SqliteConnection, QueueError> {
        let file = self.path.join(DATABASE);
        // SQLite gives its other files the permissions of this one.
        new_private_file(&file).map_err(|source| self.unusable(source))?;
        for name in [OWNER, SENDER, OPENING, DATABASE, LOG, INDEX] {
            tighten(&self.path.join(name)).map_err(|source| self.unusable(source))?;
        }
        let mut connection = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY_MAX)
            // What is done is not left lying in the file, where a credential may be in it.
            .pragma("secure_delete", if self.is_shared() { "ON" } else { "OFF" })
            .pragma("cache_size", format!("-{CACHE_KIB_MAX}"))
            .pragma("wal_autocheckpoint", LOG_PAGES_MAX.to_string())
            .disable_statement_logging()
            .connect()
            .await?;
        MIGRATIONS.run(&mut connection).await?;
        // A new file is there for good only once its name is.
        sync(&self.path).map_err(|source| self.unusable(source))?;
        self.note_files().map_err(|source| self.unusable(source))?;
        Ok(connection)
    }

    /// Fails once a file of the queue was deleted, moved or replaced: what is written after that is
    /// in a file that cannot be found again.
    pub(super) fn check(&self) -> Result<(), QueueError> {
        for (file, id) in self.files.get().into_iter().flatten() {
            let found = FileId::of(file);
            if !matches!(found, Ok(found) if found == *id) {
                return Err(QueueError::Replaced { file: file.clone() });
            }
        }
        Ok(())
    }

    fn note_files(&self) -> io::Result<()> {
        let names = [OWNER, DATABASE, LOG].into_iter();
        let names = names.chain(self.is_shared().then_some(SENDER));
        let files = names.map(|name| self.path.join(name));
        let ids = files.map(|file| {
            let id = FileId::of(&file)?;
            Ok((file, id))
        });
        let files = ids.collect::<io::Result<_>>()?;
        self.files.get_or_init(|| files);
        Ok(())
    }

    fn unusable(&self, source: io::Error) -> QueueError {
        let folder = self.path.clone();
        QueueError::Folder { folder, source }
    }
}

/// The right to send.
pub(super) struct Sending<'f>(Option<&'f File>);

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if let Some(sender) = self.0 {
            // The end of the process gives it up in any case.
            drop(sender.unlock());
        }
    }
}

/// Tries to lock something so often; returns whether it is locked now.
async fn locked(
    tries_max: u32,
    try_lock: impl Fn() -> Result<(), TryLockError>,
) -> io::Result<bool> {
    let mut tries = 0;
    loop {
        match try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if tries < tries_max => {
                tries += 1;
                tokio::time::sleep(LOCK_PAUSE).await;
            }
            Err(TryLockError::WouldBlock) => return Ok(false),
        }
    }
}
