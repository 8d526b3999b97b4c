//! Several servers in one URL: the one that takes writes is used, and what that means for what was answered.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Claimed, Clock, Operate, Store, StoreErrorKind, SystemClock};
use onlyonce_sql::{OpenError, PostgresStore};
use onlyonce_testkit::proxy::Proxy;
use onlyonce_testkit::servers::{PgBouncer, Postgres, PostgresOptions, Server};

use super::support::{LONG, body, done, fresh, granted, rival, taken, until};

const HASTY: &str = "timeout_ms=1000&connect_timeout_ms=1000";
/// Everything it can wait for is bounded by a second, but for the next look, which comes after two.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(10);

/// The URL of two servers, in this order.
pub(super) fn both(first: &impl Server, second: &impl Server, options: &str) -> String {
    format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?target_session_attrs=read-write&{options}",
        first.port(),
        second.port()
    )
}

async fn open(url: &str) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::open(url).await.unwrap())
}

/// A primary, a proxy through which its standby follows, and the standby.
async fn pair() -> (Postgres, Proxy, Postgres) {
    let primary = tokio::task::block_in_place(|| Postgres::start(PostgresOptions::default()));
    let primary = primary.unwrap();
    let between = Proxy::start(&primary.url()).await.unwrap();
    let standby = tokio::task::block_in_place(|| primary.standby_behind(between.url()));
    (primary, between, standby.unwrap())
}

async fn refusal(url: &str) -> OpenError {
    match PostgresStore::open(url).await {
        Ok(_) => panic!("it was opened"),
        Err(error) => error,
    }
}

/// Until this log position of the primary is on the standby.
async fn replicated(primary: &Postgres, standby: &Postgres) {
    let at = tokio::task::block_in_place(|| primary.psql("SELECT pg_current_wal_lsn()")).unwrap();
    let there = format!("SELECT pg_last_wal_replay_lsn() >= '{}'", at.trim());
    until(async || {
        let there = tokio::task::block_in_place(|| standby.psql(&there)).unwrap();
        there.trim() == "t"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_synchronous_standby_a_failover_forgets_what_was_not_replicated_and_no_more() {
    let (primary, between, standby) = pair().await;
    // The standby stands first: it is not used while it is one.
    let store = open(&both(&standby, &primary, HASTY)).await;
    let replicated_answer = done(&store, "kept").await;
    replicated(&primary, &standby).await;
    between.refuse().await.unwrap();
    let lost_answer = done(&store, "lost").await;
    let lost_claim = fresh();
    granted(&store, &lost_claim).await;

    // The old primary stays alive and in reach, and nothing on it fails.
    tokio::task::block_in_place(|| standby.promote()).unwrap();
    let clock = SystemClock::new();
    let promoted = clock.now();
    until(async || {
        store
            .get(&lost_answer.slot)
            .await
            .is_ok_and(|found| found.is_none())
    })
    .await;
    let followed = clock.now().saturating_sub(promoted);

    eprintln!("the asynchronous primary was left after {followed:?}");
    assert!(followed < FOLLOWED_WITHIN, "{followed:?}");
    assert_eq!(
        body(&taken(&store, &rival(&replicated_answer)).await),
        b"kept"
    );
    for lost in [&lost_answer, &lost_claim] {
        // Its key is new: a retry runs again.
        granted(&store, &rival(lost)).await;
    }
    // It is not gone back to, though it alone answers.
    tokio::task::block_in_place(|| standby.kill()).unwrap();
    let claimed = store.claim(&rival(&lost_answer)).await.unwrap_err();
    assert_eq!(claimed.kind, StoreErrorKind::Unavailable);
    let unanswered = async || store.claim(&fresh()).await.unwrap_err();
    until(async || format!("{:?}", unanswered().await).contains("timeline 1, and 2 has begun"))
        .await;
    tokio::task::block_in_place(|| standby.start_again()).unwrap();
    until(async || store.claim(&fresh()).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promotion_after_the_primary_died_is_followed_directly_and_behind_poolers() {
    let (primary, _between, standby) = pair().await;
    let (front, behind) = tokio::task::block_in_place(|| {
        (
            PgBouncer::start(&primary).unwrap(),
            PgBouncer::start(&standby).unwrap(),
        )
    });
    let direct = open(&both(&primary, &standby, HASTY)).await;
    let pooled = both(&front, &behind, &format!("pooled=true&{HASTY}"));
    let pooled = open(&pooled).await;
    let claims = [done(&direct, "one").await, done(&pooled, "two").await];
    replicated(&primary, &standby).await;
    // Somebody waits, told by the server.
    let waits = fresh();
    granted(&direct, &waits).await;
    replicated(&primary, &standby).await;
    let waiting = tokio::spawn({
        let (store, slot, token) = (Arc::clone(&direct), waits.slot, waits.token);
        async move {
            while store.settled(&slot, &token, LONG).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    });

    tokio::task::block_in_place(|| primary.kill().unwrap());
    let claimed = direct.claim(&fresh()).await.unwrap_err();
    tokio::task::block_in_place(|| standby.promote()).unwrap();
    let clock = SystemClock::new();
    let promoted = clock.now();
    for store in [&direct, &pooled] {
        until(async || store.claim(&fresh()).await.is_ok()).await;
        let followed = clock.now().saturating_sub(promoted);
        eprintln!("followed after {followed:?}");
        assert!(followed < FOLLOWED_WITHIN, "{followed:?}");
        for (claim, answered) in claims.iter().zip(["one", "two"]) {
            let found = taken(store, &rival(claim)).await;
            assert_eq!(body(&found), answered.as_bytes());
        }
    }

    assert_eq!(claimed.kind, StoreErrorKind::Unavailable);
    assert!(!waiting.is_finished());
    assert!(direct.forget(&waits.slot).await.unwrap());
    tokio::time::timeout(Duration::from_secs(20), waiting)
        .await
        .unwrap()
        .unwrap();
    assert!(matches!(
        pooled.claim(&rival(&waits)).await,
        Ok(Claimed::Granted { .. })
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_no_writes_is_refused_by_name_and_without_credentials() {
    let (primary, _between, standby) = pair().await;
    let other = tokio::task::block_in_place(|| Postgres::start(PostgresOptions::default()));
    let other = other.unwrap();
    let secret = |url: String| url.replace("//postgres@", "//postgres:hunter2@");

    let url = both(&standby, &primary, "connect_timeout_ms=1000");
    let strangers = refusal(&secret(both(&primary, &other, HASTY))).await;
    tokio::task::block_in_place(|| {
        primary
            .psql("ALTER SYSTEM SET default_transaction_read_only = on")
            .unwrap();
        primary.psql("SELECT pg_reload_conf()").unwrap();
    });
    let mut read_only = refusal(&secret(url.clone())).await;
    until(async || {
        read_only = refusal(&secret(url.clone())).await;
        format!("{read_only:?}").contains("is read-only")
    })
    .await;
    tokio::task::block_in_place(|| primary.kill().unwrap());
    let gone = refusal(&secret(url)).await;

    let [first, second] = [&standby, &primary].map(|it| format!("127.0.0.1:{}", it.port()));
    for (error, words) in [
        (
            &strangers,
            vec![
                "not one primary and its standbys".to_owned(),
                second.clone(),
            ],
        ),
        (
            &read_only,
            vec![
                format!("{first} is a standby"),
                format!("{second} is read-only"),
            ],
        ),
        (
            &gone,
            vec![format!("{first} is a standby"), format!("{second}: ")],
        ),
    ] {
        let told = format!("{error:?}");
        assert!(words.iter().all(|word| told.contains(word)), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}

#[test]
fn a_list_of_servers_that_makes_no_sense_is_refused_before_anything_is_asked() {
    for (servers, options, word) in [
        ("a,,b", "", "server 2 of it has no name"),
        ("a,b,a", "", "server 3 of it is there already"),
        ("a:1,b:high", "", "server 2: invalid port number"),
        ("a,b", "&target_session_attrs=any", "must be read-write"),
        ("a", "&target_session_attrs=standby", "must be read-write"),
        ("a,b", "&host=c", "several servers"),
        ("a", "&host=b,c", "several servers"),
        (
            "a,b",
            "&target_session_attr=read-write",
            "did you mean `target_session_attrs`?",
        ),
    ] {
        let url = format!("postgres://alice:s3cret,s3cret@{servers}/shop?notify=false{options}");

        let told = PostgresStore::check_url(&url).unwrap_err().to_string();

        assert!(told.contains(word), "{url}: {told}");
        assert!(!told.contains("s3cret"), "{told}");
    }
    for servers in ["a,b", "a:5432,[::1]:5433,10.0.0.3", "a"] {
        let url =
            format!("postgres://alice:s3,cret@{servers}/shop?target_session_attrs=read-write");
        PostgresStore::check_url(&url).unwrap();
    }
}
