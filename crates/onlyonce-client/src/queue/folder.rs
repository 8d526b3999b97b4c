//! The queue's folder: one owner, one database, and nothing acknowledged that is not on disk.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, SqliteConnection};

use super::error::QueueError;

#[cfg(test)]
mod tests;

const OWNER: &str = "owner";
const DATABASE: &str = "queue.db";
/// A child that its owner is just starting holds the lock for a moment more, until it becomes
/// another program.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");

/// A folder that is ours as long as this lives.
pub(super) struct Folder {
    path: PathBuf,
    _owner: File,
}

impl Folder {
    pub(super) async fn open(path: &Path) -> Result<Self, QueueError> {
        let unusable = |source| QueueError::Folder {
            folder: path.to_owned(),
            source,
        };
        make_private(path).map_err(unusable)?;
        let owner = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path.join(OWNER))
            .map_err(unusable)?;
        let mut tries = 0;
        loop {
            match owner.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(unusable(error)),
                Err(TryLockError::WouldBlock) if tries < LOCK_TRIES => {
                    tries += 1;
                    tokio::time::sleep(LOCK_PAUSE).await;
                }
                Err(TryLockError::WouldBlock) => {
                    let folder = path.to_owned();
                    return Err(QueueError::InUse { folder });
                }
            }
        }
        Ok(Self {
            path: path.to_owned(),
            _owner: owner,
        })
    }

    /// The database: what is committed is on disk.
    pub(super) async fn connect(&self) -> Result<SqliteConnection, QueueError> {
        let mut connection = SqliteConnectOptions::new()
            .filename(self.path.join(DATABASE))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .disable_statement_logging()
            .connect()
            .await?;
        MIGRATIONS.run(&mut connection).await?;
        // A new file is there for good only once its name is.
        sync(&self.path).map_err(|source| QueueError::Folder {
            folder: self.path.clone(),
            source,
        })?;
        Ok(connection)
    }
}

/// Operations and their keys are nobody else's business.
#[cfg(unix)]
fn make_private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;

    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

#[cfg(not(unix))]
fn make_private(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

#[cfg(unix)]
fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()?;
    let above = path.canonicalize()?;
    above
        .parent()
        .map_or(Ok(()), |above| File::open(above)?.sync_all())
}

#[cfg(not(unix))]
fn sync(_path: &Path) -> io::Result<()> {
    Ok(())
}
