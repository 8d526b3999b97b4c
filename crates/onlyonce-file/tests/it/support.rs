//! A store in a folder of its own, on a clock that tests move.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use onlyonce_core::key::Hint;
use onlyonce_core::{
    Claim, Claimed, Clock, Completed, Entropy as _, Fingerprint, Lease, Meta, OnLapse, OsEntropy,
    Record, Response, Slot, Store as _, SystemClock, Timestamp, Token,
};
use onlyonce_file::FileStore;
use onlyonce_file::OpenError;
use tempfile::TempDir;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const DAY: Duration = Duration::from_secs(86_400);
/// The smallest there are: a test fills several.
pub(super) const SEGMENT_BYTES: u64 = 64 << 10;

/// Time that stands still until it is moved.
pub(super) struct TestClock(Mutex<Duration>);

impl TestClock {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Duration::from_secs(1000))))
    }

    pub(super) fn advance(&self, by: Duration) {
        *self.0.lock().unwrap() += by;
    }

    pub(super) fn go_back(&self, by: Duration) {
        *self.0.lock().unwrap() -= by;
    }
}

impl Clock for TestClock {
    fn now(&self) -> Duration {
        *self.0.lock().unwrap()
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_millis(1_735_689_600_000).plus(self.now())
    }
}

/// A folder, and time for the stores in it.
pub(super) struct Place {
    folder: TempDir,
    pub(super) clock: Arc<TestClock>,
}

impl Place {
    pub(super) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            clock: TestClock::new(),
        }
    }

    /// What a crash at this moment would leave, in another folder.
    pub(super) fn crashed(&self) -> Self {
        let copy = Self {
            folder: tempfile::tempdir().unwrap(),
            clock: Arc::clone(&self.clock),
        };
        for entry in fs::read_dir(self.path()).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap();
            fs::copy(&path, copy.path().join(name)).unwrap();
        }
        copy
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(super) async fn open(&self) -> FileStore {
        self.try_open().await.unwrap()
    }

    pub(super) async fn try_open(&self) -> Result<FileStore, OpenError> {
        FileStore::builder(self.path())
            .clock(Arc::clone(&self.clock) as _)
            .segment_bytes(SEGMENT_BYTES)
            .open()
            .await
    }

    /// What it was told when it was not opened.
    pub(super) async fn refusal(&self) -> String {
        match self.try_open().await {
            Ok(_) => panic!("the store was opened"),
            Err(error) => told(&error),
        }
    }

    /// The files of the log, oldest first.
    pub(super) fn segments(&self) -> Vec<PathBuf> {
        self.files("log")
    }

    pub(super) fn files(&self, extension: &str) -> Vec<PathBuf> {
        let mut files: Vec<_> = fs::read_dir(self.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|it| it == extension))
            .collect();
        files.sort();
        files
    }

    /// How many bytes the log has.
    pub(super) fn bytes(&self) -> u64 {
        let length = |path: &PathBuf| fs::metadata(path).map_or(0, |metadata| metadata.len());
        self.segments().iter().map(length).sum()
    }
}

/// An error with all its causes.
pub(super) fn told(error: &dyn std::error::Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        told = format!("{told}: {error}");
        cause = error.source();
    }
    told
}

/// Waits until it holds; panics if it never does.
pub(super) async fn until(what: &str, holds: impl Fn() -> bool) {
    const AT_MOST: Duration = Duration::from_secs(30);
    let clock = SystemClock::new();
    while !holds() {
        assert!(clock.now() < AT_MOST, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The slot of number `n`: as uniform as a digest.
pub(super) fn slot(n: u64) -> Slot {
    let mut bytes = [0; Slot::BYTES];
    let mixed = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bytes[..8].copy_from_slice(&mixed.to_be_bytes());
    bytes[24..].copy_from_slice(&n.to_be_bytes());
    Slot::from_bytes(bytes)
}

/// A claim for number `n`, with a fresh token.
pub(super) fn claim(n: u64) -> Claim {
    Claim {
        slot: slot(n),
        fingerprint: Fingerprint::new(Fingerprint::RECIPE, [1; 32]),
        token: token(),
        on_lapse: OnLapse::Rerun,
        must_last: false,
        lease_for: MINUTE,
        keep_for: DAY,
        meta: Arc::new(Meta {
            hint: Hint::default(),
            operation: "POST /payments".into(),
            actor: Some("alice".into()),
            holder: "here".into(),
            trace: None,
            credential: None,
        }),
    }
}

pub(super) fn token() -> Token {
    Token::generate(&OsEntropy::new())
}

/// An answer nobody else gives.
pub(super) fn answer(n: u64, bytes: usize) -> Arc<Response> {
    let mut body = vec![0; bytes.max(8)];
    let whole = body.len() / 256 * 256;
    for page in body[..whole].chunks_mut(256) {
        OsEntropy::new().fill(page);
    }
    body[..8].copy_from_slice(&n.to_be_bytes());
    Arc::new(Response::new(StatusCode::OK, body))
}

pub(super) async fn grant(store: &FileStore, claim: &Claim) -> Lease {
    match store.claim(claim).await.unwrap() {
        Claimed::Granted { lease, .. } => lease,
        other @ (Claimed::Taken(_) | Claimed::Dead) => panic!("not granted: {other:?}"),
    }
}

pub(super) async fn finish(store: &FileStore, n: u64, answer: &Arc<Response>, keep_for: Duration) {
    let lease = grant(store, &claim(n)).await;
    let completed = store.complete(&lease, answer, keep_for).await;
    assert!(matches!(completed, Ok(Completed::Stored(_))));
}

/// What a retry of number `n` gets; nothing if the slot is free.
pub(super) async fn replayed(store: &FileStore, n: u64) -> Option<Record> {
    use onlyonce_core::Operate as _;
    store.get(&slot(n)).await.unwrap()
}
