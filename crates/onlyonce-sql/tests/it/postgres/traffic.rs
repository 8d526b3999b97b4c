//! What the store costs its server: round trips, and transaction ids.

use onlyonce_core::Store;
use onlyonce_sql::PostgresStore;
use onlyonce_testkit::proxy::Proxy;
use onlyonce_testkit::servers::{Postgres, PostgresOptions, Server};

use super::bed::{Bed, direct_url, with_options};
use super::support::{answer, done, fresh, granted, rival, stored, taken};

#[tokio::test]
async fn a_new_request_takes_two_round_trips_and_a_replay_one() {
    let bed = Bed::direct().await;
    let proxy = Proxy::start(&direct_url()).await.unwrap();
    for (pooled, notify) in [("false", "false"), ("true", "false")] {
        let options = format!(
            "table={}&connections=1&sslmode=disable&notify={notify}&pooled={pooled}",
            bed.table
        );
        let store = PostgresStore::open(&with_options(proxy.url(), &options))
            .await
            .unwrap();
        let known = done(&store, "prepares").await;
        taken(&store, &rival(&known)).await;

        let before = proxy.round_trips();
        for _ in 0..10 {
            done(&store, "new").await;
        }
        assert_eq!(proxy.round_trips() - before, 20, "pooled: {pooled}");

        let before = proxy.round_trips();
        for _ in 0..10 {
            taken(&store, &rival(&known)).await;
        }
        assert_eq!(proxy.round_trips() - before, 10, "pooled: {pooled}");
    }
}

/// On a server of its own: transaction ids are counted for all databases together.
#[tokio::test]
async fn a_replay_takes_no_transaction_id() {
    let server = Postgres::start(PostgresOptions::default()).unwrap();
    let bed = Bed::open(&server.url(), "").await;
    let store = &bed.store;
    let known = done(store, "known").await;
    let next = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::int8";
    // What is announced, and what the server does for itself, is over.
    let settled = async || {
        let mut last = bed.number(next.to_owned()).await;
        loop {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            let now = bed.number(next.to_owned()).await;
            if now == last {
                return now;
            }
            last = now;
        }
    };
    let before = settled().await;

    for _ in 0..100 {
        taken(store, &rival(&known)).await;
    }

    assert_eq!(bed.number(next.to_owned()).await, before);
    let claim = fresh();
    let lease = granted(store, &claim).await;
    let completed = store
        .complete(&lease, &answer("counts"), lease.keep_for)
        .await;
    assert!(completed.is_ok());
    assert!(bed.number(next.to_owned()).await > before);
    stored(store, &granted(store, &fresh()).await, "more").await;
}
