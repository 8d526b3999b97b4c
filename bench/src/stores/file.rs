//! The file store against a bare append-only log with the same group commit. Both write the same
//! number of bytes for a claim and for a completion with a body of 1 KiB. And the sealed file store, as it
//! is by default, against the same store without its seal.

use std::path::Path;
use std::sync::Arc;

use onlyonce_core::{Operate as _, OsEntropy, Store};
use onlyonce_stores::file::FileStore;
use onlyonce_stores::{KeyRing, Sealed};

use super::bare_log::BareLog;
use super::{Turns, clear, fresh};
use crate::failure::Failure;
use crate::report::{Goal, Row};
use crate::rounds::{Rounds, Sample};
use crate::work::{Caller, DAY, complete, drive, granted};

const PRODUCERS: [usize; 4] = [1, 16, 64, 256];
/// Where the goals are set.
const PRODUCERS_GOAL: usize = 64;

/// How many bytes the store writes for each of its verbs.
#[derive(Clone, Copy)]
struct Frames {
    claim: usize,
    completion: usize,
}

pub(super) async fn run(folder: &Path, turns: Turns) -> Result<Vec<Row>, Failure> {
    let frames = frames(folder).await?;
    let mut rows = Vec::new();
    for producers in PRODUCERS {
        let mut rounds = Rounds::default();
        for _ in turns.rounds(format!("file, {producers} producers")) {
            let base = log(folder, frames, producers, turns).await?;
            let ours = store(folder, producers, turns).await?;
            rounds.add(ours, base);
        }
        let case = format!("{producers} producers");
        let goal = |goal| (producers == PRODUCERS_GOAL).then_some(goal);
        rows.push(rounds.rate("file", &case, goal(Goal::AtLeast(0.75))));
        rows.push(rounds.p50("file", &case));
        rows.push(rounds.p99("file", &case, goal(Goal::Below(2.0))));
    }
    rows.extend(seal(folder, turns).await?);
    clear(folder);
    Ok(rows)
}

/// What the seal costs where the disk is shared by many.
async fn seal(folder: &Path, turns: Turns) -> Result<Vec<Row>, Failure> {
    let mut rounds = Rounds::default();
    for _ in turns.rounds(format!("file, sealed, {PRODUCERS_GOAL} producers")) {
        let bare = store(folder, PRODUCERS_GOAL, turns).await?;
        let inside = Arc::new(FileStore::open(fresh(folder)?).await?);
        let sealed = Sealed::open(inside, KeyRing::generate(&OsEntropy::new())).await?;
        let sealed = produce(&Arc::new(sealed), PRODUCERS_GOAL, turns).await;
        rounds.add(sealed, bare);
    }
    let case = format!("{PRODUCERS_GOAL} producers, sealed / unsealed");
    Ok(vec![
        rounds.rate("file", &case, Some(Goal::AtLeast(0.95))),
        rounds.p50("file", &case),
        rounds.p99("file", &case, None),
    ])
}

async fn frames(folder: &Path) -> Result<Frames, Failure> {
    let store = FileStore::open(&fresh(folder)?).await?;
    let caller = Caller::new();
    let lease = granted(&store, &caller.new_claim()).await;
    let claim = stored_bytes(&store).await?;
    // The answer is stored in the claim's stead.
    complete(&store, &lease, &caller.answer, DAY).await;
    let completion = stored_bytes(&store).await?;
    Ok(Frames { claim, completion })
}

/// How many bytes the frames of its live records take.
async fn stored_bytes(store: &FileStore) -> Result<usize, Failure> {
    let bytes = store.stats().await?.bytes;
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
}

async fn log(
    folder: &Path,
    frames: Frames,
    producers: usize,
    turns: Turns,
) -> Result<Sample, Failure> {
    let log = Arc::new(BareLog::create(&fresh(folder)?.join("log"))?);
    let step = move |log: Arc<BareLog>, mut caller: Caller| async move {
        let claim = caller.new_claim();
        log.append(&claim.slot, frames.claim).await;
        caller.lap();
        log.append(&claim.slot, frames.completion).await;
        caller.lap();
        caller
    };
    Ok(drive(&log, producers, turns.time, step).await)
}

async fn store(folder: &Path, producers: usize, turns: Turns) -> Result<Sample, Failure> {
    let store = Arc::new(FileStore::open(fresh(folder)?).await?);
    Ok(produce(&store, producers, turns).await)
}

async fn produce<S: Store>(store: &Arc<S>, producers: usize, turns: Turns) -> Sample {
    let step = |store: Arc<S>, mut caller: Caller| async move {
        let lease = granted(&*store, &caller.new_claim()).await;
        caller.lap();
        complete(&*store, &lease, &caller.answer, DAY).await;
        caller.lap();
        caller
    };
    drive(store, producers, turns.time, step).await
}
