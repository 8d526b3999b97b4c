//! What only shows from inside: a disk that fails, and what is left behind.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use http::StatusCode;
use onlyonce_core::key::Hint;
use onlyonce_core::{Fingerprint, Meta, OnLapse, StoreErrorKind, Timestamp};
use tempfile::TempDir;

mod at_once;
mod power_cut;
mod rolling;

use super::frame::{HEADER_BYTES, Head, Header, Kind, find_beginning};
use super::*;
use onlyonce_storekit::moment::Moment;

const DAY: Duration = Duration::from_secs(86_400);

/// A disk that fails when it is told to.
#[derive(Default)]
struct FlawedDisk {
    fails_to_sync: AtomicBool,
    /// So many are reported as failed, as Linux does it: once, to the first that asks.
    syncs_to_fail: AtomicUsize,
    fails_to_write: AtomicBool,
    is_full: AtomicBool,
    cannot_reserve: AtomicBool,
    /// There is room for what has to be written, and for no more.
    is_nearly_full: AtomicBool,
    syncs: AtomicUsize,
    /// Which threads wrote something to the log, one after the other.
    wrote: Mutex<Vec<ThreadId>>,
}

impl Disk for FlawedDisk {
    fn write(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        if self.fails_to_write.load(Ordering::Relaxed) {
            return Err(io::Error::other("input/output error"));
        }
        let is_spare = bytes.iter().all(|byte| *byte == 0);
        if self.is_full.load(Ordering::Relaxed)
            || (is_spare && self.is_nearly_full.load(Ordering::Relaxed))
        {
            // As much as fits.
            disk::write_at(file, &bytes[..bytes.len() / 2], at)?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        lock(&self.wrote).push(std::thread::current().id());
        Machine.write(file, bytes, at)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        let is_flawed = |left: usize| left.checked_sub(1);
        let flaw = self
            .syncs_to_fail
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_flawed);
        if flaw.is_ok() || self.fails_to_sync.load(Ordering::Relaxed) {
            return Err(io::Error::other("input/output error"));
        }
        Machine.sync(file)
    }

    fn reserve(&self, file: &File, at: u64, bytes: u64) -> io::Result<()> {
        if self.cannot_reserve.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Machine.reserve(file, at, bytes)
    }
}

/// Clocks of a machine that is rebooted and whose date is set when a test says so.
struct FakeMachine(Mutex<Moment>);

impl FakeMachine {
    fn new() -> Arc<Self> {
        let boot = Boot {
            id: "first".to_owned(),
            since: DAY,
        };
        Arc::new(Self(Mutex::new(Moment {
            boot: Some(boot),
            wall: 20_000 * DAY,
            store: Duration::ZERO,
        })))
    }

    /// Time passes, with the machine on.
    fn advance(&self, by: Duration) {
        let mut now = lock(&self.0);
        now.wall += by;
        now.store += by;
        now.boot.as_mut().unwrap().since += by;
    }

    fn set_date(&self, wall: Duration) {
        lock(&self.0).wall = wall;
    }

    fn date(&self) -> Duration {
        lock(&self.0).wall
    }

    fn reboot(&self) {
        lock(&self.0).boot = Some(Boot {
            id: "second".to_owned(),
            since: Duration::ZERO,
        });
    }
}

impl Clock for FakeMachine {
    fn now(&self) -> Duration {
        lock(&self.0).store
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_millis(tally::millis(lock(&self.0).wall))
    }
}

impl BootClock for FakeMachine {
    fn boot(&self) -> Option<Boot> {
        lock(&self.0).boot.clone()
    }
}

struct Bed {
    folder: TempDir,
    disk: Arc<FlawedDisk>,
}

impl Bed {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            disk: Arc::default(),
        }
    }

    /// The first segment.
    fn segment(&self) -> File {
        File::open(segment::path(self.folder.path(), 1)).unwrap()
    }

    fn length(&self) -> u64 {
        self.segment().metadata().unwrap().len()
    }

    /// How many bytes of a write that never ended the first segment has behind its end.
    fn torn_bytes(&self) -> u64 {
        let mut header = [0; HEADER_BYTES];
        let segment = self.segment();
        disk::read_at(&segment, &mut header, 0).unwrap();
        let header = Header::parse(&header).unwrap();
        scan::newest(&segment, &header).unwrap().torn_bytes
    }

    async fn open_on(&self, machine: &Arc<FakeMachine>) -> FileStore {
        let mut builder = FileStore::builder(self.folder.path());
        builder.clock = Arc::clone(machine) as _;
        builder.boot = Arc::clone(machine) as _;
        builder.open().await.unwrap()
    }

    async fn open(&self) -> FileStore {
        let mut builder = FileStore::builder(self.folder.path());
        builder.disk = Arc::clone(&self.disk) as _;
        builder.open().await.unwrap()
    }
}

fn claim(n: u8) -> Claim {
    Claim {
        slot: Slot::from_bytes([n; Slot::BYTES]),
        fingerprint: Fingerprint::new(Fingerprint::RECIPE, [1; 32]),
        token: Token::from_bytes([n; Token::BYTES]),
        on_lapse: OnLapse::Rerun,
        must_last: false,
        lease_for: DAY,
        keep_for: DAY,
        meta: Arc::new(Meta {
            hint: Hint::default(),
            operation: "test".into(),
            actor: None,
            holder: "here".into(),
            trace: None,
            credential: None,
        }),
    }
}

fn answer() -> Arc<Response> {
    Arc::new(Response::new(StatusCode::OK, "stored"))
}

async fn finish(store: &FileStore, n: u8) {
    let lease = claim(n).lease();
    assert!(matches!(
        store.claim(&claim(n)).await,
        Ok(Claimed::Granted { .. })
    ));
    let completed = store.complete(&lease, &answer(), DAY).await;
    assert!(matches!(completed, Ok(Completed::Stored(_))));
}

fn assert_restart<T>(answered: Result<T, StoreError>) {
    let Err(error) = answered else {
        panic!("a failed disk answered");
    };
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    let cause = error.source.unwrap().to_string();
    assert!(cause.contains("restart this process"), "{cause}");
}

/// After a failed fsync it is unknown what the disk has: not even what was there is told any more.
#[tokio::test]
async fn a_failed_fsync_ends_everything_until_a_restart() {
    let bed = Bed::new();
    let store = bed.open().await;
    finish(&store, 1).await;
    let running = claim(2);
    store.claim(&running).await.unwrap();
    bed.disk.fails_to_sync.store(true, Ordering::Relaxed);

    let completed = store.complete(&running.lease(), &answer(), DAY).await;

    assert_restart(completed);
    bed.disk.fails_to_sync.store(false, Ordering::Relaxed);
    assert_restart(store.claim(&claim(3)).await);
    assert_restart(store.claim(&claim(1)).await);
    assert_restart(store.renew(&running.lease(), DAY).await);
    assert_restart(store.complete(&running.lease(), &answer(), DAY).await);
    assert_restart(store.release(&running.lease(), Release::Unknown).await);
    assert_restart(store.get(&running.slot).await);
    assert_restart(store.settled(&running.slot, &running.token, DAY).await);
    assert_restart(store.ping().await);
    assert_restart(store.stats().await);
    assert_restart(store.agree("name", b"value").await);
    drop(store);
    let store = bed.open().await;
    let record = store.get(&claim(1).slot).await.unwrap().unwrap();
    assert_eq!(record.response(), Some(&answer()));
    finish(&store, 3).await;
}

#[tokio::test]
async fn a_failed_write_ends_everything_until_a_restart() {
    let bed = Bed::new();
    let store = bed.open().await;
    finish(&store, 1).await;
    bed.disk.fails_to_write.store(true, Ordering::Relaxed);

    assert_restart(store.claim(&claim(2)).await);

    bed.disk.fails_to_write.store(false, Ordering::Relaxed);
    assert_restart(store.ping().await);
    drop(store);
    finish(&bed.open().await, 2).await;
}

#[tokio::test]
async fn a_disk_that_cannot_set_room_aside_is_full_when_it_is_full() {
    let bed = Bed::new();
    bed.disk.cannot_reserve.store(true, Ordering::Relaxed);
    let store = bed.open().await;
    finish(&store, 1).await;
    let running = claim(2);
    store.claim(&running).await.unwrap();
    assert!(bed.length() < 10_000, "it was filled ahead all the same");
    bed.disk.is_full.store(true, Ordering::Relaxed);

    let completed = store.complete(&running.lease(), &answer(), DAY).await;

    assert_eq!(completed.unwrap_err().kind, StoreErrorKind::Full);
    assert!(store.get(&claim(1).slot).await.unwrap().is_some());
    bed.disk.is_full.store(false, Ordering::Relaxed);
    let completed = store.complete(&running.lease(), &answer(), DAY).await;
    assert!(matches!(completed, Ok(Completed::Stored(_))));
    drop(store);
    let store = bed.open().await;
    assert_eq!(store.stats().await.unwrap().records, 2);
}

#[tokio::test]
async fn a_commit_within_what_is_filled_ahead_does_not_lengthen_the_file() {
    let bed = Bed::new();
    let store = bed.open().await;
    finish(&store, 1).await;
    let before = bed.length();

    for n in 2..100 {
        finish(&store, n).await;
    }

    assert_eq!(bed.length(), before);
    drop(store);
    assert!(bed.length() < before, "what is spare is given back");
    let store = bed.open().await;
    assert_eq!(store.stats().await.unwrap().records, 99);
}

/// What a segment is filled with ahead is still there after a crash: nothing was cut short.
#[tokio::test]
async fn zeros_behind_the_end_are_no_write_that_was_cut_short() {
    let bed = Bed::new();
    let store = bed.open().await;
    finish(&store, 1).await;

    assert_eq!(bed.torn_bytes(), 0);

    let path = segment::path(bed.folder.path(), 1);
    let file = File::options().write(true).open(path).unwrap();
    disk::write_at(&file, b"1Of1", bed.length() - 9).unwrap();
    assert!(bed.torn_bytes() > 0);
}

#[tokio::test]
async fn a_disk_without_room_to_fill_ahead_takes_what_has_to_be_written() {
    let bed = Bed::new();
    bed.disk.is_nearly_full.store(true, Ordering::Relaxed);
    let store = bed.open().await;

    finish(&store, 1).await;
    finish(&store, 2).await;

    drop(store);
    let store = bed.open().await;
    assert_eq!(store.stats().await.unwrap().records, 2);
}

#[tokio::test]
async fn what_changes_nothing_costs_no_fsync() {
    let bed = Bed::new();
    let store = bed.open().await;
    finish(&store, 1).await;
    let before = bed.disk.syncs.load(Ordering::Relaxed);

    let rival = Claim {
        token: Token::from_bytes([9; Token::BYTES]),
        ..claim(1)
    };
    assert!(matches!(store.claim(&rival).await, Ok(Claimed::Taken(_))));
    store
        .complete(&rival.lease(), &answer(), DAY)
        .await
        .unwrap();
    store.renew(&rival.lease(), DAY).await.unwrap();
    store.count_replays(&[(rival.slot, 3)]).await.unwrap();
    store.forget(&claim(7).slot).await.unwrap();
    store.ping().await.unwrap();

    assert_eq!(bed.disk.syncs.load(Ordering::Relaxed), before);
    let record = store.get(&rival.slot).await.unwrap().unwrap();
    assert_eq!(record.replays, 3);
}

#[tokio::test]
async fn what_is_asked_together_costs_one_fsync() {
    const CLAIMS: u8 = 200;
    let bed = Bed::new();
    let store = bed.open().await;
    let before = bed.disk.syncs.load(Ordering::Relaxed);

    let claims: Vec<_> = (0..CLAIMS).map(power_cut::hold).collect();
    let asked = claims.iter().map(|claim| store.claim(claim));
    for granted in futures_util::future::join_all(asked).await {
        assert!(matches!(granted, Ok(Claimed::Granted { .. })));
    }

    let syncs = bed.disk.syncs.load(Ordering::Relaxed) - before;
    assert!(syncs < usize::from(CLAIMS) / 2, "{syncs} for {CLAIMS}");
}

#[tokio::test]
async fn a_wait_leaves_nothing_behind_however_it_ends() {
    let bed = Bed::new();
    let store = bed.open().await;
    let running = claim(1);
    store.claim(&running).await.unwrap();

    let short = Duration::from_millis(1);
    store
        .settled(&running.slot, &running.token, short)
        .await
        .unwrap();
    let waiting = store.settled(&running.slot, &running.token, DAY);
    drop(tokio::time::timeout(short, waiting).await);

    assert!(lock(&store.shared.waiters).is_empty());
}

/// A client may send bytes that look like a frame; it cannot know the salt.
#[test]
fn the_frame_of_another_segment_is_no_frame() {
    let head = Head {
        kind: Kind::Finished,
        begins: true,
        due: 7,
        slot: Slot::from_bytes([3; Slot::BYTES]),
        replays: 0,
        payload_bytes: 4,
    };
    let mut bytes = b"some 1Of1 bytes ".to_vec();
    head.write(b"body", 1234, &mut bytes);

    assert_eq!(find_beginning(&bytes, 1234), Some(16));
    assert_eq!(find_beginning(&bytes, 1235), None);
    bytes.pop();
    assert_eq!(find_beginning(&bytes, 1234), None);
}

#[test]
fn a_record_is_due_a_little_after_it_expires() {
    for (left, slack) in [(0, 1), (1, 1), (200, 1), (1000, 3), (86_400_000, 337_500)] {
        let now = Duration::from_millis(1_735_689_600_123);
        let expires = now + Duration::from_millis(left);

        let due = tally::due(expires, now);

        let expires = tally::millis(expires);
        assert!(
            due > expires && due <= expires + 1 + slack,
            "{left} ms left"
        );
    }
    assert_eq!(tally::due(Duration::MAX, Duration::ZERO), u64::MAX);
}

async fn keep_left(store: &FileStore, n: u8) -> Option<Duration> {
    let record = store.get(&claim(n).slot).await.unwrap();
    record.map(|record| record.keep_left)
}

#[tokio::test]
async fn within_one_boot_no_date_shortens_or_prolongs_what_is_kept() {
    for date in [20_010 * DAY, 19_000 * DAY, Duration::ZERO] {
        let (bed, machine) = (Bed::new(), FakeMachine::new());
        let store = bed.open_on(&machine).await;
        finish(&store, 1).await;
        drop(store);
        machine.set_date(date);
        machine.advance(DAY / 2);

        let store = bed.open_on(&machine).await;

        assert_eq!(keep_left(&store, 1).await, Some(DAY / 2));
        machine.advance(DAY / 2);
        assert_eq!(keep_left(&store, 1).await, None);
    }
}

#[tokio::test]
async fn after_a_reboot_the_date_says_how_much_time_has_passed() {
    let (bed, machine) = (Bed::new(), FakeMachine::new());
    let store = bed.open_on(&machine).await;
    finish(&store, 1).await;
    drop(store);
    machine.reboot();
    machine.advance(DAY / 4);

    let store = bed.open_on(&machine).await;

    assert_eq!(keep_left(&store, 1).await, Some(DAY * 3 / 4));
    drop(store);
    machine.advance(DAY);
    assert_eq!(keep_left(&bed.open_on(&machine).await, 1).await, None);
}

#[tokio::test]
async fn after_a_reboot_with_an_earlier_date_time_goes_on_where_it_was() {
    let (bed, machine) = (Bed::new(), FakeMachine::new());
    let store = bed.open_on(&machine).await;
    finish(&store, 1).await;
    machine.advance(DAY / 4);
    drop(store);
    machine.reboot();
    machine.set_date(Duration::ZERO);

    let store = bed.open_on(&machine).await;

    assert_eq!(keep_left(&store, 1).await, Some(DAY * 3 / 4));
}

/// A date that was set right while the store was open: the next reboot is no jump.
#[tokio::test]
async fn a_date_that_was_corrected_meanwhile_is_no_jump_after_a_reboot() {
    let (bed, machine) = (Bed::new(), FakeMachine::new());
    let store = bed.open_on(&machine).await;
    finish(&store, 1).await;
    machine.set_date(machine.date() + 2 * DAY);
    drop(store);
    machine.reboot();
    machine.advance(DAY / 4);

    let store = bed.open_on(&machine).await;

    assert_eq!(keep_left(&store, 1).await, Some(DAY * 3 / 4));
}
