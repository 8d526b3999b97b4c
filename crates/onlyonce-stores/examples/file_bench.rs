//! Measures the file store: `cargo run --release -p onlyonce-stores --example file_bench -- rate`
//! against a bare append-only log with the same group commit, `live` with millions of records,
//! `churn` with as many that expire, `replay` of what is stored.

#![allow(clippy::print_stdout, reason = "this is a command")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::{Parser, Subcommand};
use onlyonce_core::{Claim, Claimed, Clock, Operate as _, Store as _, SystemClock};
use onlyonce_stores::file::FileStore;

#[path = "file_bench/bare_log.rs"]
mod bare_log;
#[path = "file_bench/figures.rs"]
mod figures;
#[path = "file_bench/work.rs"]
mod work;

use bare_log::BareLog;
use figures::{Measured, disk_mb, resident_mb};
use work::{complete, drive, fill, granted, numbered};

const DAY: Duration = Duration::from_secs(86_400);

/// How fast, how large.
#[derive(Parser)]
struct Arguments {
    /// Where to write; everything made there is removed.
    #[arg(long, default_value = "./file-bench")]
    folder: PathBuf,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Claims and completions a second, against a bare log.
    Rate {
        /// How many seconds each.
        #[arg(long, default_value_t = 10)]
        seconds: u64,
        /// How often: the log and the store take turns.
        #[arg(long, default_value_t = 3)]
        rounds: u64,
        /// How many producers.
        #[arg(long, value_delimiter = ',', default_value = "1,16,64,256")]
        producers: Vec<usize>,
    },
    /// Replays a second, of records that are stored.
    Replay {
        #[arg(long, default_value_t = 100_000)]
        records: u64,
        #[arg(long, default_value_t = 5)]
        seconds: u64,
        #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
        producers: Vec<usize>,
    },
    /// Memory and time to open with many live records.
    Live {
        #[arg(long, default_value_t = 5_000_000)]
        records: u64,
    },
    /// Disk while and after records are written that expire.
    Churn {
        #[arg(long, default_value_t = 1_000_000)]
        records: u64,
        /// How many seconds each is kept.
        #[arg(long, default_value_t = 5)]
        keep: u64,
    },
}

fn main() {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime starts");
    let folder = arguments.folder;
    runtime.block_on(async {
        match arguments.what {
            What::Rate {
                seconds,
                rounds,
                producers,
            } => {
                for producers in producers {
                    rate(&folder, Duration::from_secs(seconds), rounds, producers).await;
                }
            }
            What::Replay {
                records,
                seconds,
                producers,
            } => replay(&folder, records, seconds, &producers).await,
            What::Live { records } => live(&folder, records).await,
            What::Churn { records, keep } => {
                churn(&folder, records, Duration::from_secs(keep)).await;
            }
        }
    });
}

async fn rate(folder: &Path, time: Duration, rounds: u64, producers: usize) {
    let (mut bare, mut ours) = (Measured::default(), Measured::default());
    for _ in 0..rounds {
        let log = Arc::new(BareLog::create(&fresh(folder).join("log")));
        bare.add(
            drive(&log, producers, time, |log, mut work| async move {
                log.append(&work.claim.slot, 300).await;
                work.lap();
                log.append(&work.claim.slot, 1024 + 350).await;
                work.lap();
                work
            })
            .await,
        );
        drop(log);
        let store = open(&fresh(folder)).await;
        ours.add(
            drive(&store, producers, time, |store, mut work| async move {
                let lease = granted(&store, &work.claim).await;
                work.lap();
                complete(&store, &lease, &work.answer, DAY).await;
                work.lap();
                work
            })
            .await,
        );
        drop(store);
    }
    remove(folder);
    let (bare, ours) = (bare.figures(), ours.figures());
    println!("{producers:4} producers  log   {bare}");
    println!(
        "{producers:4} producers  store {ours}  {}",
        ours.against(&bare)
    );
}

async fn replay(folder: &Path, records: u64, seconds: u64, producers: &[usize]) {
    let store = open(&fresh(folder)).await;
    fill(&store, records, DAY).await;
    for &producers in producers {
        let figures = drive(
            &store,
            producers,
            Duration::from_secs(seconds),
            move |store, mut work| async move {
                let again = Claim {
                    slot: numbered(work.random() % records),
                    ..work.claim.clone()
                };
                let claimed = store.claim(&again).await.expect("the store answers");
                assert!(matches!(claimed, Claimed::Taken(_)), "not replayed");
                work.lap();
                work
            },
        )
        .await;
        println!("{producers:4} producers  replay {}", figures.figures());
    }
    drop(store);
    remove(folder);
}

async fn live(folder: &Path, records: u64) {
    if records == 0 {
        return reopen(&folder.join("data")).await;
    }
    let path = fresh(folder);
    let store = open(&path).await;
    let clock = SystemClock::new();
    fill(&store, records, DAY).await;
    let seconds = clock.now().as_secs_f64();
    println!("{records} records of 1 KiB stored in {seconds:.1} s");
    println!(
        "  {} MB on disk, {} MB resident",
        disk_mb(&path),
        resident_mb()
    );
    drop(store);

    // In a process of its own: what this one has used is not given back whole.
    let opened = std::process::Command::new(std::env::current_exe().expect("this is a program"))
        .arg("--folder")
        .arg(folder)
        .args(["live", "--records", "0"])
        .status();
    assert!(opened.is_ok_and(|status| status.success()));
    remove(folder);
}

/// What `live` does in its second process: opens what is there.
async fn reopen(path: &Path) {
    let clock = SystemClock::new();
    let store = FileStore::open(path).await.expect("the store opens");
    let opened = clock.now();
    let stats = store.stats().await.expect("the store answers");
    println!(
        "opened in {:.2} s: {} records",
        opened.as_secs_f64(),
        stats.records
    );
    println!("  {} MB resident", resident_mb());
}

async fn churn(folder: &Path, records: u64, keep: Duration) {
    let path = fresh(folder);
    let store = open(&path).await;
    let watched = path.clone();
    let peak = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&peak);
    let watch = tokio::spawn(async move {
        loop {
            seen.fetch_max(disk_mb(&watched), Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    fill(&store, records, keep).await;
    println!("{records} records written: {} MB on disk", disk_mb(&path));
    println!("  at most {} MB meanwhile", peak.load(Ordering::Relaxed));
    watch.abort();
    for second in 1..=keep.as_secs() + 5 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        println!("  {second} s later: {} MB on disk", disk_mb(&path));
    }
    println!("  {} MB resident", resident_mb());
    drop(store);
    remove(folder);
}

async fn open(path: &Path) -> Arc<FileStore> {
    Arc::new(FileStore::open(path).await.expect("the store opens"))
}

/// An empty folder.
fn fresh(folder: &Path) -> PathBuf {
    remove(folder);
    let path = folder.join("data");
    std::fs::create_dir_all(&path).expect("a folder can be made");
    path
}

fn remove(folder: &Path) {
    drop(std::fs::remove_dir_all(folder.join("data")));
    drop(std::fs::remove_dir(folder));
}
