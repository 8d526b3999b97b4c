//! A server out of memory: no new key, but everything that is there goes on.

use onlyonce_core::operate::StateName;
use onlyonce_core::{Claim, Claimed, Completed, Release, Released, Renewed, Store, StoreErrorKind};
use onlyonce_redis::RedisStore;
use onlyonce_testkit::servers::Server;

use super::claims::{LONG, answer, done, fresh, granted, replayed, rival};
use super::private::{start, tell};

#[tokio::test]
async fn a_full_server_takes_no_new_key_but_finishes_and_replays() {
    goes_on_when_full("").await;
}

#[tokio::test]
async fn a_full_server_does_so_with_scripted_claims_too() {
    goes_on_when_full("?claim=script").await;
}

async fn goes_on_when_full(options: &str) {
    let server = start(&["maxmemory-policy noeviction"]);
    let store = RedisStore::open(&(server.url() + options)).await.unwrap();
    let finished = done(&store, "stored").await;
    let lapsed = Claim {
        lease_for: std::time::Duration::ZERO,
        ..fresh()
    };
    granted(&store, &lapsed).await;
    let [running, given_back, unknown, repeated] = [fresh(), fresh(), fresh(), fresh()];
    for claim in [&running, &given_back, &unknown, &repeated] {
        granted(&store, claim).await;
    }
    let operate = store.operate().unwrap();
    assert_eq!(operate.agree("secret", b"first").await.unwrap(), b"first");

    tell::<redis::Value>(&server, &["CONFIG", "SET", "maxmemory", "1"]).await;

    let error = store.claim(&fresh()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Full);
    assert_eq!(replayed(&store, &finished).await, b"stored");
    assert_eq!(operate.agree("secret", b"late").await.unwrap(), b"first");
    assert_eq!(granted(&store, &repeated).await.attempt, 1);
    assert_eq!(granted(&store, &rival(&lapsed)).await.attempt, 2);
    let renewed = store.renew(&running.lease(), LONG).await.unwrap();
    assert!(matches!(renewed, Renewed::Kept));
    let completed = store
        .complete(&running.lease(), &answer("late"), LONG)
        .await;
    assert!(
        matches!(completed, Ok(Completed::Stored(_))),
        "{completed:?}"
    );
    assert_eq!(replayed(&store, &running).await, b"late");
    for (claim, why) in [(&given_back, Release::NotRun), (&unknown, Release::Unknown)] {
        let released = store.release(&claim.lease(), why).await;
        assert!(matches!(released, Ok(Released::Ended)), "{released:?}");
    }
    let taken = store.claim(&rival(&given_back)).await.unwrap_err();
    assert_eq!(taken.kind, StoreErrorKind::Full);
    let late = store.claim(&given_back).await.unwrap();
    assert!(matches!(late, Claimed::Dead), "{late:?}");
    operate.count_replays(&[(finished.slot, 2)]).await.unwrap();
    assert!(operate.extend(&finished.slot, LONG).await.unwrap());
    let record = operate.get(&finished.slot).await.unwrap().unwrap();
    assert_eq!(record.replays, 2);
    assert_eq!(StateName::of(&record), StateName::Done);
    assert!(operate.forget(&finished.slot).await.unwrap());
}
