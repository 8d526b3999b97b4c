//! What one node has acknowledged, every other one knows when it is asked, also one that is behind.

use onlyonce_core::{Completed, Renewed};

use super::*;
use crate::rough::{LONG, answer, claim, lease, replayed};

/// So many rows keep a node busy for a moment.
const ROWS: usize = 250_000;

/// Gives the other nodes something to catch up with, and says whether this one still has to.
async fn is_behind(cluster: &Galera, node: usize, filler: &str) -> bool {
    let many = format!("INSERT INTO {filler} SELECT UUID() FROM seq_1_to_{ROWS}");
    block_in_place(|| cluster.nodes()[0].sql(&many)).unwrap();
    has_none(cluster, node, filler)
}

/// Whether the node has not caught up yet: an administrator's session waits for nothing.
fn has_none(cluster: &Galera, node: usize, filler: &str) -> bool {
    let count = format!("SELECT COUNT(*) FROM {filler}");
    block_in_place(|| cluster.nodes()[node].sql(&count)).unwrap() == "0"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_is_behind_still_sees_what_another_one_acknowledged() {
    let cluster = cluster().await;
    let table = table();
    let open = async |first: usize| {
        // Catching up may take long on a busy machine.
        let url = format!("{}&timeout_ms=60000", url(&cluster, first, &table));
        onlyonce_stores::open(&url).await.unwrap()
    };
    let (here, there) = (open(0).await, open(1).await);
    // A connection that is there already.
    there.operate().unwrap().ping().await.unwrap();

    let mut met = 0;
    for round in 0..10 {
        let filler = format!("filler_{round}_{}", random());
        let made = format!("CREATE TABLE {filler} (x CHAR(36)) ENGINE = InnoDB");
        block_in_place(|| cluster.nodes()[0].sql(&made)).unwrap();
        synced(&cluster, &[0, 1, 2]).await;
        let behind = is_behind(&cluster, 1, &filler).await;
        let claims = [claim(), claim(), claim(), claim()];
        let [first, second, third, fourth] = &claims;
        let held = lease(&*here, first).await;
        here.complete(&held, &answer("stored"), LONG).await.unwrap();
        let mut leases = Vec::new();
        for claim in [second, third, fourth] {
            leases.push(lease(&*here, claim).await);
        }
        let was_behind = behind && has_none(&cluster, 1, &filler);

        // Every one of these is decided by a read.
        let elsewhere = answer("elsewhere");
        let (got, renewed, completed, claimed) = tokio::join!(
            there.operate().unwrap().get(&first.slot),
            there.renew(&leases[0], LONG),
            there.complete(&leases[1], &elsewhere, LONG),
            replayed(&*there, first),
        );

        assert!(got.unwrap().is_some(), "the answer was not seen");
        assert!(matches!(renewed, Ok(Renewed::Kept)), "{renewed:?}");
        assert!(
            matches!(completed, Ok(Completed::Stored(_))),
            "{completed:?}"
        );
        assert_eq!(claimed, b"stored");
        assert_eq!(replayed(&*here, third).await, b"elsewhere");
        let dropped = format!("DROP TABLE {filler}");
        block_in_place(|| cluster.nodes()[0].sql(&dropped)).unwrap();
        met += usize::from(was_behind);
        if met == 2 {
            return;
        }
    }
    panic!("the node was never behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn processes_on_several_nodes_may_make_the_tables_at_once() {
    let cluster = cluster().await;

    for _ in 0..5 {
        let table = table();
        let opening: Vec<_> = (0..6)
            .map(|n| {
                let url = url(&cluster, n % 3, &table);
                tokio::spawn(async move { onlyonce_stores::open(&url).await })
            })
            .collect();
        for opened in opening {
            let store = opened.await.unwrap().unwrap();
            let claim = claim();
            let held = lease(&*store, &claim).await;
            store
                .complete(&held, &answer("stored"), LONG)
                .await
                .unwrap();
            assert_eq!(replayed(&*store, &claim).await, b"stored");
        }
    }
}
