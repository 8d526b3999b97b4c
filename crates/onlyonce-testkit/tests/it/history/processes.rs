//! Real processes: killed, stopped, cut off, under shifted clocks.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{MemoryStore, Store};
use onlyonce_testkit::history::{Load, Program, Run, RunError, is_worker, worker_main};

use super::flawed::{Flaw, Flawed};
use super::remote::{Remote, Server};

/// What the runs below start as their workers; nothing otherwise.
#[test]
fn a_worker() {
    if is_worker() {
        worker_main(async |url: &str| open(url)).unwrap();
    }
}

fn open(url: &str) -> Result<Arc<dyn Store>, String> {
    match url {
        "memory:" => Ok(Arc::new(MemoryStore::new())),
        url => Remote::open(url),
    }
}

fn run(url: &str) -> Run {
    let worker = Program::this_test("history::processes::a_worker").expect("this is a program");
    let mut run = Run::new(url, worker);
    run.load = Load {
        lasts: Duration::from_secs(4),
        calls: 2000,
        keys: 240,
        leases: vec![500, 800],
        faults: 12,
        ..Load::usual()
    };
    run
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_stopped_and_cut_off_processes_on_a_sound_store_break_no_rule() {
    let server = Server::start(Arc::new(MemoryStore::new())).await.unwrap();
    let mut run = run(&server.url);
    run.offsets = vec![String::new(), "+10m".to_owned(), "-10m".to_owned()];
    run.store_fault = Some(server.cut());

    let report = match run.execute().await {
        // Shifted clocks are for machines that can shift them.
        Err(RunError::NoFaketime) => {
            run.offsets.clear();
            run.execute().await
        }
        report => report,
    };

    let report = report.unwrap();
    assert!(report.is_clean(), "{report}");
    for fault in ["kill", "stop", "store"] {
        assert!(report.faults[fault] > 0, "{report}");
    }
    let shifted = report.clocks_apart > Duration::from_secs(19 * 60);
    assert_eq!(shifted, !run.offsets.is_empty(), "{report}");
    assert!(report.heard["replayed"] > 0, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flawed_store_is_caught_by_processes_too() {
    let server = Server::start(Arc::new(Flawed::new(Flaw::SplitClaim)));
    let server = server.await.unwrap();
    let logs = tempfile::tempdir().unwrap();
    let mut run = run(&server.url);
    run.load.lasts = Duration::from_secs(1);
    run.logs = Some(logs.path().to_owned());

    let report = run.execute().await.unwrap();

    assert!(!report.is_clean(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_forgets_when_its_process_dies_is_caught() {
    let logs = tempfile::tempdir().unwrap();
    let mut run = run("memory:");
    run.processes = 1;
    run.logs = Some(logs.path().to_owned());

    let report = run.execute().await.unwrap();

    assert!(report.faults["kill"] > 0, "{report}");
    let lost = "what was told as stored is not run again before it expires";
    assert!(report.breaks(lost), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_cannot_work_is_told() {
    let mut run = run("nothing:");
    run.load.lasts = Duration::from_millis(100);

    let told = run.execute().await.unwrap_err();

    assert!(matches!(&told, RunError::Worker { .. }), "{told}");
    assert!(told.to_string().contains("no address"), "{told}");
}
