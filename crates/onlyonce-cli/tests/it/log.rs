//! Every event of D0 §9.2 is provoked and seen in the log, at its level, and no secret with it.

use std::collections::BTreeMap;
use std::time::Duration;

use onlyonce_testkit::proxy::Proxy;
use onlyonce_testkit::servers::{Redis, RedisOptions, Server as _};
use serde_json::Value;

use crate::support::gateway::{Running, eventually, service, token, vanishing};

const ALL: &str = "[log]\nlevel = \"debug\"\nsample_debug = 1\n";

/// The lines of the log, by the names of their events.
fn events(log: &str) -> BTreeMap<String, Value> {
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let named = lines.filter_map(|line| Some((line["event"].as_str()?.to_owned(), line)));
    named.collect()
}

#[track_caller]
fn assert_seen(log: &str, level: &str, names: &[&str]) {
    let events = events(log);
    for name in names {
        let line = events.get(&format!("idempotency.{name}"));
        let line = line.unwrap_or_else(|| panic!("{name} was never seen: {log}"));
        assert_eq!(line["level"], level, "{line}");
        assert_eq!(line["component"], "idempotency", "{line}");
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'), "{line}");
    }
}

#[tokio::test]
async fn what_happens_to_requests_is_logged_at_its_level() {
    let (upstream, work) = service().await;
    let settings = format!(
        "store = \"memory:\"\nttl = \"1s\"\n{ALL}[rules]\nwait = \"300ms\"\nresponse_bytes_max = 1000\n"
    );
    let gateway = Running::start(&upstream, &settings).await;

    let traced = gateway.request("/orders", "key-of-an-order").body("{}");
    let traced = traced.header(
        "traceparent",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    );
    assert_eq!(traced.send().await.unwrap().status(), 200);
    assert_eq!(gateway.send("/orders", "key-of-an-order", "{}").await, 200);
    assert_eq!(
        gateway
            .send("/orders", "key-of-an-order", "{\"n\":2}")
            .await,
        422
    );
    assert_eq!(gateway.send("/big", "key-of-a-big-one", "").await, 200);
    let slow: Vec<_> = (0..9)
        .map(|_| tokio::spawn(gateway.request("/slow", "hot-key").send()))
        .collect();
    let seen = |name: &'static str| {
        let gateway = &gateway;
        eventually(name, async move || {
            events(&gateway.log()).contains_key(&format!("idempotency.{name}"))
        })
    };
    seen("lock.contention").await;
    seen("lock.timeout").await;
    work.gate.notify_one();
    for sent in slow {
        sent.await.unwrap().unwrap();
    }
    seen("key.expired").await;

    let log = gateway.log();
    assert_seen(&log, "debug", &["lock.attempt", "cache.lookup"]);
    assert_seen(&log, "info", &["replay", "processed", "key.expired"]);
    assert_seen(&log, "warn", &["lock.contention"]);
    assert_seen(
        &log,
        "error",
        &["conflict", "lock.timeout", "cache.oversized"],
    );
    let events = events(&log);
    let conflict = &events["idempotency.conflict"];
    assert_eq!(conflict["conflict_type"], "payload_mismatch");
    assert_eq!(conflict["operation"], "/orders");
    assert_eq!(
        conflict["original_trace_id"],
        "0af7651916cd43dd8448eb211c80319c"
    );
    assert!(events["idempotency.replay"]["original_timestamp"].is_string());
    assert_eq!(events["idempotency.replay"]["cached_status"], 200);
    assert_eq!(
        events["idempotency.cache.oversized"]["max_size_bytes"],
        1000
    );
    let label = conflict["idempotencyKey"].as_str().unwrap();
    assert!(
        label.contains("…") && !log.contains("key-of-an-order"),
        "{label}"
    );
}

#[tokio::test]
async fn a_takeover_and_a_failing_store_are_logged() {
    let redis = Redis::start(RedisOptions::default()).unwrap();
    let proxy = Proxy::start(&redis.url()).await.unwrap();
    let settings = format!("store = \"{}\"\n{ALL}", proxy.url());
    let gateway = Running::start(&vanishing(), &settings).await;
    assert_eq!(gateway.send("/orders", "key", "{}").await, 502);
    assert_eq!(gateway.send("/orders", "key", "{}").await, 200);
    proxy.delay(Duration::from_millis(600));
    assert_eq!(gateway.send("/orders", "key", "{}").await, 200);
    proxy.delay(Duration::ZERO);
    redis.kill().unwrap();
    for number in 0..6 {
        assert_eq!(
            gateway
                .send("/orders", &format!("new-{number}"), "{}")
                .await,
            503
        );
    }

    let log = gateway.log();
    let warned = ["lock.abandoned", "storage.slow", "circuit_breaker.opened"];
    assert_seen(&log, "warn", &warned);
    assert_seen(&log, "error", &["storage.error"]);
    let events = events(&log);
    assert_eq!(events["idempotency.storage.slow"]["backend"], "redis");
    assert_eq!(events["idempotency.storage.slow"]["threshold_ms"], 500);
    let opened = &events["idempotency.circuit_breaker.opened"];
    assert_eq!(opened["threshold"], 5);
    let recent = opened["metadata"]["recent_errors"].as_array();
    assert_eq!(recent.map(Vec::len), Some(5), "{opened}");
    let slow = &events["idempotency.storage.slow"];
    assert!(slow["metadata"]["p99_baseline_ms"].is_number(), "{slow}");
    let failed = &events["idempotency.storage.error"];
    assert_eq!(failed["operation"], "claim");
    assert_eq!(failed["metadata"]["host"], "127.0.0.1", "{failed}");
    assert!(failed["metadata"]["port"].is_u64(), "{failed}");
}

/// A gateway stores a key on `store`, is restarted, and tells of its end.
async fn tells_after_a_restart(store: &str) {
    const SETTINGS: &str = "instance = \"till\"\nttl = \"12s\"\n[log]\nlevel = \"info\"\n\
        [audit]\npath = \"FOLDER/audit.jsonl\"\n";
    let (upstream, _) = service().await;
    let settings = format!("store = \"{store}\"\n{SETTINGS}");
    let mut first = Running::start(&upstream, &settings).await;
    assert_eq!(first.send("/orders", "key", "{}").await, 200);
    first.signal("-TERM").await;
    first.child.wait().await.unwrap();
    assert!(!first.log().contains("idempotency.key.expired"));

    let second = Running::start_with(&upstream, &settings, &[], first.folder).await;
    eventually("its end is told", async || {
        second.log().contains("idempotency.key.expired")
    })
    .await;

    let events = events(&second.log());
    let expired = &events["idempotency.key.expired"];
    assert_eq!(expired["operation"], "/orders", "{expired}");
    assert_eq!(expired["ttl_ms"], 12_000, "{expired}");
    assert_eq!(expired["reason"], "ttl_elapsed", "{expired}");
    eventually("it is in the trail and counted", async || {
        let trail = std::fs::read_to_string(second.folder.path().join("audit.jsonl"));
        let page = reqwest::get(format!("{}/metrics", second.admin)).await;
        let page = page.unwrap().text().await.unwrap();
        let mut counted = page
            .lines()
            .filter(|line| line.starts_with("idempotency_key_expired_total"));
        trail.unwrap().contains("idempotency.key.expired")
            && counted.any(|line| line.ends_with(" 1"))
    })
    .await;
    // Once: a key that is used again is a new one.
    assert_eq!(second.send("/orders", "key", "{}").await, 200);
    let told = second.log().matches("idempotency.key.expired").count();
    assert_eq!(told, 1, "{}", second.log());
}

#[tokio::test]
async fn what_was_stored_before_a_restart_is_told_when_it_ends() {
    tokio::join!(
        tells_after_a_restart("sqlite:FOLDER/records.db"),
        tells_after_a_restart("file:FOLDER/records")
    );
}

#[tokio::test]
async fn no_key_token_body_or_credential_is_in_the_log() {
    let (upstream, _) = service().await;
    for format in ["json", "text"] {
        let settings = format!("store = \"memory:\"\n{ALL}format = \"{format}\"\n");
        let gateway = Running::start(&upstream, &settings).await;
        for body in ["{\"card\":\"4111-in-the-body\"}", "{\"card\":\"another\"}"] {
            let request = gateway.request("/orders?token=in-the-query", "key-that-is-a-secret");
            let request = request.header("authorization", "Bearer opaque-token-of-ann");
            let request = request.header("cookie", "session=cookie-of-ann");
            request.body(body).send().await.unwrap();
        }

        eventually("the conflict is logged", async || {
            gateway.log().contains("conflict")
        })
        .await;
        let log = gateway.log();
        for secret in [
            "key-that-is-a-secret",
            "4111-in-the-body",
            "in-the-query",
            "opaque-token-of-ann",
            "cookie-of-ann",
        ] {
            assert!(!log.contains(secret), "{secret} in {log}");
        }
    }
    let url = "redis://user:password-in-the-url@127.0.0.1:1/0";
    let line = ["gateway", "--upstream", &upstream, "--store", url];
    let (code, _, said) = crate::support::program::run(&line).await;
    assert_eq!(code, 2);
    assert!(!said.contains("password-in-the-url"), "{said}");
}

#[tokio::test]
async fn what_is_below_the_level_is_not_written_and_the_rest_is_sampled() {
    let (upstream, _) = service().await;
    let quiet = Running::start(&upstream, "store = \"memory:\"\n").await;
    let settings = "store = \"memory:\"\n[log]\nlevel = \"info\"\nsample_info = 5\n";
    let sampled = Running::start(&upstream, settings).await;
    for gateway in [&quiet, &sampled] {
        for number in 0..10 {
            gateway
                .send("/orders", &format!("key-{number}"), "{}")
                .await;
        }
        // The last of what is written, so that everything before it is there.
        assert_eq!(gateway.send("/orders", "key-0", "{\"n\":2}").await, 422);
        eventually("the conflict", async || gateway.log().contains("conflict")).await;
    }

    let told: Vec<_> = events(&quiet.log()).into_keys().collect();
    assert_eq!(told, ["idempotency.conflict"]);
    let processed = sampled.log().matches("idempotency.processed").count();
    assert_eq!(processed, 2, "{}", sampled.log());
}

#[tokio::test]
async fn a_caller_is_named_by_what_is_no_secret() {
    let (upstream, _) = service().await;
    let settings = "store = \"memory:\"\n[log]\nlevel = \"info\"\n";
    let gateway = Running::start(&upstream, settings).await;

    let request = gateway
        .request("/orders", "key")
        .header("authorization", token("ann"));
    request.send().await.unwrap();

    eventually("it is logged", async || gateway.log().contains("processed")).await;
    let events = events(&gateway.log());
    let actor = serde_json::json!({"type": "user", "id": "ann"});
    assert_eq!(events["idempotency.processed"]["actor"], actor);
}
