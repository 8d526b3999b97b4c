//! The audit trail: who did what under which key, one JSON object a line, appended and never
//! changed but by a purge (D0 §9.4). Requests hand their entries to a thread and do not wait.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use onlyonce_core::{About, Clock, Entropy, Event, OsEntropy, Subscriber, SystemClock};

use thiserror::Error;

use self::entry::Entry;
use self::trail::Open;

mod entry;
mod trail;

pub use self::trail::{Purged, Trail, TrailError};

/// Entries that may wait to be written; what comes on top is lost, and the trail says how much.
const WAITING_MAX: usize = 65_536;
/// How many are written at once.
const BATCH_ENTRIES: usize = 1024;
/// How often an idle trail looks for files past their time.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// Where the trail is, and how long it is kept.
#[derive(Clone, Debug)]
pub struct AuditSettings {
    /// The newest file. Older ones are put beside it, with a number at the end of their names.
    pub path: PathBuf,
    /// How long entries are kept.
    pub keep: Duration,
    /// A file of this many bytes is put aside, as is one of an earlier day.
    pub file_bytes_max: u64,
}

/// Why an audit trail cannot be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AuditError {
    /// There is no folder for it.
    #[error("{}: its folder cannot be made: {source}", path.display())]
    Folder {
        /// The trail.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Its files cannot be used.
    #[error(transparent)]
    Trail(#[from] TrailError),
    /// The system gives no thread.
    #[error("no thread can be started for the audit trail: {0}")]
    Thread(io::Error),
}

/// An open audit trail.
pub(crate) struct Audit {
    path: PathBuf,
    clock: SystemClock,
    entries: Mutex<Option<SyncSender<Entry>>>,
    lost: Arc<AtomicU64>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Audit {
    pub(crate) fn open(settings: &AuditSettings) -> Result<Self, AuditError> {
        let path = &settings.path;
        if let Some(folder) = path.parent().filter(|it| *it != Path::new("")) {
            fs::create_dir_all(folder).map_err(|source| AuditError::Folder {
                path: path.clone(),
                source,
            })?;
        }
        let open = Trail::at(path).open(settings.keep, settings.file_bytes_max)?;
        let (entries, waiting) = sync_channel(WAITING_MAX);
        let lost = Arc::<AtomicU64>::default();
        let writer = Writer {
            open,
            waiting,
            lost: Arc::clone(&lost),
            run: random_run(),
            number: 0,
        };
        let writer = std::thread::Builder::new()
            .name("onlyonce-audit".to_owned())
            .spawn(move || writer.run())
            .map_err(AuditError::Thread)?;
        Ok(Self {
            path: path.clone(),
            clock: SystemClock::new(),
            entries: Mutex::new(Some(entries)),
            lost,
            writer: Mutex::new(Some(writer)),
        })
    }

    /// Its newest file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns when everything is written.
    pub(crate) async fn close(&self) {
        let entries = self
            .entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let writer = self
            .writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(entries);
        if let Some(writer) = writer {
            let joined = tokio::task::spawn_blocking(move || writer.join());
            if !matches!(joined.await, Ok(Ok(()))) {
                tracing::error!(target: "onlyonce", "the audit trail was not closed");
            }
        }
    }
}

impl Subscriber for Audit {
    fn wants_replay_numbers(&self) -> bool {
        true
    }

    fn on_event(&self, about: &About<'_>, event: &Event) {
        let Some(entry) = Entry::of(about, event, || self.clock.wall()) else {
            return;
        };
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let is_sent = entries
            .as_ref()
            .is_some_and(|entries| entries.try_send(entry).is_ok());
        if !is_sent {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What tells the entries of one run from those of others.
fn random_run() -> u64 {
    let mut random = [0; 8];
    OsEntropy::new().fill(&mut random);
    u64::from_le_bytes(random)
}

/// The thread that writes.
struct Writer {
    open: Open,
    waiting: Receiver<Entry>,
    lost: Arc<AtomicU64>,
    /// Names this run in the ids of its entries, with `number`.
    run: u64,
    number: u64,
}

impl Writer {
    fn run(mut self) {
        loop {
            let first = match self.waiting.recv_timeout(LOOK_EVERY) {
                Ok(entry) => Some(entry),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut lines = String::new();
            for entry in first
                .into_iter()
                .chain(self.waiting.try_iter())
                .take(BATCH_ENTRIES)
            {
                self.number += 1;
                entry.write(self.run, self.number, &mut lines);
            }
            let lost = self.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                entry::write_gap(lost, &mut lines);
            }
            if let Err(error) = self.open.append(lines.as_bytes()) {
                // What is not written now is missing: the next line that can be written says so.
                let entries = lines.lines().count() as u64;
                self.lost.fetch_add(lost + entries, Ordering::Relaxed);
                tracing::error!(target: "onlyonce", %error, entries, "audit entries were not written");
            }
        }
    }
}
