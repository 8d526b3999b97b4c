//! Released tokens: dead for one lease, whatever becomes of the key they lie in.

use std::time::Duration;

use onlyonce_core::operate::{Filter, Page};
use onlyonce_core::{Claim, Claimed, Release, Store};
use onlyonce_redis::RedisStore;
use onlyonce_testkit::servers::Server;

use super::claims::{LONG, answer, fresh, granted, rival};
use super::private::{eventually, start, tell};

const MOMENT: Duration = Duration::from_millis(1);

/// An answer kept for a moment must not take the graves beside it along.
#[tokio::test]
async fn a_grave_outlives_the_record_it_lies_in() {
    let server = start(&[]);
    for options in ["", "?claim=script"] {
        let store = RedisStore::open(&(server.url() + options)).await.unwrap();
        let operate = store.operate().unwrap();
        let dead = fresh();
        store.release(&dead.lease(), Release::NotRun).await.unwrap();
        let next = rival(&dead);
        let lease = granted(&store, &next).await;
        store.complete(&lease, &answer("x"), MOMENT).await.unwrap();

        eventually("the answer is gone", async || {
            operate.get(&dead.slot).await.unwrap().is_none()
        })
        .await;

        assert_is_absent(&store, &next).await;
        let late = store.claim(&dead).await.unwrap();
        assert!(matches!(late, Claimed::Dead), "{late:?}");
        granted(&store, &rival(&dead)).await;
        let late = store.claim(&dead).await.unwrap();
        assert!(!matches!(late, Claimed::Granted { .. }), "{late:?}");
        operate.forget(&dead.slot).await.unwrap();
        let late = store.claim(&dead).await.unwrap();
        assert!(matches!(late, Claimed::Dead), "{late:?}");
        operate.forget(&dead.slot).await.unwrap();
    }
}

async fn assert_is_absent(store: &RedisStore, claim: &Claim) {
    let operate = store.operate().unwrap();
    let (lease, all) = (
        claim.lease(),
        Page {
            after: None,
            records_max: 9,
        },
    );
    assert_eq!(operate.stats().await.unwrap().records, 0);
    assert!(
        operate
            .list(&Filter::default(), &all)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(!operate.forget(&claim.slot).await.unwrap());
    assert!(!operate.extend(&claim.slot, LONG).await.unwrap());
    operate.count_replays(&[(claim.slot, 1)]).await.unwrap();
    let completed = store.complete(&lease, &answer("y"), LONG).await.unwrap();
    assert!(
        matches!(completed, onlyonce_core::Completed::Absent),
        "{completed:?}"
    );
    let renewed = store.renew(&lease, LONG).await.unwrap();
    assert!(matches!(renewed, onlyonce_core::Renewed::Lost));
    store
        .settled(&claim.slot, &claim.token, LONG)
        .await
        .unwrap();
}

#[tokio::test]
async fn the_graves_of_a_slot_are_bounded() {
    let server = start(&[]);
    let store = RedisStore::open(&server.url()).await.unwrap();
    let first = fresh();
    let dead: Vec<_> = (0..80).map(|_| rival(&first)).collect();
    for claim in &dead {
        store
            .release(&claim.lease(), Release::NotRun)
            .await
            .unwrap();
    }
    let size: usize = tell(&server, &["STRLEN", &format!("onlyonce:{}", first.slot)]).await;

    assert!(size < 2048, "{size} bytes");
    for claim in &dead[16..] {
        let late = store.claim(claim).await.unwrap();
        assert!(matches!(late, Claimed::Dead), "{late:?}");
    }
}

#[tokio::test]
async fn a_grave_is_forgotten_after_one_lease() {
    let server = start(&[]);
    let store = RedisStore::open(&server.url()).await.unwrap();
    let claim = Claim {
        lease_for: Duration::from_millis(50),
        ..fresh()
    };
    store
        .release(&claim.lease(), Release::NotRun)
        .await
        .unwrap();

    eventually("nothing is left", async || {
        tell::<u64>(&server, &["DBSIZE"]).await == 0
    })
    .await;

    granted(&store, &claim).await;
}
