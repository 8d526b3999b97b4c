//! A disk without room: new keys are refused while what runs is finished, nothing is lost, and
//! when there is room again all is well.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use onlyonce_core::{
    Claim, Claimed, Completed, Lease, Operate as _, Release, Store as _, StoreErrorKind,
};
use onlyonce_file::FileStore;

use super::support::{DAY, MINUTE, answer, claim, finish, grant, replayed, slot};

/// A disk of its own, this large.
struct SmallDisk {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl SmallDisk {
    fn new(megabytes: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        fs::create_dir(&path).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o"])
            .arg(format!("size={megabytes}m"))
            .args(["none".as_ref(), path.as_os_str()])
            .status();
        assert!(
            mounted.is_ok_and(|status| status.success()),
            "this test needs a small disk: it must be allowed to mount a tmpfs (run it as root)"
        );
        Self {
            _folder: folder,
            path,
        }
    }

    fn store(&self) -> PathBuf {
        self.path.join("store")
    }

    /// Takes all the room there is.
    fn fill(&self) -> PathBuf {
        use std::io::Write as _;
        let path = self.path.join("filler");
        let mut file = fs::File::create(&path).unwrap();
        for bytes in [1 << 20, 4096, 1] {
            while file.write_all(&vec![7; bytes]).is_ok() {}
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(&self.path).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

async fn open(path: &Path) -> FileStore {
    FileStore::builder(path)
        .segment_bytes(4 << 20)
        .open()
        .await
        .unwrap()
}

/// Claims until the store refuses; what was granted.
async fn claim_until_full(store: &FileStore, first: u64) -> Vec<Lease> {
    let mut leases = Vec::new();
    loop {
        match store.claim(&claim(first + leases.len() as u64)).await {
            Ok(Claimed::Granted { lease, .. }) => leases.push(lease),
            Ok(other @ (Claimed::Taken(_) | Claimed::Dead)) => panic!("{other:?}"),
            Err(error) => {
                assert_eq!(error.kind, StoreErrorKind::Full);
                return leases;
            }
        }
        assert!(leases.len() < 200_000, "the disk is never full");
    }
}

#[tokio::test]
async fn a_full_disk_refuses_new_keys_but_finishes_what_runs() {
    let disk = SmallDisk::new(40);
    let store = open(&disk.store()).await;
    finish(&store, 0, &answer(0, 1000), DAY).await;
    let running: Vec<_> = {
        let mut leases = Vec::new();
        for n in 1..200 {
            leases.push(grant(&store, &claim(n)).await);
        }
        leases
    };
    let filler = disk.fill();
    let late = claim_until_full(&store, 1000).await;

    for (n, lease) in (1..).zip(&running) {
        store.renew(lease, MINUTE).await.unwrap();
        let completed = store.complete(lease, &answer(n, 20_000), DAY).await;
        assert!(matches!(completed, Ok(Completed::Stored(_))), "number {n}");
    }
    for lease in &late {
        store.release(lease, Release::NotRun).await.unwrap();
    }
    assert!(replayed(&store, 0).await.is_some());
    let again = store.claim(&claim(0)).await;
    assert!(matches!(again, Ok(Claimed::Taken(_))));
    let refused = store.claim(&claim(999)).await.unwrap_err();
    assert_eq!(refused.kind, StoreErrorKind::Full);

    fs::remove_file(filler).unwrap();
    finish(&store, 999, &answer(999, 1000), DAY).await;
    drop(store);
    let store = open(&disk.store()).await;
    assert_eq!(store.stats().await.unwrap().records, 201);
}

#[tokio::test]
async fn an_answer_for_which_there_is_no_room_can_be_stored_later() {
    let disk = SmallDisk::new(40);
    let store = open(&disk.store()).await;
    let lease = grant(&store, &claim(0)).await;
    let other = grant(&store, &claim(1)).await;
    let filler = disk.fill();

    let large = answer(0, 30 << 20);
    let refused = store.complete(&lease, &large, DAY).await.unwrap_err();
    assert_eq!(refused.kind, StoreErrorKind::Full);
    let running = replayed(&store, 0).await.unwrap();
    assert!(running.response().is_none() && running.token == lease.token);

    fs::remove_file(filler).unwrap();
    for (lease, answer) in [(&lease, &answer(0, 10 << 20)), (&other, &answer(1, 100))] {
        let completed = store.complete(lease, answer, DAY).await;
        assert!(matches!(completed, Ok(Completed::Stored(_))));
        let found = store.get(&lease.slot).await.unwrap().unwrap();
        assert_eq!(found.response(), Some(answer));
    }
    drop(store);
    let store = open(&disk.store()).await;
    assert_eq!(store.stats().await.unwrap().records, 2);
}

#[tokio::test]
async fn a_store_opens_on_a_full_disk_and_replays() {
    let disk = SmallDisk::new(40);
    let stored = answer(0, 1000);
    finish(&open(&disk.store()).await, 0, &stored, DAY).await;
    disk.fill();

    let store = open(&disk.store()).await;

    let record = replayed(&store, 0).await.unwrap();
    assert_eq!(record.response(), Some(&stored));
    let refused = store.claim(&claim(1)).await.unwrap_err();
    assert_eq!(refused.kind, StoreErrorKind::Full);
}

#[tokio::test]
async fn a_store_that_cannot_be_made_says_why() {
    let disk = SmallDisk::new(1);
    disk.fill();

    let error = FileStore::open(disk.store()).await.err().unwrap();

    let told = super::support::told(&error);
    assert!(told.contains("No space left"), "{told}");
}

/// What expires makes room, without a restart.
#[tokio::test]
async fn a_full_store_has_room_again_once_records_have_expired() {
    let disk = SmallDisk::new(48);
    let clock = super::support::TestClock::new();
    let store = FileStore::builder(disk.store())
        .clock(Arc::clone(&clock) as _)
        .segment_bytes(4 << 20)
        .open()
        .await
        .unwrap();
    let mut n = 0;
    loop {
        match store.claim(&claim(n)).await {
            Ok(Claimed::Granted { lease, .. }) => {
                let completed = store.complete(&lease, &answer(n, 100_000), MINUTE).await;
                assert!(matches!(completed, Ok(Completed::Stored(_))), "number {n}");
            }
            Ok(other @ (Claimed::Taken(_) | Claimed::Dead)) => panic!("{other:?}"),
            Err(error) => {
                assert_eq!(error.kind, StoreErrorKind::Full);
                break;
            }
        }
        n += 1;
    }
    assert!(n > 100, "{n}");
    assert!(store.get(&slot(n - 1)).await.unwrap().is_some());

    clock.advance(2 * MINUTE);

    let free = Claim { ..claim(n) };
    for _ in 0..1000 {
        match store.claim(&free).await {
            Ok(_) => return,
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
        }
    }
    panic!("there is never room again");
}
