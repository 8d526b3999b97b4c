//! How servers come and go, one at a time.

use onlyonce_core::{Store, StoreErrorKind};
use onlyonce_redis::RedisQuorum;
use onlyonce_testkit::servers::Server;

use super::Group;
use super::losing::{assert_replays, claim, rival, run_once};

#[tokio::test]
async fn a_server_is_replaced_and_nothing_is_lost() {
    let group = Group::start(4, true);
    let (old, new) = (group.url(&[0, 1, 2], ""), group.url(&[0, 1, 3], ""));
    let before = RedisQuorum::open(&old).await.unwrap();
    // Decided by the first and the third: the second missed it.
    group.servers[1].kill().unwrap();
    let done = run_once(&**before.store(), "before").await;
    group.servers[1].start_again().unwrap();
    before.store().operate().unwrap().recheck().await.unwrap();
    group.servers[2].kill().unwrap();

    let after = RedisQuorum::replace(&old, &new).await.unwrap();
    let error = before.store().claim(&rival(&done)).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unsafe);
    assert_replays(&**after.store(), &done, "before").await;
    after.admit(&group.seat(3)).await.unwrap();

    group.servers[0].kill().unwrap();
    assert_replays(&**after.store(), &done, "before").await;
    let later = run_once(&**after.store(), "after").await;
    // What left cannot come back on its own.
    group.servers[2].start_again().unwrap();
    assert!(before.store().claim(&claim()).await.is_err());
    assert_replays(&**after.store(), &later, "after").await;
}

#[tokio::test]
async fn a_set_grows_from_three_to_five_and_shrinks_again() {
    let group = Group::start(5, true);
    let sets: [&[usize]; 5] = [
        &[0, 1, 2],
        &[0, 1, 2, 3],
        &[0, 1, 2, 3, 4],
        &[1, 2, 3, 4],
        &[2, 3, 4],
    ];
    let mut done = Vec::new();
    let mut quorum = RedisQuorum::open(&group.url(sets[0], "")).await.unwrap();
    done.push(run_once(&**quorum.store(), "of three").await);

    for (was, is) in sets.iter().zip(&sets[1..]) {
        quorum = RedisQuorum::replace(&group.url(was, ""), &group.url(is, ""))
            .await
            .unwrap();
        if let Some(came) = is.iter().find(|at| !was.contains(at)) {
            quorum.admit(&group.seat(*came)).await.unwrap();
        }
        done.push(run_once(&**quorum.store(), "of three").await);
        for claim in &done {
            assert_replays(&**quorum.store(), claim, "of three").await;
        }
    }
}

#[tokio::test]
async fn two_servers_are_not_replaced_at_once() {
    let group = Group::start(5, true);
    let (old, new) = (group.url(&[0, 1, 2], ""), group.url(&[0, 3, 4], ""));
    RedisQuorum::open(&old).await.unwrap();

    let error = RedisQuorum::replace(&old, &new).await.err();

    let error = error.expect("a majority would be lost");
    assert!(error.to_string().contains("at a time"), "{error}");
}
