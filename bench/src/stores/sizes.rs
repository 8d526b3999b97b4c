//! How large the file store is and how fast it opens, with millions of records.

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
use crate::system::{disk_mb, peak_mb, resident_mb};
use crate::work::{DAY, fill};
use crate::{runtime, say};

const CHURN_KEEP: Duration = Duration::from_secs(5);
/// How long what has expired may take to leave the disk.
const CHURN_WAIT: Duration = Duration::from_secs(30);
const DISK_MB_MAX: f64 = 300.0;
const MEMORY_MB_MAX: f64 = 500.0;
const OPEN_SECONDS_MAX: f64 = 2.0;

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
