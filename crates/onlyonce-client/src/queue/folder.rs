//! The queue's folder: one owner, one database, and nothing acknowledged that is not on disk.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, SqliteConnection};

use super::error::QueueError;

#[cfg(test)]
mod tests;

const OWNER: &str = "owner";
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

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");

/// A folder that is ours as long as this lives.
pub(super) struct Folder {
    path: PathBuf,
    _owner: File,
    /// The files that the queue is in, as they were when it was opened.
    files: OnceLock<Vec<(PathBuf, FileId)>>,
}

impl Folder {
    pub(super) async fn open(path: &Path) -> Result<Self, QueueError> {
        let unusable = |source| QueueError::Folder {
            folder: path.to_owned(),
            source,
        };
        make_private(path).map_err(unusable)?;
        let owner = private_file(&path.join(OWNER)).map_err(unusable)?;
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
            files: OnceLock::new(),
        })
    }

    /// The database: what is committed is on disk.
    pub(super) async fn connect(&self) -> Result<SqliteConnection, QueueError> {
        let file = self.path.join(DATABASE);
        // SQLite gives its other files the permissions of this one.
        private_file(&file).map_err(|source| self.unusable(source))?;
        for name in [OWNER, DATABASE, LOG, INDEX] {
            tighten(&self.path.join(name)).map_err(|source| self.unusable(source))?;
        }
        let mut connection = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
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
        let files = [OWNER, DATABASE, LOG].map(|name| self.path.join(name));
        let ids = files.into_iter().map(|file| {
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

/// Which file it is, whatever its name.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileId {
    #[cfg(unix)]
    device: u64,
    #[cfg(unix)]
    inode: u64,
}

#[cfg(unix)]
impl FileId {
    fn of(file: &Path) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt as _;

        let found = fs::metadata(file)?;
        Ok(Self {
            device: found.dev(),
            inode: found.ino(),
        })
    }
}

#[cfg(not(unix))]
impl FileId {
    /// Here an open file can be neither deleted nor replaced.
    fn of(file: &Path) -> io::Result<Self> {
        fs::metadata(file).map(|_| Self {})
    }
}

/// Operations and their keys are readable by their owner only.
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

/// Opens a file for writing; a new one is readable by its owner only, from its first byte.
fn private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    owner_only(&mut options);
    options.open(path)
}

#[cfg(unix)]
fn owner_only(options: &mut OpenOptions) {
    use std::os::unix::fs::OpenOptionsExt as _;

    options.mode(0o600);
}

#[cfg(not(unix))]
fn owner_only(_options: &mut OpenOptions) {}

/// Takes from others what they may do with a file that an earlier version made.
#[cfg(unix)]
fn tighten(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;

    let found = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if found.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    tracing::warn!(
        file = %path.display(),
        "a file of the offline queue could be used by others: now only by its owner"
    );
    Ok(())
}

#[cfg(not(unix))]
fn tighten(_path: &Path) -> io::Result<()> {
    Ok(())
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
