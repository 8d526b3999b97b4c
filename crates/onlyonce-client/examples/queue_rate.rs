//! Measures how many operations a second the offline queue takes in and gets done, on the disk of the
//! folder given as its first argument (the temporary folder if there is none). The service is a
//! transport that answers at once, so that only the queue is measured. How often a second the disk takes a
//! write and a sync comes before and after it, for a figure without that says nothing.
//!
//! `cargo xtask bench queue [FOLDER [OPERATIONS]]`, or
//! `cargo run --release -p onlyonce-client --example queue_rate [FOLDER [OPERATIONS]]`

#![allow(clippy::print_stdout, reason = "the figures are what it is for")]

use std::env;
use std::error::Error;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use onlyonce_client::{
    Operation, OperationError, Queue, QueueOptions, Reply, Sender, Transport, TransportError,
};
use onlyonce_core::{Clock, SystemClock};
use tokio::task::JoinSet;

const OPERATIONS: usize = 100_000;
const CALLERS: usize = 256;
const PARALLEL: usize = 256;
/// For what waits for the disk once each: enough to see the rate.
const ALONE: usize = 500;
/// Of each figure with many at once, a second.
const GOAL: f64 = 5_000.0;
const PAGE_BYTES: usize = 4096;

struct AtOnce;

#[async_trait]
impl Transport for AtOnce {
    async fn exchange(&self, _: Request<Bytes>) -> Result<Reply, TransportError> {
        Ok(Reply::new(StatusCode::OK, HeaderMap::new(), Bytes::new()))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let folder = arguments.next().map_or_else(env::temp_dir, PathBuf::from);
    let count = match arguments.next() {
        Some(count) => count.parse()?,
        None => OPERATIONS,
    };
    let folder = tempfile::tempdir_in(folder)?;
    let options = QueueOptions {
        parallel: PARALLEL,
        operations_max: 10 * count as u64 + ALONE as u64,
        bytes_max: u64::MAX,
        ..QueueOptions::default()
    };
    let queue = Queue::open_with(folder.path(), Sender::new(AtOnce), options).await?;
    let clock = SystemClock::new();
    sync_alone(folder.path(), &clock)?;

    let from = clock.now();
    for number in 0..ALONE {
        queue.enqueue(operation(number)?).await?;
    }
    tell("enqueued one after the other", ALONE, clock.now() - from);

    let from = clock.now();
    enqueue_concurrently(&queue, count).await?;
    let callers = format!("enqueued by {CALLERS} callers at once");
    judge(&callers, count, clock.now() - from);

    let from = clock.now();
    let operations: Result<Vec<_>, _> = (0..count).map(operation).collect();
    queue.enqueue_all(operations?).await?;
    judge("enqueued with enqueue_all", count, clock.now() - from);

    let from = clock.now();
    queue.drain().await?;
    let drained = format!("drained, {PARALLEL} in parallel");
    judge(&drained, 2 * count + ALONE, clock.now() - from);
    sync_alone(folder.path(), &clock)?;
    Ok(())
}

/// What the disk does without the queue.
fn sync_alone(folder: &Path, clock: &SystemClock) -> Result<(), Box<dyn Error>> {
    let mut file = File::create(folder.join("bare"))?;
    let from = clock.now();
    for _ in 0..ALONE {
        file.write_all(&[0; PAGE_BYTES])?;
        file.sync_data()?;
    }
    tell("written and synced, a page each", ALONE, clock.now() - from);
    Ok(())
}

fn operation(number: usize) -> Result<Operation, OperationError> {
    Operation::post(&format!("http://service.test/orders/{number}"))?
        .json(&serde_json::json!({"number": number, "item": "tea"}))
}

async fn enqueue_concurrently(queue: &Queue, count: usize) -> Result<(), Box<dyn Error>> {
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let queue = queue.clone();
        callers.spawn(async move {
            for number in (caller..count).step_by(CALLERS) {
                let operation = operation(number).map_err(|error| error.to_string())?;
                let queued = queue.enqueue(operation).await;
                queued.map_err(|error| error.to_string())?;
            }
            Ok::<_, String>(())
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended??;
    }
    Ok(())
}

fn tell(what: &str, count: usize, took: Duration) -> f64 {
    let rate = count as f64 / took.as_secs_f64();
    println!("{what}: {count} in {took:.1?}, {rate:.0} a second");
    rate
}

/// The same of what has a goal.
fn judge(what: &str, count: usize, took: Duration) {
    let is_met = tell(what, count, took) >= GOAL;
    let word = if is_met { "met" } else { "missed" };
    println!("  goal: {GOAL:.0} a second, {word}");
}
