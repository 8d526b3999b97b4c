//! A server that comes back without its data: the slot secret is written back by the engines that
//! run, and no two of them ever run on different ones (docs/protocol.md#rule-26).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::StatusCode;
use onlyonce_core::engine::Who;
use onlyonce_core::fingerprint::Part;
use onlyonce_core::{
    Answer, Engine, FingerprintBuilder, Key, KeyRule, Operate, Policy, Reason, Response,
};
use onlyonce_redis::RedisStore;
use onlyonce_testkit::servers::{Redis, Server};

use super::private::{eventually, start, tell};

/// A process: an engine of its own on a connection of its own.
async fn process(server: &Redis) -> Engine {
    let store = RedisStore::open(&server.url()).await.unwrap();
    Engine::open(store).await.unwrap()
}

/// Sends one key to a process, and counts if it runs there.
async fn send(engine: &Engine, key: &str, runs: &Arc<AtomicUsize>) -> Answer {
    let key = Key::new(key, &KeyRule::default()).unwrap();
    let mut fingerprint = FingerprintBuilder::new();
    fingerprint.part(Part::Input, b"the same");
    let (scope, policy) = (engine.scope(), Arc::new(Policy::default()));
    let who = Who::doing("test");
    let call = engine.call(&scope, &key, fingerprint.finish(), &policy, who);
    let runs = Arc::clone(runs);
    let work = async move |_| {
        let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
        Response::new(StatusCode::CREATED, format!("run {run}")).into()
    };
    engine.once(call, work).await
}

fn is_refused(answer: &Answer) -> bool {
    matches!(answer, Answer::Refused(refusal) if refusal.reason == Reason::StoreDown)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_without_data_and_one_new_process_leave_one_secret() {
    let server = start(&[]);
    let (old, runs) = (process(&server).await, Arc::new(AtomicUsize::new(0)));
    send(&old, "before", &runs).await;

    server.kill().unwrap();
    server.start_again().unwrap();
    // Whoever is first: the one that runs writes its secret back, or the new one makes its own.
    let new = process(&server).await;

    for number in 0..20 {
        runs.store(0, Ordering::SeqCst);
        let key = format!("key-{number}");
        let (one, other) = tokio::join!(send(&old, &key, &runs), send(&new, &key, &runs));
        assert!(runs.load(Ordering::SeqCst) <= 1, "{one:?} {other:?}");
        assert!(!is_refused(&other), "the new one has the secret: {other:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_finds_another_secret_after_a_restart_serves_nobody() {
    let server = start(&[]);
    let (old, runs) = (process(&server).await, Arc::new(AtomicUsize::new(0)));
    send(&old, "before", &runs).await;
    let kept: Vec<u8> = tell(&server, &["GET", "onlyonce:agreed:slot-secret"]).await;
    let other = [b"S".as_slice(), &[7; 32]].concat();
    let mut set = redis::cmd("SET");
    set.arg("onlyonce:agreed:slot-secret").arg(&other);
    let client = redis::Client::open(server.url()).unwrap();
    let mut line = client.get_multiplexed_async_connection().await.unwrap();
    let _: () = set.query_async(&mut line).await.unwrap();
    // Every connection is a new one.
    let _: usize = tell(
        &server,
        &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
    )
    .await;

    assert!(is_refused(&send(&old, "key", &runs).await));
    assert!(is_refused(&send(&old, "before", &runs).await));
    assert_eq!(runs.load(Ordering::SeqCst), 1);

    // Its own again, it serves again.
    let mut set = redis::cmd("SET");
    set.arg("onlyonce:agreed:slot-secret").arg(&kept);
    let mut line = client.get_multiplexed_async_connection().await.unwrap();
    let _: () = set.query_async(&mut line).await.unwrap();
    eventually("the old process serves again", async || {
        !is_refused(&send(&old, "key", &runs).await)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flushed_server_gets_the_secret_back_without_any_traffic() {
    let server = start(&[]);
    let _old = process(&server).await;
    let kept: Vec<u8> = tell(&server, &["GET", "onlyonce:agreed:slot-secret"]).await;

    let _: () = tell(&server, &["FLUSHALL"]).await;

    eventually("the secret is back", async || {
        let now: Option<Vec<u8>> = tell(&server, &["GET", "onlyonce:agreed:slot-secret"]).await;
        now.as_ref() == Some(&kept)
    })
    .await;
}

/// Two processes call while the server loses its data again and again, and a third one starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_race_over_a_server_without_data_never_run_a_key_on_both_secrets() {
    let server = start(&[]);
    for round in 0..5 {
        let (old, runs) = (process(&server).await, Arc::new(AtomicUsize::new(0)));
        send(&old, &format!("before-{round}"), &runs).await;
        runs.store(0, Ordering::SeqCst);
        server.kill().unwrap();
        server.start_again().unwrap();

        let key = format!("key-{round}");
        let new = async {
            let new = process(&server).await;
            let answer = send(&new, &key, &runs).await;
            (new, answer)
        };
        let ((new, one), other) = tokio::join!(new, send(&old, &key, &runs));

        let again = [send(&old, &key, &runs).await, send(&new, &key, &runs).await];
        let ran = runs.load(Ordering::SeqCst);
        assert!(ran <= 1, "round {round}: {one:?} {other:?} {again:?}");
    }
}

/// The server is emptied under connections that stay, while one process calls and another starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_race_over_a_flushed_server_never_run_a_key_on_both_secrets() {
    let server = start(&[]);
    let (old, runs) = (process(&server).await, Arc::new(AtomicUsize::new(0)));
    let kept: Vec<u8> = tell(&server, &["GET", "onlyonce:agreed:slot-secret"]).await;
    for round in 0..20 {
        send(&old, &format!("before-{round}"), &runs).await;
        runs.store(0, Ordering::SeqCst);
        let _: () = tell(&server, &["FLUSHALL"]).await;

        let key = format!("key-{round}");
        let new = async {
            let new = process(&server).await;
            let answer = send(&new, &key, &runs).await;
            (new, answer)
        };
        let ((new, one), other) = tokio::join!(new, send(&old, &key, &runs));

        let again = [send(&old, &key, &runs).await, send(&new, &key, &runs).await];
        let ran = runs.load(Ordering::SeqCst);
        assert_eq!(ran, 1, "round {round}: {one:?} {other:?} {again:?}");
    }
    let now: Vec<u8> = tell(&server, &["GET", "onlyonce:agreed:slot-secret"]).await;
    assert_eq!(now, kept);
}

/// What depends on a connection is counted.
#[tokio::test]
async fn every_new_connection_is_noticed() {
    let server = start(&[]);
    let url = format!("{}?connections=1", server.url());
    let store = RedisStore::open(&url).await.unwrap();
    let before = store.connected();

    server.kill().unwrap();
    server.start_again().unwrap();
    store.agreed("anything").await.unwrap();

    assert_eq!(store.connected(), before + 1);
}
