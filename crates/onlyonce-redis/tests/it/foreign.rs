//! What somebody else put where a record should be, or did to it.

use std::time::Duration;

use onlyonce_core::operate::StateName;
use onlyonce_core::{Claim, Claimed, OnLapse, Release, Renewed, Store, StoreErrorKind};
use onlyonce_redis::RedisStore;
use onlyonce_testkit::servers::{Redis, Server};

use super::claims::{LONG, answer, done, fresh, granted, rival};
use super::private::{start, tell};

#[tokio::test]
async fn what_is_no_record_is_corrupt_and_can_be_forgotten() {
    let server = start(&[]);
    for options in ["", "?claim=script"] {
        let store = RedisStore::open(&(server.url() + options)).await.unwrap();
        for made in [
            &["SET", "garbage"][..],
            &["SET", ""],
            &["SET", "O1P and no more than that"],
            &["RPUSH", "a list"],
            &["HSET", "a", "hash"],
        ] {
            let claim = fresh();
            put(&server, &claim, made).await;

            assert_corrupt(&store, &claim).await;

            assert!(store.operate().unwrap().forget(&claim.slot).await.unwrap());
            granted(&store, &claim).await;
        }
    }
}

#[tokio::test]
async fn a_damaged_answer_is_corrupt() {
    let server = start(&[]);
    let store = RedisStore::open(&server.url()).await.unwrap();
    let claim = done(&store, "stored").await;
    let key = format!("onlyonce:{}", claim.slot);
    let length: usize = tell(&server, &["STRLEN", &key]).await;

    let end = (length - 6).to_string();
    tell::<redis::Value>(&server, &["SETRANGE", &key, &end, "!"]).await;

    let error = store.claim(&rival(&claim)).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Corrupt);
}

async fn put(server: &Redis, claim: &Claim, made: &[&str]) {
    let key = format!("onlyonce:{}", claim.slot);
    let mut words = vec![made[0], &key];
    words.extend(&made[1..]);
    tell::<redis::Value>(server, &words).await;
}

async fn assert_corrupt(store: &RedisStore, claim: &Claim) {
    let lease = claim.lease();
    let operate = store.operate().unwrap();
    let errors = [
        store.claim(claim).await.unwrap_err(),
        store
            .complete(&lease, &answer("x"), LONG)
            .await
            .unwrap_err(),
        store.release(&lease, Release::NotRun).await.unwrap_err(),
        store.release(&lease, Release::Unknown).await.unwrap_err(),
        operate.get(&claim.slot).await.unwrap_err(),
        operate
            .resolve(&claim.slot, &answer("x"), LONG)
            .await
            .unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind, StoreErrorKind::Corrupt, "{error:?}");
    }
    // What is not ours was never ours to renew.
    match store.renew(&lease, LONG).await {
        Ok(renewed) => assert!(matches!(renewed, Renewed::Lost)),
        Err(error) => assert_eq!(error.kind, StoreErrorKind::Corrupt),
    }
    store
        .settled(&claim.slot, &claim.token, LONG)
        .await
        .unwrap();
}

/// A key that lost its end has been meddled with: it is alive, however long ago its lease was.
#[tokio::test]
async fn a_claim_without_an_end_is_never_lapsed() {
    let server = start(&[]);
    for options in ["", "?claim=script"] {
        let store = RedisStore::open(&(server.url() + options)).await.unwrap();
        let claim = Claim {
            lease_for: Duration::from_millis(1),
            ..fresh()
        };
        granted(&store, &claim).await;
        tell::<redis::Value>(&server, &["PERSIST", &format!("onlyonce:{}", claim.slot)]).await;
        tokio::time::sleep(Duration::from_millis(20)).await;

        match store.claim(&rival(&claim)).await.unwrap() {
            Claimed::Taken(record) => assert_eq!(StateName::of(&record), StateName::Pending),
            other @ (Claimed::Granted { .. } | Claimed::Dead) => panic!("{other:?}"),
        }
        let record = store.operate().unwrap().get(&claim.slot).await.unwrap();
        assert_eq!(StateName::of(&record.unwrap()), StateName::Pending);
        store
            .complete(&claim.lease(), &answer("x"), LONG)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn the_longest_durations_are_for_ever() {
    let server = start(&[]);
    for options in ["", "?claim=script"] {
        let store = RedisStore::open(&(server.url() + options)).await.unwrap();
        let operate = store.operate().unwrap();
        let claim = Claim {
            lease_for: Duration::MAX,
            keep_for: Duration::MAX,
            on_lapse: OnLapse::Hold,
            ..fresh()
        };
        let lease = granted(&store, &claim).await;

        assert!(matches!(
            store.renew(&lease, Duration::MAX).await,
            Ok(Renewed::Kept)
        ));
        assert!(operate.extend(&claim.slot, Duration::MAX).await.unwrap());
        let record = operate.get(&claim.slot).await.unwrap().unwrap();
        assert_eq!(StateName::of(&record), StateName::Pending);
        store
            .release(&rival(&claim).lease(), Release::NotRun)
            .await
            .unwrap();
        store
            .complete(&lease, &answer("x"), Duration::MAX)
            .await
            .unwrap();
        for _ in 0..3 {
            assert!(operate.extend(&claim.slot, Duration::MAX).await.unwrap());
        }

        let record = operate.get(&claim.slot).await.unwrap().unwrap();
        assert!(record.keep_left > Duration::from_secs(60 * 60 * 24 * 365 * 1000));
        assert!(record.response().is_some());
    }
}
