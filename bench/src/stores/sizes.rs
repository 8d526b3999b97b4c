//! How large the file store is and how fast it opens, with millions of records; and how much it writes
//! where some of them live much shorter than others.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onlyonce_core::{Clock, Operate as _, SystemClock};
use onlyonce_stores::file::FileStore;
use serde::{Deserialize, Serialize};

use super::{clear, fresh};
use crate::failure::Failure;
use crate::report::{Goal, Row, Unit};
use crate::system::{disk_mb, peak_mb, resident_mb, written_bytes};
use crate::work::{DAY, fill};
use crate::{runtime, say};

const CHURN_KEEP: Duration = Duration::from_secs(5);
/// How long what has expired may take to leave the disk.
const CHURN_WAIT: Duration = Duration::from_secs(30);
const DISK_MB_MAX: f64 = 300.0;
const MEMORY_MB_MAX: f64 = 500.0;
const OPEN_SECONDS_MAX: f64 = 2.0;

/// Of records that live shorter than others beside them: how long that is, and in how many parts they come,
/// with a pause in which they expire.
const MIXED_KEEP: Duration = Duration::from_secs(1);
const MIXED_PARTS: u64 = 10;
const MIXED_PAUSE: Duration = Duration::from_millis(1500);
const MIXED_WAIT: Duration = Duration::from_secs(5);
/// Small enough that all of it is many segments.
const MIXED_SEGMENT: u64 = 4 << 20;
const WRITTEN_MAX: f64 = 2.0;
const KEPT_MAX: f64 = 3.0;

/// What a process that only opened the store says of itself.
#[derive(Serialize, Deserialize)]
pub(crate) struct Reopened {
    records: u64,
    pub(crate) seconds: f64,
    pub(crate) resident_mb: f64,
    peak_mb: f64,
}

/// Records that are written and expire: what the disk has meanwhile, and afterwards.
pub(super) async fn churn(folder: &Path, records: u64) -> Result<Vec<Row>, Failure> {
    let path = fresh(folder)?;
    let store = Arc::new(FileStore::open(&path).await?);
    let peak = Arc::new(AtomicU64::new(0));
    let (seen, watched) = (Arc::clone(&peak), path.clone());
    let watch = tokio::spawn(async move {
        loop {
            seen.fetch_max(disk_mb(&watched) as u64, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    let case = format!("{records} records written and expired");
    let told = case.clone();
    fill(&store, 0..records, CHURN_KEEP, move |n| {
        say(&format!("file, {told}: {n} written"));
    })
    .await;
    let clock = SystemClock::new();
    tokio::time::sleep(CHURN_KEEP).await;
    while disk_mb(&path) >= DISK_MB_MAX && clock.now() < CHURN_KEEP + CHURN_WAIT {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    watch.abort();
    let left = disk_mb(&path);
    let peak = peak.load(Ordering::Relaxed) as f64;
    drop(store);
    clear(folder);
    let goal = Some(Goal::Below(DISK_MB_MAX));
    Ok(vec![
        Row::alone("file", &case, "disk at most", (peak, Unit::Megabytes), None),
        Row::alone("file", &case, "disk after", (left, Unit::Megabytes), goal),
    ])
}

/// Most records live for a second, every tenth for a day: those are in the way when the others have left,
/// and are written again. How much more is written by that than if all of them lived for a day, when
/// nothing is written twice; and what the disk has in the end, against what is alive.
pub(super) async fn mixed(folder: &Path, records: u64) -> Result<Vec<Row>, Failure> {
    let long = writes(folder, records, DAY).await?;
    let mixed = writes(folder, records, MIXED_KEEP).await?;
    let case = format!("{records} records, nine of ten for a second, one for a day");
    let row = |what, ratio, bound| {
        let goal = Some(Goal::Below(bound));
        Row::alone("file", &case, what, (ratio, Unit::Ratio), goal)
    };
    clear(folder);
    Ok(vec![
        row(
            "bytes written, against all for a day",
            mixed.written / long.written,
            WRITTEN_MAX,
        ),
        row(
            "disk after, against what is alive",
            mixed.disk_mb / mixed.alive_mb,
            KEPT_MAX,
        ),
    ])
}

/// What was written for some records, and what there is of them a while later.
struct Written {
    written: f64,
    disk_mb: f64,
    alive_mb: f64,
}

/// Stores records of which every tenth is kept for a day, and the others for as long as that.
async fn writes(folder: &Path, records: u64, others: Duration) -> Result<Written, Failure> {
    let path = fresh(folder)?;
    let store = Arc::new(
        FileStore::builder(&path)
            .segment_bytes(MIXED_SEGMENT)
            .open()
            .await?,
    );
    let before = written_bytes();
    let tenth = records / 10;
    for part in 0..MIXED_PARTS {
        let (from, until) = (part * tenth / MIXED_PARTS, (part + 1) * tenth / MIXED_PARTS);
        fill(&store, from..until, DAY, |_| {}).await;
        let (from, until) = (tenth + 9 * from, tenth + 9 * until);
        fill(&store, from..until, others, |_| {}).await;
        say(&format!(
            "file, mixed: {} of {MIXED_PARTS} written",
            part + 1
        ));
        tokio::time::sleep(MIXED_PAUSE).await;
    }
    tokio::time::sleep(MIXED_WAIT).await;
    let megabytes = 1e6;
    Ok(Written {
        written: written_bytes() - before,
        disk_mb: disk_mb(&path),
        alive_mb: store.stats().await?.bytes as f64 / megabytes,
    })
}

/// Records that live: what a process takes that opens their store, and how long that is.
pub(super) async fn live(folder: &Path, records: u64) -> Result<Vec<Row>, Failure> {
    let path = fresh(folder)?;
    let store = Arc::new(FileStore::open(&path).await?);
    let case = format!("{records} live records");
    let told = case.clone();
    fill(&store, 0..records, DAY, move |n| {
        say(&format!("file, {told}: {n} stored"));
    })
    .await;
    drop(store);
    let disk = disk_mb(&path);
    let reopened = opened(&path)?;
    clear(folder);
    if reopened.records != records {
        let found = reopened.records;
        return Err(Failure::new(format!(
            "{found} of {records} records were found"
        )));
    }
    let memory = |what, megabytes| {
        let goal = Some(Goal::Below(MEMORY_MB_MAX));
        Row::alone("file", &case, what, (megabytes, Unit::Megabytes), goal)
    };
    let goal = Some(Goal::Below(OPEN_SECONDS_MAX));
    Ok(vec![
        Row::alone("file", &case, "disk", (disk, Unit::Megabytes), None),
        Row::alone(
            "file",
            &case,
            "opens in",
            (reopened.seconds, Unit::Seconds),
            goal,
        ),
        memory("memory", reopened.resident_mb),
        memory("memory while opening", reopened.peak_mb),
    ])
}

/// What opening a store takes, in a process of its own: what this one has used is not given back
/// whole.
pub(crate) fn opened(path: &Path) -> Result<Reopened, Failure> {
    say("file: opening it again");
    let program = std::env::current_exe().map_err(Failure::doing("find this program"))?;
    let said = Command::new(program).arg("reopen").arg(path).output();
    let said = said.map_err(Failure::doing("start this program"))?;
    serde_json::from_slice(&said.stdout)
        .map_err(Failure::doing("read what the opening process said"))
}

/// Opens the store in a folder, and says in JSON what came of it.
pub(crate) fn reopen(folder: &Path) -> Result<(), Failure> {
    runtime()?.block_on(async {
        let clock = SystemClock::new();
        let store = FileStore::open(folder).await?;
        let seconds = clock.now().as_secs_f64();
        let reopened = Reopened {
            records: store.stats().await?.records,
            seconds,
            resident_mb: resident_mb("self"),
            peak_mb: peak_mb("self"),
        };
        let text = serde_json::to_string(&reopened).map_err(Failure::doing("write JSON"))?;
        println!("{text}");
        Ok(())
    })
}
