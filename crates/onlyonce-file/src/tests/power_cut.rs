//! Every state in which a power cut can leave the log: what was synced is there, and of what was written
//! after that any part may be. Each of them is opened, and must hold what was promised by then.

use std::fs;
use std::path::Path;

use super::*;

/// Remembers what was asked of it, and passes it on.
#[derive(Default)]
struct Recorder(Mutex<Vec<Asked>>);

#[derive(Clone)]
enum Asked {
    Write { bytes: Vec<u8>, at: u64 },
    Sync,
}

impl Recorder {
    fn count(&self) -> usize {
        lock(&self.0).len()
    }
}

impl Disk for Recorder {
    fn write(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        lock(&self.0).push(Asked::Write {
            bytes: bytes.to_vec(),
            at,
        });
        Machine.write(file, bytes, at)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        lock(&self.0).push(Asked::Sync);
        Machine.sync(file)
    }

    fn reserve(&self, file: &File, at: u64, bytes: u64) -> io::Result<()> {
        Machine.reserve(file, at, bytes)
    }
}

/// What the store had said when the disk had been asked so often.
enum Said {
    Held(u8),
    /// A claim that must last was granted.
    Begun(u8),
    Stored(u8),
}

/// A claim of what is looked into before it runs again.
fn lasting(n: u8) -> Claim {
    Claim {
        must_last: true,
        ..claim(n)
    }
}

pub(super) fn hold(n: u8) -> Claim {
    Claim {
        on_lapse: OnLapse::Hold,
        ..claim(n)
    }
}

/// Claims of both kinds and answers, in turns; with what was said, and when.
async fn work(store: &FileStore, disk: &Recorder) -> Vec<(usize, Said)> {
    let mut said = Vec::new();
    for n in (0..12).step_by(4) {
        let claimed = store.claim(&lasting(100 + n)).await;
        assert!(matches!(claimed, Ok(Claimed::Granted { .. })));
        said.push((disk.count(), Said::Begun(100 + n)));
        for claim in [claim(n), claim(n + 1), hold(n + 2)] {
            let claimed = store.claim(&claim).await;
            assert!(matches!(claimed, Ok(Claimed::Granted { .. })));
        }
        said.push((disk.count(), Said::Held(n + 2)));
        let claimed = store.claim(&claim(n + 3)).await;
        assert!(matches!(claimed, Ok(Claimed::Granted { .. })));
        for done in [n + 1, n + 3] {
            let lease = claim(done).lease();
            let completed = store.complete(&lease, &answer(), DAY).await;
            assert!(matches!(completed, Ok(Completed::Stored(_))));
            said.push((disk.count(), Said::Stored(done)));
        }
    }
    said
}

/// Which parts of the writes since the last sync are there: none, all, each one alone, all but one,
/// and each one in part.
fn parts(unsynced: &[Asked]) -> Vec<Vec<Asked>> {
    let mut parts = vec![Vec::new(), unsynced.to_vec()];
    for (n, write) in unsynced.iter().enumerate() {
        let Asked::Write { bytes, at } = write else {
            continue;
        };
        parts.push(vec![write.clone()]);
        let mut others = unsynced.to_vec();
        others.remove(n);
        parts.push(others.clone());
        for (from, until) in [(0, bytes.len() / 2), (bytes.len() / 2, bytes.len())] {
            let part = Asked::Write {
                bytes: bytes[from..until].to_vec(),
                at: at + from as u64,
            };
            parts.push(others.iter().cloned().chain([part]).collect());
        }
    }
    parts
}

fn apply(writes: &[Asked], folder: &Path) {
    let segment = fs::OpenOptions::new()
        .write(true)
        .open(segment::path(folder, 1))
        .unwrap();
    for write in writes {
        if let Asked::Write { bytes, at } = write {
            disk::write_at(&segment, bytes, *at).unwrap();
        }
    }
}

fn copy(from: &Path) -> TempDir {
    let to = tempfile::tempdir().unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.path().join(file.file_name())).unwrap();
    }
    to
}

/// A caller that was told an answer finds it, what is held stays held, and all else can run.
async fn assert_promises(folder: &Path, said: &[(usize, Said)], asked: usize) {
    let store = FileStore::builder(folder).open().await.unwrap();
    for (_, promise) in said.iter().filter(|(when, _)| *when <= asked) {
        match promise {
            Said::Stored(n) => {
                let record = store.get(&claim(*n).slot).await.unwrap().unwrap();
                assert_eq!(record.response(), Some(&answer()));
            }
            Said::Begun(n) => {
                let next = Claim {
                    token: Token::from_bytes([97; Token::BYTES]),
                    ..lasting(*n)
                };
                let Ok(Claimed::Granted { lease, .. }) = store.claim(&next).await else {
                    panic!("a claim of an earlier process was not taken over");
                };
                assert_eq!(lease.attempt, 2, "it is not known that it had begun");
            }
            Said::Held(n) => {
                let rival = Claim {
                    token: Token::from_bytes([99; Token::BYTES]),
                    ..claim(*n)
                };
                assert!(matches!(store.claim(&rival).await, Ok(Claimed::Taken(_))));
            }
        }
    }
    for n in (0..12).step_by(4) {
        let retry = Claim {
            token: Token::from_bytes([98; Token::BYTES]),
            ..claim(n)
        };
        let claimed = store.claim(&retry).await;
        assert!(matches!(claimed, Ok(Claimed::Granted { .. })));
    }
}

#[tokio::test]
async fn after_a_power_cut_all_that_was_promised_is_there() {
    let folder = tempfile::tempdir().unwrap();
    drop(FileStore::builder(folder.path()).open().await.unwrap());
    let before = copy(folder.path());
    let disk = Arc::new(Recorder::default());
    let mut builder = FileStore::builder(folder.path());
    builder.disk = Arc::clone(&disk) as _;
    let store = builder.open().await.unwrap();
    let said = work(&store, &disk).await;
    let asked = lock(&disk.0).clone();

    let mut states = 0;
    for until in 0..=asked.len() {
        let synced = asked[..until]
            .iter()
            .rposition(|it| matches!(it, Asked::Sync));
        let (durable, unsynced) = asked[..until].split_at(synced.map_or(0, |at| at + 1));
        for part in parts(unsynced) {
            let after = copy(before.path());
            apply(durable, after.path());
            apply(&part, after.path());

            assert_promises(after.path(), &said, until).await;
            states += 1;
        }
    }

    assert!(states > 100, "{states} states");
}

#[tokio::test]
async fn a_claim_that_may_run_again_does_not_wait_for_the_disk_and_one_that_may_not_does() {
    let bed = Bed::new();
    let store = bed.open().await;
    let syncs = || bed.disk.syncs.load(Ordering::Relaxed);
    let before = syncs();

    store.claim(&claim(1)).await.unwrap();
    let after_rerun = syncs();
    store.claim(&hold(2)).await.unwrap();
    let after_hold = syncs();
    store.claim(&lasting(3)).await.unwrap();
    let after_lasting = syncs();
    store
        .complete(&claim(1).lease(), &answer(), DAY)
        .await
        .unwrap();

    let counted = [after_rerun, after_hold, after_lasting, syncs()];
    assert_eq!(counted.map(|it| it - before), [0, 1, 2, 3]);
}

#[tokio::test]
async fn the_manifest_asks_for_no_more_than_is_durable() {
    let bed = Bed::new();
    let store = bed.open().await;
    finish(&store, 1).await;
    let after = copy(bed.folder.path());

    store.claim(&claim(2)).await.unwrap();
    store.shared.note(|_| {}).unwrap();
    let noted = bed.folder.path().join(manifest::FILE);
    fs::copy(noted, after.path().join(manifest::FILE)).unwrap();

    assert_promises(after.path(), &[(0, Said::Stored(1))], 0).await;
}
