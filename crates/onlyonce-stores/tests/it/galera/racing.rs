//! The same requests on three nodes at the same time: the cluster decides at the commit, and who was
//! slower hears of a certification failure.

use std::sync::atomic::Ordering;

use futures_util::future::join_all;

use super::*;

const KEYS: usize = 150;

/// How often a node undid what another one was faster with.
fn conflicts(cluster: &Galera) -> u64 {
    let count = "SHOW STATUS WHERE Variable_name IN \
                 ('wsrep_local_cert_failures', 'wsrep_local_bf_aborts')";
    let nodes = cluster.nodes().iter();
    let told: Vec<_> = nodes.map(|node| node.sql(count).unwrap()).collect();
    told.iter()
        .flat_map(|told| told.lines())
        .filter_map(|line| line.rsplit('\t').next()?.parse::<u64>().ok())
        .sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn duplicates_on_three_nodes_run_once_and_lost_races_are_no_failures_of_the_store() {
    let cluster = cluster().await;
    let bed = Bed::start(&cluster).await;
    let before = block_in_place(|| conflicts(&cluster));

    // Two of each to every process, all at the same moment.
    for key in 0..KEYS {
        let key = format!("key-{key}-{}", random());
        let calls = (0..6).map(|n| bed.call(n % 3, &key));
        join_all(calls).await;
    }

    assert_eq!(bed.refused.load(Ordering::Relaxed), 0);
    assert_eq!(bed.check().await, KEYS);
    assert_eq!(bed.opened(), 0);
    let lost = block_in_place(|| conflicts(&cluster)) - before;
    assert!(lost > 0, "nobody was in anybody's way");
}
