//! Records in a folder: durable, crash-safe, one process, no server. One thread writes everything
//! that waits with one fsync; what is stored is read without it, and a lone claim is written without it
//! too. Expired records leave the disk by themselves.
//!
//! The store is a log. A record is appended, once when it is claimed and once when it is finished,
//! and an index in memory says where each slot's newest frame is: 16 bytes a record. The log is
//! cut into segments that are dropped oldest first, so that what a frame replaced can never come
//! back after it. An ordinary record dies with its segment and is never copied.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use onlyonce_core::entry::{Change, ReleasedTokens};
use onlyonce_core::{
    Claim, Claimed, Clock, Completed, Lease, Operate, Release, Released, Renewed, Response, Slot,
    Store, StoreError, SystemClock, Token, async_trait,
};
use tokio::sync::Notify;

use self::agreed::Agreed;
use self::claims::Claims;
use self::disk::{Disk, Machine};
use self::folder::Folder;
use self::frame::PAYLOAD_BYTES_MAX;
use self::log::Log;
use self::manifest::{Contents, Manifest};
use self::missed::Missed;
use self::shared::Shared;
use self::sweeper::{Nudge, Sweeper};
use self::writer::{Answer, Answered, Question, Writer};
pub use onlyonce_storekit::OpenError;
use onlyonce_storekit::batch::Gatherer;
use onlyonce_storekit::moment::{Boot, BootClock, MachineBoot, StoreTime};

mod agreed;
mod at_once;
mod claims;
mod disk;
mod folder;
mod frame;
mod index;
mod listing;
mod log;
mod manifest;
mod missed;
mod missing;
mod operate;
mod owner;
mod recent;
mod recover;
mod scan;
mod segment;
mod shared;
mod staged;
mod sweeper;
mod tally;
#[cfg(test)]
mod tests;
mod writer;

const NAME: &str = "file";
const SEGMENT_BYTES: u64 = 64 << 20;
const SEGMENT_BYTES_MIN: u64 = 64 << 10;

/// Records in a folder that one process uses at a time.
///
/// ```
/// use onlyonce_file::FileStore;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path();
/// let store = FileStore::open(path).await.unwrap();
/// # drop(store);
/// # }
/// ```
pub struct FileStore {
    shared: Arc<Shared>,
    /// There until the store is dropped.
    asker: Option<Arc<Gatherer<Question, Answered>>>,
    writer: Arc<Mutex<Writer>>,
    sweeper: Sender<Nudge>,
    is_stopped: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// How a [`FileStore`] is to be opened.
pub struct FileStoreBuilder {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    boot: Arc<dyn BootClock>,
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    bytes_max: u64,
}

impl FileStore {
    /// Opens the store in this folder, which is made if there is none.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder(path).open().await
    }

    /// The same with settings.
    pub fn builder(path: impl AsRef<Path>) -> FileStoreBuilder {
        FileStoreBuilder {
            path: path.as_ref().to_owned(),
            clock: Arc::new(SystemClock::new()),
            boot: Arc::new(MachineBoot::new()),
            disk: Arc::new(Machine),
            segment_bytes: SEGMENT_BYTES,
            bytes_max: u64::MAX,
        }
    }

    /// Asks the writer. What was asked is done even if the caller goes away.
    async fn ask(&self, question: Question) -> Answered {
        let asker = self.asker.as_ref().ok_or_else(shared::ended)?;
        asker.ask(question).await.ok_or_else(shared::ended)?
    }

    /// What is left of the lease `seen`, if that is what is in the slot.
    fn lease_left(&self, slot: &Slot, seen: &Token) -> Result<Option<Duration>, StoreError> {
        let entry = self.shared.entry(slot)?;
        Ok(entry.lease_left_of(seen, self.shared.now()))
    }
}

impl FileStoreBuilder {
    /// Another clock. Deadlines outlive the process: it should tell the real date, which is all
    /// that says how much time has passed between two processes.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self.boot = Arc::new(NoBoot);
        self
    }

    /// How large the files are in which the records are kept; 64 MiB otherwise.
    #[must_use]
    pub fn segment_bytes(mut self, segment_bytes: u64) -> Self {
        self.segment_bytes = segment_bytes.max(SEGMENT_BYTES_MIN);
        self
    }

    /// Refuses new keys once the folder has this many bytes.
    #[must_use]
    pub fn bytes_max(mut self, bytes_max: u64) -> Self {
        self.bytes_max = bytes_max;
        self
    }

    /// Opens the store.
    pub async fn open(self) -> Result<FileStore, OpenError> {
        let opening = tokio::task::spawn_blocking(|| self.open_blocking());
        opening
            .await
            .unwrap_or_else(|_| Err(OpenError::Store(shared::ended())))
    }

    fn open_blocking(self) -> Result<FileStore, OpenError> {
        let (shared, agreed) = take(&self.path, self.clock, self.boot)?;
        let (sweeper, nudges) = std::sync::mpsc::channel();
        let (shared, active) = recover::recover(shared, &*self.disk, &sweeper)?;
        let (gatherer, waiting) = Gatherer::new();
        let gatherer = Arc::new(gatherer);
        let is_stopped = Arc::new(AtomicBool::new(false));
        let writer = Arc::new(Mutex::new(Writer {
            shared: Arc::clone(&shared),
            claims: Claims::default(),
            log: Log::new(
                Arc::clone(&shared),
                self.disk,
                sweeper.clone(),
                active,
                self.segment_bytes,
            ),
            agreed,
            released: ReleasedTokens::default(),
            bytes_max: self.bytes_max,
        }));
        let sweeping = Sweeper {
            shared: Arc::clone(&shared),
            writer: Arc::clone(&gatherer),
            segment_bytes: self.segment_bytes,
            is_stopped: Arc::clone(&is_stopped),
            keep_at: Duration::ZERO,
            note_at: shared.now() + sweeper::NOTE_PAUSE,
        };
        let mut store = FileStore {
            shared,
            asker: Some(gatherer),
            writer: Arc::clone(&writer),
            sweeper,
            is_stopped,
            threads: Vec::new(),
        };
        store.start("onlyonce-sweeper", move || sweeping.run(nudges))?;
        store.start("onlyonce-writer", move || {
            writer::run(&writer, waiting);
        })?;
        Ok(store)
    }
}

/// Takes the folder, with all that it must have, and goes on with its time.
fn take(
    path: &Path,
    clock: Arc<dyn Clock>,
    boot: Arc<dyn BootClock>,
) -> Result<(Shared, Agreed), OpenError> {
    let folder = Folder::take(path, clock.wall())?;
    let kept = missing::check(&folder)?;
    let agreed = Agreed::load(&folder.path)?;
    if let Some(kept) = &kept {
        missing::check_agreed(&folder.path, &agreed, kept.agreed)?;
    }
    let (time, jump) = StoreTime::resume(clock, boot, kept.as_ref().map(|kept| &kept.moment));
    if let Some(jump) = jump {
        jump.report(NAME);
    }
    let contents = Contents {
        first: kept.as_ref().map_or(0, |kept| kept.first),
        last: kept.as_ref().map_or(0, |kept| kept.last),
        written: kept.as_ref().and_then(|kept| kept.written),
        agreed: agreed.len(),
        moment: time.moment(),
    };
    let manifest = Manifest::new(&folder.path, contents);
    let missed = Missed::new(kept.map(|kept| kept.moment.store));
    Ok((Shared::new(folder, manifest, time, missed), agreed))
}

/// No boot is known: only the wall clock says how much time has passed between two processes.
struct NoBoot;

impl BootClock for NoBoot {
    fn boot(&self) -> Option<Boot> {
        None
    }
}

impl FileStore {
    fn start(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), OpenError> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        let thread =
            thread.map_err(|error| OpenError::Store(shared::failed(&error.to_string())))?;
        self.threads.push(thread);
        Ok(())
    }
}

/// Everything asked is answered first. Then the folder is free for the next to open it.
impl Drop for FileStore {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        drop(self.sweeper.send(Nudge::Stop));
        // The writer ends with the last one who could ask it; the sweeper comes first.
        self.asker = None;
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}

#[async_trait]
impl Store for FileStore {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        self.shared.check()?;
        // The index has what everybody may see: a claim that it refuses needs no writer.
        let mut entry = self.shared.entry(&claim.slot)?;
        if entry.kept.is_some()
            && let (claimed @ Claimed::Taken(_), Change::Nothing) =
                entry.claim(claim, self.shared.now())
        {
            return Ok(claimed);
        }
        let answered = match at_once::claim(&self.writer, &self.shared, claim) {
            Some(answered) => answered,
            None => self.ask(Question::Claim(claim.clone())).await,
        };
        let Answer::Claimed(claimed) = answered? else {
            return Err(shared::ended());
        };
        Ok(claimed)
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        let Answer::Renewed(renewed) = self.ask(Question::Renew(lease.clone(), lease_for)).await?
        else {
            return Err(shared::ended());
        };
        Ok(renewed)
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        check_size(response)?;
        let question = Question::Complete(lease.clone(), Arc::clone(response), keep_for);
        let Answer::Completed(completed) = self.ask(question).await? else {
            return Err(shared::ended());
        };
        Ok(completed)
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        let Answer::Released(released) = self.ask(Question::Release(lease.clone(), why)).await?
        else {
            return Err(shared::ended());
        };
        Ok(released)
    }

    async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        self.shared.check()?;
        let waiting = Waiting {
            shared: &self.shared,
            slot,
            changed: lock(&self.shared.waiters).join(slot),
        };
        // Registered before the slot is looked at: a change in between is not missed.
        let notified = waiting.changed.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        let Some(lease_left) = self.lease_left(slot, seen)? else {
            return Ok(());
        };
        tokio::select! {
            biased;
            () = notified => {}
            () = tokio::time::sleep(at_most.min(lease_left)) => {}
        }
        Ok(())
    }

    fn check(&self) -> Result<(), StoreError> {
        self.shared.check()
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }
}

/// A wait for a slot; however it ends, it leaves nothing behind.
struct Waiting<'a> {
    shared: &'a Shared,
    slot: &'a Slot,
    changed: Arc<Notify>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        lock(&self.shared.waiters).leave(self.slot, &self.changed);
    }
}

/// An answer that could not be read back is not taken.
fn check_size(response: &Response) -> Result<(), StoreError> {
    if response.bytes() > PAYLOAD_BYTES_MAX / 2 {
        return Err(shared::full("the answer is larger than any file here"));
    }
    Ok(())
}

/// Locks, also after a panic elsewhere: every critical section leaves its data whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
