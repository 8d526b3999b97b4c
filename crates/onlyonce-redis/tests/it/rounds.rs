//! What a request costs in round trips, and that many callers share them.

use futures_util::future::join_all;
use onlyonce_core::{Claimed, Store};
use onlyonce_redis::RedisStore;
use onlyonce_testkit::proxy::Proxy;
use onlyonce_testkit::servers::{Redis, Server};

use super::claims::{LONG, answer, done, fresh, granted, rival};
use super::private::{start, tell};

/// A store with one connection, warm, and what counts its round trips.
async fn counted(server: &Redis) -> (RedisStore, Proxy) {
    let proxy = Proxy::start(&server.url()).await.unwrap();
    let url = format!("{}?connections=1", proxy.url());
    let store = RedisStore::open(&url).await.unwrap();
    // The server learns the scripts.
    done(&store, "first").await;
    (store, proxy)
}

#[tokio::test]
async fn a_new_request_takes_two_round_trips_and_a_replay_one() {
    let server = start(&[]);
    let (store, proxy) = counted(&server).await;
    let before = proxy.round_trips();

    let claim = fresh();
    let lease = granted(&store, &claim).await;
    let claimed = proxy.round_trips();
    store.complete(&lease, &answer("x"), LONG).await.unwrap();
    let completed = proxy.round_trips();
    let replay = store.claim(&rival(&claim)).await.unwrap();
    let replayed = proxy.round_trips();

    assert!(matches!(replay, Claimed::Taken(_)));
    assert_eq!(claimed - before, 1);
    assert_eq!(completed - claimed, 1);
    assert_eq!(replayed - completed, 1);
    assert_eq!(proxy.connections(), 1);
}

#[tokio::test]
async fn a_new_claim_and_a_replay_run_no_script() {
    let server = start(&[]);
    let (store, _proxy) = counted(&server).await;
    tell::<redis::Value>(&server, &["CONFIG", "RESETSTAT"]).await;

    let claim = fresh();
    let lease = granted(&store, &claim).await;
    let told: String = tell(&server, &["INFO", "commandstats"]).await;
    assert!(!told.contains("cmdstat_eval"), "{told}");

    store.complete(&lease, &answer("x"), LONG).await.unwrap();
    tell::<redis::Value>(&server, &["CONFIG", "RESETSTAT"]).await;
    store.claim(&rival(&claim)).await.unwrap();
    let told: String = tell(&server, &["INFO", "commandstats"]).await;
    assert!(!told.contains("cmdstat_eval"), "{told}");
    assert!(told.contains("cmdstat_set:calls=1"), "{told}");
}

#[tokio::test]
async fn many_callers_share_their_round_trips() {
    const CALLERS: u64 = 64;
    let server = start(&[]);
    let (store, proxy) = counted(&server).await;
    let before = proxy.round_trips();

    let claims: Vec<_> = (0..CALLERS).map(|_| fresh()).collect();
    join_all(claims.iter().map(|claim| store.claim(claim))).await;

    let taken = proxy.round_trips() - before;
    assert!(taken <= CALLERS / 4, "{taken} round trips");
}

#[tokio::test]
async fn counts_of_replays_go_together() {
    let server = start(&[]);
    let (store, proxy) = counted(&server).await;
    let slots: Vec<_> = join_all((0..100).map(|_| done(&store, "x"))).await;
    let counts: Vec<_> = slots.iter().map(|claim| (claim.slot, 3)).collect();
    let operate = store.operate().unwrap();
    operate.count_replays(&counts[..1]).await.unwrap();
    let before = proxy.round_trips();

    operate.count_replays(&counts).await.unwrap();

    let taken = proxy.round_trips() - before;
    assert!(taken <= 25, "{taken} round trips");
    let last = operate.get(&counts[99].0).await.unwrap().unwrap();
    assert_eq!(last.replays, 3);
}
