//! What a quorum survives, what it refuses, and that nothing is wrong afterwards.

use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use onlyonce_core::{
    Claim, Claimed, Completed, Fingerprint, Meta, OnLapse, OsEntropy, Record, Response, Slot,
    Store, StoreErrorKind, Token,
};
use onlyonce_core::{Entropy, Key, KeyRule};
use onlyonce_redis::{OpenError, RedisQuorum, Standing};
use onlyonce_testkit::servers::{Redis, RedisOptions, Server};

use super::Group;

const LONG: Duration = Duration::from_secs(3600);

pub(super) fn claim() -> Claim {
    let entropy = OsEntropy::new();
    let mut slot = [0; Slot::BYTES];
    entropy.fill(&mut slot);
    Claim {
        slot: Slot::from_bytes(slot),
        fingerprint: Fingerprint::new(Fingerprint::RECIPE, [1; 32]),
        token: Token::generate(&entropy),
        on_lapse: OnLapse::Hold,
        must_last: false,
        lease_for: LONG,
        keep_for: LONG,
        meta: meta(),
    }
}

fn meta() -> Arc<Meta> {
    let key = Key::new("5f2b0c1e-7a64-4d1c-9d7e-3b8a2f6c4e10", &KeyRule::default());
    Arc::new(Meta {
        hint: key.unwrap().hint(),
        operation: "POST /payments".into(),
        actor: None,
        holder: "test".into(),
        trace: None,
        credential: None,
    })
}

pub(super) fn rival(claim: &Claim) -> Claim {
    Claim {
        token: Token::generate(&OsEntropy::new()),
        ..claim.clone()
    }
}

pub(super) fn answer(body: &'static str) -> Arc<Response> {
    Arc::new(Response::new(StatusCode::OK, body))
}

/// Claims and completes.
pub(super) async fn run_once(store: &dyn Store, body: &'static str) -> Claim {
    let claim = claim();
    let claimed = store.claim(&claim).await.unwrap();
    let Claimed::Granted { lease, .. } = claimed else {
        panic!("{claimed:?}")
    };
    let completed = store.complete(&lease, &answer(body), LONG).await.unwrap();
    assert!(matches!(completed, Completed::Stored(_)), "{completed:?}");
    claim
}

pub(super) async fn taken(store: &dyn Store, claim: &Claim) -> Record {
    match store.claim(&rival(claim)).await.unwrap() {
        Claimed::Taken(record) => record,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn assert_replays(store: &dyn Store, claim: &Claim, body: &'static str) {
    let record = taken(store, claim).await;
    assert_eq!(record.response().unwrap().body, body);
}

async fn voting(quorum: &RedisQuorum) -> usize {
    let members = quorum.members().await.unwrap();
    members
        .iter()
        .filter(|it| it.standing == Standing::Votes)
        .count()
}

#[tokio::test]
async fn a_minority_may_be_gone_and_a_majority_may_not() {
    let group = Group::start(3, true);
    let quorum = RedisQuorum::open(&group.url(&[0, 1, 2], "")).await.unwrap();
    let store = quorum.store();
    let first = run_once(&**store, "first").await;

    group.servers[0].kill().unwrap();
    assert_replays(&**store, &first, "first").await;
    let second = run_once(&**store, "second").await;
    let held = claim();
    let granted = store.claim(&held).await.unwrap();
    assert!(matches!(granted, Claimed::Granted { .. }));

    group.servers[1].kill().unwrap();
    let error = store.claim(&claim()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    let error = store.claim(&rival(&second)).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable);

    group.servers[0].start_again().unwrap();
    store.operate().unwrap().recheck().await.unwrap();
    assert_replays(&**store, &first, "first").await;
    assert_replays(&**store, &second, "second").await;
    // Nothing runs twice: the claim is still there, though its first server is not.
    assert_eq!(taken(&**store, &held).await.token, held.token);
    group.servers[1].start_again().unwrap();
    store.operate().unwrap().recheck().await.unwrap();
    assert_replays(&**store, &second, "second").await;
}

#[tokio::test]
async fn a_server_that_hangs_holds_nobody_up() {
    let group = Group::start(3, true);
    let url = group.url(&[0, 1, 2], "");
    let quorum = RedisQuorum::open(&url).await.unwrap();
    let store = quorum.store();
    group.servers[2].pause().unwrap();

    let claims = [
        run_once(&**store, "one").await,
        run_once(&**store, "two").await,
    ];
    group.servers[2].resume().unwrap();
    group.servers[0].pause().unwrap();

    assert_replays(&**store, &claims[0], "one").await;
    assert_replays(&**store, &claims[1], "two").await;
    group.servers[0].resume().unwrap();
}

#[tokio::test]
async fn looking_again_waits_for_no_server_that_hangs() {
    const NOT_FOREVER: Duration = Duration::from_secs(60);
    let group = Group::start(3, true);
    let url = group.url(&[0, 1, 2], "");
    let url = url.replace("timeout_ms=3000", "timeout_ms=600000");
    let quorum = RedisQuorum::open(&url).await.unwrap();
    let store = quorum.store();
    group.servers[2].pause().unwrap();

    // An engine looks again before it runs what it has claimed.
    let looked = tokio::time::timeout(NOT_FOREVER, store.operate().unwrap().recheck()).await;

    looked.expect("two of three answered").unwrap();
    run_once(&**store, "done").await;
    group.servers[2].resume().unwrap();
}

#[tokio::test]
async fn a_server_that_lost_its_data_does_not_vote_until_it_is_admitted() {
    let group = Group::start(3, true);
    let quorum = RedisQuorum::open(&group.url(&[0, 1, 2], "")).await.unwrap();
    let store = quorum.store();
    // Decided by the first two: the third missed it.
    group.servers[2].kill().unwrap();
    let done = run_once(&**store, "decided without the third").await;
    let secret = store.operate().unwrap();
    let agreed = secret.agree("secret", b"first").await.unwrap();
    group.servers[2].start_again().unwrap();

    group.lose_disk(0);
    // Together with the third, it would now find nothing and run again.
    group.servers[1].pause().unwrap();
    let error = store.claim(&rival(&done)).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    group.servers[1].resume().unwrap();
    store.operate().unwrap().recheck().await.unwrap();
    assert_eq!(voting(&quorum).await, 2);
    assert_replays(&**store, &done, "decided without the third").await;

    let written = quorum.admit(&group.seat(0)).await.unwrap();

    assert!(written >= 2, "{written}");
    assert_eq!(voting(&quorum).await, 3);
    group.servers[1].kill().unwrap();
    assert_replays(&**store, &done, "decided without the third").await;
    assert_eq!(secret.agree("secret", b"other").await.unwrap(), agreed);
}

#[tokio::test]
async fn another_process_follows_when_a_server_was_admitted() {
    let group = Group::start(3, true);
    let url = group.url(&[0, 1, 2], "");
    let (one, two) = (
        RedisQuorum::open(&url).await.unwrap(),
        RedisQuorum::open(&url).await.unwrap(),
    );
    let done = run_once(&**two.store(), "stored").await;
    group.lose_disk(1);
    one.store().operate().unwrap().recheck().await.unwrap();

    one.admit(&group.seat(1)).await.unwrap();

    assert_replays(&**two.store(), &done, "stored").await;
    let later = run_once(&**two.store(), "later").await;
    assert_replays(&**one.store(), &later, "later").await;
}

#[tokio::test]
async fn a_server_that_may_forget_is_refused() {
    let group = Group::start(3, false);
    let url = group.url(&[0, 1, 2], "");

    let refused = RedisQuorum::open(&url).await;

    match refused {
        Err(error @ OpenError::Refused { .. }) => {
            assert!(
                error.to_string().contains("set appendonly to yes"),
                "{error}"
            );
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("servers without persistence were taken"),
    }
    RedisQuorum::open(&format!("{url}&persistence=trust"))
        .await
        .expect("the operator vouches for them");
}

#[tokio::test]
async fn a_server_that_begins_to_forget_no_longer_votes() {
    let group = Group::start(3, true);
    let quorum = RedisQuorum::open(&group.url(&[0, 1, 2], "")).await.unwrap();
    let operate = quorum.store().operate().unwrap();

    for at in [0, 1] {
        group.servers[at]
            .cli(&["CONFIG", "SET", "appendfsync", "everysec"])
            .unwrap();
        let checked = operate.recheck().await;
        assert_eq!(checked.is_ok(), at == 0, "{checked:?}");
    }
    let error = quorum.store().claim(&claim()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unsafe);

    group.servers[0]
        .cli(&["CONFIG", "SET", "appendfsync", "always"])
        .unwrap();
    operate.recheck().await.unwrap();
    run_once(&**quorum.store(), "again").await;
}

#[tokio::test]
async fn another_set_of_servers_is_refused() {
    let group = Group::start(4, true);
    RedisQuorum::open(&group.url(&[0, 1, 2], "")).await.unwrap();

    let other = RedisQuorum::open(&group.url(&[0, 1, 3], "")).await;

    let error = other.err().expect("two of them belong to another set");
    assert!(
        error.to_string().contains("another set of servers"),
        "{error}"
    );
    RedisQuorum::open(&group.url(&[2, 1, 0], ""))
        .await
        .expect("the order does not matter");
}

#[tokio::test]
async fn a_set_is_made_only_when_all_of_its_servers_answer() {
    let group = Group::start(3, true);
    group.servers[1].kill().unwrap();

    let error = RedisQuorum::open(&group.url(&[0, 1, 2], "")).await.err();

    let error = error.expect("one is missing");
    assert!(matches!(error, OpenError::Store(_)), "{error}");
    group.servers[1].start_again().unwrap();
    RedisQuorum::open(&group.url(&[0, 1, 2], "")).await.unwrap();
    group.servers[1].kill().unwrap();
    RedisQuorum::open(&group.url(&[0, 1, 2], ""))
        .await
        .expect("once it is made, a majority is enough");
}

#[tokio::test]
async fn many_processes_make_one_set() {
    let group = Group::start(3, true);
    let url = group.url(&[0, 1, 2], "");

    let opened = futures_util::future::join_all((0..8).map(|_| RedisQuorum::open(&url))).await;

    for quorum in opened {
        assert_eq!(voting(&quorum.unwrap()).await, 3);
    }
}

#[tokio::test]
async fn a_full_server_takes_no_new_keys_but_replays_and_completes() {
    let start = || {
        Redis::start(RedisOptions {
            maxmemory: Some("3mb".to_owned()),
            ..RedisOptions::default()
        })
        .unwrap()
    };
    let group = Group {
        servers: (0..3).map(|_| start()).collect(),
    };
    let quorum = RedisQuorum::open(&group.url(&[0, 1, 2], "&persistence=trust"))
        .await
        .unwrap();
    let store = quorum.store();
    let done = run_once(&**store, "stored").await;
    let held = claim();
    store.claim(&held).await.unwrap();
    for server in &group.servers {
        server.cli(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    }

    let error = store.claim(&claim()).await.unwrap_err();

    assert_eq!(error.kind, StoreErrorKind::Full);
    assert_replays(&**store, &done, "stored").await;
    let completed = store.complete(&held.lease(), &answer("done"), LONG).await;
    assert!(
        matches!(completed, Ok(Completed::Stored(_))),
        "{completed:?}"
    );
}

#[tokio::test]
async fn a_server_that_went_back_to_an_older_state_does_not_vote_until_it_is_admitted() {
    let group = Group::start(3, true);
    let quorum = RedisQuorum::open(&group.url(&[0, 1, 2], "")).await.unwrap();
    let store = quorum.store();
    let operate = store.operate().unwrap();
    run_once(&**store, "in the backup").await;
    let data = group.servers[0].folder().join("appendonlydir");
    let backup = data.with_extension("backup");
    copy(&data, &backup);
    let done = run_once(&**store, "done").await;
    operate.recheck().await.unwrap();

    group.servers[0].kill().unwrap();
    for file in std::fs::read_dir(&data).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    copy(&backup, &data);
    group.servers[0].start_again().unwrap();
    operate.recheck().await.unwrap();

    assert_eq!(voting(&quorum).await, 2);
    assert_replays(&**store, &done, "done").await;
    quorum.admit(&group.seat(0)).await.unwrap();
    assert_eq!(voting(&quorum).await, 3);
    group.servers[1].kill().unwrap();
    assert_replays(&**store, &done, "done").await;
}

/// With their owner, who is not always us.
fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    let mode = std::fs::metadata(from).unwrap().permissions();
    std::fs::set_permissions(to, mode).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let (file, owner) = (file.unwrap(), std::fs::metadata(from).unwrap());
        let copied = to.join(file.file_name());
        std::fs::copy(file.path(), &copied).unwrap();
        for path in [to, &*copied] {
            std::os::unix::fs::chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
        }
    }
}
