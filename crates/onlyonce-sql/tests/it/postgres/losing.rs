//! A connection that loses replies, hangs or breaks: what was asked is asked again where that is
//! safe, and what cannot be known is said.

use std::time::Duration;

use onlyonce_core::operate::StateName;
use onlyonce_core::{
    Claimed, Completed, Operate, Release, Released, Renewed, Store, StoreErrorKind,
};
use onlyonce_sql::PostgresStore;
use onlyonce_testkit::proxy::Proxy;

use super::bed::{Bed, direct_url, with_options};
use super::support::{LONG, answer, body, done, fresh, granted, rival, taken, until};

/// A store whose server is behind a proxy.
async fn behind(bed: &Bed, options: &str) -> (Proxy, PostgresStore) {
    let proxy = Proxy::start(&direct_url()).await.unwrap();
    let options = format!("table={}&sslmode=disable&notify=false{options}", bed.table);
    let store = PostgresStore::open(&with_options(proxy.url(), &options)).await;
    (proxy, store.unwrap())
}

#[tokio::test]
async fn a_lost_reply_changes_no_answer() {
    let bed = Bed::direct().await;
    let (proxy, store) = behind(&bed, "&connections=1").await;
    done(&store, "prepares").await;
    let claim = fresh();

    proxy.drop_replies(1);
    let lease = granted(&store, &claim).await;
    assert_eq!(lease, claim.lease());

    proxy.drop_replies(1);
    let renewed = store.renew(&lease, LONG).await;
    assert!(matches!(renewed, Ok(Renewed::Kept)), "{renewed:?}");

    proxy.drop_replies(1);
    let completed = store.complete(&lease, &answer("once"), LONG).await;
    // What was lost may be the reply to its preparation: then this one stored it. Otherwise the
    // first did, and this is its trace.
    match completed {
        Ok(Completed::Stored(_)) => {}
        Ok(Completed::Found(record)) => {
            assert_eq!((record.token, body(&record)), (claim.token, &b"once"[..]));
        }
        other => panic!("{other:?}"),
    }

    proxy.drop_replies(1);
    assert_eq!(body(&taken(&store, &rival(&claim)).await), b"once");

    let given_back = fresh();
    let lease = granted(&store, &given_back).await;
    proxy.drop_replies(1);
    let released = store.release(&lease, Release::NotRun).await;
    assert!(matches!(released, Ok(Released::Ended)), "{released:?}");
    assert!(matches!(store.claim(&given_back).await, Ok(Claimed::Dead)));
}

/// Adding twice is not adding once.
#[tokio::test]
async fn what_adds_is_not_repeated_after_a_lost_reply() {
    let bed = Bed::direct().await;
    let (proxy, store) = behind(&bed, "&connections=1").await;
    let claim = done(&store, "counted").await;
    store.count_replays(&[(claim.slot, 1)]).await.unwrap();
    assert!(store.extend(&claim.slot, LONG).await.unwrap());
    let before = store.get(&claim.slot).await.unwrap().unwrap();

    proxy.drop_replies(1);
    let counted = store.count_replays(&[(claim.slot, 1)]).await;
    assert_eq!(counted.unwrap_err().kind, StoreErrorKind::Unavailable);
    // A new connection first asks for more than the statement: it is warmed up before the loss.
    store.ping().await.unwrap();
    assert!(store.extend(&claim.slot, Duration::ZERO).await.unwrap());
    proxy.drop_replies(1);
    let extended = store.extend(&claim.slot, LONG).await;
    assert_eq!(extended.unwrap_err().kind, StoreErrorKind::Unavailable);

    let after = bed.store.get(&claim.slot).await.unwrap().unwrap();
    assert_eq!(after.replays, 2);
    assert!(after.keep_left <= before.keep_left + LONG);
}

#[tokio::test]
async fn a_server_that_hangs_is_unavailable_and_then_is_not() {
    let bed = Bed::direct().await;
    let (proxy, store) = behind(&bed, "&timeout_ms=300&connect_timeout_ms=500").await;
    let known = done(&store, "known").await;

    proxy.stall().await;
    let claimed = store.claim(&fresh()).await;
    assert_eq!(claimed.unwrap_err().kind, StoreErrorKind::Unavailable);
    let waited = store.settled(&known.slot, &known.token, LONG).await;
    assert_eq!(waited.unwrap_err().kind, StoreErrorKind::Unavailable);

    proxy.resume().await.unwrap();
    until(async || store.claim(&rival(&known)).await.is_ok()).await;
}

#[tokio::test]
async fn connections_that_were_cut_are_made_again_unnoticed() {
    let bed = Bed::direct().await;
    let (proxy, store) = behind(&bed, "").await;
    let claim = fresh();
    granted(&store, &claim).await;
    futures_util::future::join_all((0..8).map(|_| done(&store, "fills the pool"))).await;

    for _ in 0..5 {
        proxy.cut().await.unwrap();
        let found = taken(&store, &rival(&claim)).await;
        assert_eq!(StateName::of(&found), StateName::Pending);
        done(&store, "as ever").await;
    }

    proxy.refuse().await.unwrap();
    let claimed = store.claim(&fresh()).await;
    assert_eq!(claimed.unwrap_err().kind, StoreErrorKind::Unavailable);
    proxy.resume().await.unwrap();
    until(async || store.claim(&rival(&claim)).await.is_ok()).await;
}
