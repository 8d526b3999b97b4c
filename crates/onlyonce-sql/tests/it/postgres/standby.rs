//! A primary with a synchronous standby: nobody hears an answer that the standby does not have.

use std::sync::Arc;

use onlyonce_core::{Claimed, Operate, Store, StoreErrorKind};
use onlyonce_sql::PostgresStore;
use onlyonce_testkit::servers::{Postgres, PostgresOptions, Server};

use super::support::{LONG, answer, body, done, fresh, granted, rival, until};

const OPTIONS: &str = "notify=false&timeout_ms=1000&connect_timeout_ms=1000";

async fn store(server: &Postgres) -> Arc<PostgresStore> {
    let url = format!("{}?{OPTIONS}", server.url());
    Arc::new(PostgresStore::open(&url).await.unwrap())
}

/// A primary and the standby that its commits wait for.
fn pair() -> (Postgres, Postgres) {
    let primary = Postgres::start(PostgresOptions::default()).unwrap();
    let standby = primary.standby().unwrap();
    primary.synchronous().unwrap();
    (primary, standby)
}

/// The retry is what tells its caller "done": a standby that is promoted next must know of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_only_the_primary_has_is_not_replayed() {
    let (primary, standby) = tokio::task::block_in_place(pair);
    let url = format!("{}?{OPTIONS}", primary.url());
    let store = store(&primary).await;
    done(&store, "with its standby").await;
    store.agree("a name", b"a value").await.unwrap();
    let claim = fresh();
    let lease = granted(&store, &claim).await;

    // Its commit hangs: it is on the primary's disk alone.
    tokio::task::block_in_place(|| standby.terminate()).unwrap();
    let completed = store.complete(&lease, &answer("once"), LONG).await;
    assert_eq!(completed.unwrap_err().kind, StoreErrorKind::Unavailable);
    tokio::task::block_in_place(|| {
        primary.kill().unwrap();
        primary.start_again().unwrap();
    });

    // The tables are there already: opening writes nothing.
    let store = PostgresStore::open(&url).await.unwrap();
    let seen = store.get(&claim.slot).await.unwrap().unwrap();
    assert_eq!(body(&seen), b"once", "it is what the primary has");
    let told = store.get_durable(&claim.slot).await;
    assert_eq!(told.unwrap_err().kind, StoreErrorKind::Unavailable);
    let retried = store.claim(&rival(&claim)).await;
    assert_eq!(retried.unwrap_err().kind, StoreErrorKind::Unavailable);
    let again = store.complete(&lease, &answer("once"), LONG).await;
    assert_eq!(again.unwrap_err().kind, StoreErrorKind::Unavailable);
    let agreed = store.agreed("a name").await;
    assert_eq!(agreed.unwrap_err().kind, StoreErrorKind::Unavailable);

    // With its standby it may be told, and then a failover does not forget it.
    tokio::task::block_in_place(|| standby.start_again()).unwrap();
    until(async || store.claim(&rival(&claim)).await.is_ok()).await;
    let told = store.get_durable(&claim.slot).await.unwrap().unwrap();
    assert_eq!(body(&told), b"once");
    tokio::task::block_in_place(|| {
        primary.kill().unwrap();
        standby.promote().unwrap();
    });
    let promoted = self::store(&standby).await;
    match promoted.claim(&rival(&claim)).await {
        Ok(Claimed::Taken(record)) => assert_eq!(body(&record), b"once"),
        other => panic!("the standby forgot: {other:?}"),
    }
}

/// A commit that waits for a standby is not ended by any timeout of the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_that_wait_for_a_standby_do_not_pile_up() {
    const CONNECTIONS: i64 = 2;
    let (primary, standby) = tokio::task::block_in_place(pair);
    let url = format!(
        "{}?notify=false&timeout_ms=200&connections={CONNECTIONS}&application_name=waits",
        primary.url()
    );
    let store = PostgresStore::open(&url).await.unwrap();
    tokio::task::block_in_place(|| standby.terminate()).unwrap();

    for _ in 0..8 {
        let claimed = store.claim(&fresh()).await;
        assert_eq!(claimed.unwrap_err().kind, StoreErrorKind::Unavailable);
    }
    // One more that cancels. What was closed is gone a moment later.
    until(async || {
        let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waits'";
        let count = tokio::task::block_in_place(|| primary.psql(count)).unwrap();
        count.trim().parse::<i64>().unwrap() <= CONNECTIONS + 1
    })
    .await;

    tokio::task::block_in_place(|| standby.start_again()).unwrap();
    until(async || store.claim(&fresh()).await.is_ok()).await;
}

#[tokio::test]
async fn without_a_standby_a_replay_still_takes_no_transaction() {
    let bed = super::bed::Bed::direct().await;
    let claim = done(&bed.store, "read only").await;
    let newest = || bed.number("SELECT txid_snapshot_xmax(txid_current_snapshot())".to_owned());

    // Others use the same server: one look without a transaction of theirs in between is enough.
    until(async || {
        let before = newest().await;
        let found = bed.store.claim(&rival(&claim)).await;
        assert!(matches!(found, Ok(Claimed::Taken(_))));
        newest().await == before
    })
    .await;
}
