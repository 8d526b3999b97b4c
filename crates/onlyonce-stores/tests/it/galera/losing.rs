//! Nodes that are killed, stopped and cut off under load.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use onlyonce_testkit::servers::Server;

use super::*;

/// Streams of requests; each key of a stream comes to all processes.
const STREAMS: usize = 3;

/// Load on all processes until it is ended; then every key has been answered everywhere.
struct Load {
    over: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<usize>>,
}

impl Load {
    fn start(bed: &Arc<Bed>) -> Self {
        let (over, name) = (Arc::new(AtomicBool::new(false)), random());
        let tasks = (0..3 * STREAMS)
            .map(|n| {
                let (bed, over) = (Arc::clone(bed), Arc::clone(&over));
                tokio::spawn(async move {
                    let (process, stream) = (n % 3, n / 3);
                    let mut keys = 0;
                    while !over.load(Ordering::SeqCst) {
                        let key = format!("key-{name}-{stream}-{keys}");
                        bed.insist(process, &key).await;
                        keys += 1;
                    }
                    keys
                })
            })
            .collect();
        Self { over, tasks }
    }

    async fn end(self) {
        self.over.store(true, Ordering::SeqCst);
        let keys = join_all(self.tasks).await;
        assert!(keys.into_iter().all(|keys| keys.unwrap() > 0));
    }
}

/// Each process takes a new key.
async fn all_serve(bed: &Bed) {
    for process in 0..3 {
        bed.insist(process, &format!("key-{}", random())).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_is_killed_or_stopped_loses_nothing_and_comes_back() {
    let cluster = cluster().await;
    let bed = Bed::start(&cluster).await;
    let load = Load::start(&bed);
    all_serve(&bed).await;

    // Stopped in order, it says goodbye: nobody has to wait, and nobody is refused.
    let (opened, refused) = (bed.opened(), bed.refused.load(Ordering::Relaxed));
    block_in_place(|| cluster.nodes()[1].terminate()).unwrap();
    all_serve(&bed).await;
    block_in_place(|| cluster.nodes()[1].start_again()).unwrap();
    all_serve(&bed).await;
    assert_eq!(bed.opened(), opened, "a breaker opened");
    let needless = bed.refused.load(Ordering::Relaxed) - refused;
    assert_eq!(needless, 0, "requests were refused");

    // Killed, its cluster waits until it is sure of that.
    block_in_place(|| cluster.nodes()[0].kill()).unwrap();
    all_serve(&bed).await;
    block_in_place(|| cluster.nodes()[0].start_again()).unwrap();
    all_serve(&bed).await;

    load.end().await;
    bed.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_without_its_majority_refuses_and_runs_nothing() {
    let cluster = cluster().await;
    let bed = Bed::start(&cluster).await;
    let load = Load::start(&bed);
    all_serve(&bed).await;

    block_in_place(|| {
        cluster.nodes()[1].pause().unwrap();
        cluster.nodes()[2].pause().unwrap();
    });
    until(async || !block_in_place(|| cluster.nodes()[0].is_synced())).await;
    let ran = lock(&bed.ran).len();
    let alone = format!("key-{}", random());
    let calls = (0..3).map(|process| bed.call(process, &alone));
    let answers = join_all(calls).await;
    assert!(answers.iter().all(Option::is_none), "it was not refused");
    assert_eq!(lock(&bed.ran).len(), ran, "a minority ran something");
    let table = table();
    let opened = onlyonce_stores::open(&url(&cluster, 0, &table)).await;
    assert!(opened.is_err(), "a minority made tables");

    block_in_place(|| {
        cluster.nodes()[1].resume().unwrap();
        cluster.nodes()[2].resume().unwrap();
    });
    synced(&cluster, &[0, 1, 2]).await;
    all_serve(&bed).await;
    load.end().await;
    bed.insist(0, &alone).await;
    bed.check().await;
}
