//! Against live keys in the file store: claims of new keys, claims of live ones, and what the store
//! takes of disk, of memory and of time to open.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Claimed, Release, Released, Store as _};
use onlyonce_stores::file::FileStore;

use super::{Options, Point};
use crate::failure::Failure;
use crate::stores::{clear, fresh, opened};
use crate::system::disk_mb;
use crate::work::{Caller, DAY, drive, fill, granted, numbered};
use crate::{runtime, say};

const KEYS: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];
const KEYS_LONG: u64 = 10_000_000;
const CALLERS: usize = 64;

pub(super) fn run(options: &Options) -> Result<Vec<Point>, Failure> {
    let done = runtime()?.block_on(curve(options));
    clear(&options.folder);
    done
}

async fn curve(options: &Options) -> Result<Vec<Point>, Failure> {
    let path = fresh(&options.folder)?;
    let time = Duration::from_secs(options.seconds);
    let mut points = Vec::new();
    let mut stored = 0;
    for keys in KEYS.into_iter().chain(options.long.then_some(KEYS_LONG)) {
        let store = Arc::new(FileStore::open(&path).await?);
        fill(&store, stored..keys, DAY, move |n| {
            say(&format!("scaling: {n} of {keys} live keys"));
        })
        .await;
        stored = keys;
        say(&format!("scaling: claims with {keys} live keys"));
        // Given back, so that there are no more live keys than told.
        let new = |store: Arc<FileStore>, mut caller: Caller| async move {
            let lease = granted(&*store, &caller.new_claim()).await;
            caller.lap();
            let released = store.release(&lease, Release::NotRun).await;
            assert!(matches!(released, Ok(Released::Ended)), "not released");
            caller
        };
        let claims = drive(&store, CALLERS, time, new).await;
        let live = move |store: Arc<FileStore>, mut caller: Caller| async move {
            let slot = numbered(caller.random() % keys);
            let claimed = store.claim(&caller.claim(slot)).await;
            assert!(matches!(claimed, Ok(Claimed::Taken(_))), "not replayed");
            caller.lap();
            caller
        };
        let replays = drive(&store, CALLERS, time, live).await;
        drop(store);
        let reopened = opened(&path)?;
        points.push(
            Point::new("new keys, each given back", keys, claims)
                .with("disk MB", disk_mb(&path))
                .with("memory MB, after opening", reopened.resident_mb)
                .with("opens in s", reopened.seconds),
        );
        points.push(Point::new("live keys", keys, replays));
    }
    Ok(points)
}
