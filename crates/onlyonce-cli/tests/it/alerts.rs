//! `onlyonce demo` in every trouble of D0 §9.2 and §9.3, watched by a real Prometheus with the
//! shipped rules: each event is logged, each alert fires, and each clears when the trouble is over.
//!
//! So that this takes minutes and not hours, the durations of the rules are scaled: every `for:` is a
//! second and every range ten. Thresholds, metrics and labels are as shipped.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Clock as _, SystemClock};
use onlyonce_testkit::proxy::Proxy;
use onlyonce_testkit::servers::{Postgres, PostgresOptions, Server as _};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::demo::process::{Clock, Process};
use crate::support::prometheus::{Prometheus, eventually};

/// D0 §9.3: critical alerts, then warnings.
const ALERTS: [&str; 8] = [
    "IdempotencyStorageUnavailable",
    "IdempotencyCircuitBreakerOpen",
    "IdempotencyLockTimeouts",
    "IdempotencyConflictStorm",
    "IdempotencyHighReplayRate",
    "IdempotencyStorageSlow",
    "IdempotencyConnectionPoolExhausted",
    "IdempotencyLocksAbandoned",
];
/// D0 §9.2, with what each line says according to its example there; a dot leads into an object.
const EVENTS: [(&str, &str, &[&str]); 13] = [
    (
        "debug",
        "lock.attempt",
        &[
            "idempotencyKey",
            "intakeId",
            "metadata.attemptNumber",
            "metadata.queuePosition",
        ],
    ),
    (
        "debug",
        "cache.lookup",
        &["idempotencyKey", "result", "storage_duration_ms"],
    ),
    (
        "info",
        "replay",
        &[
            "intakeId",
            "submissionId",
            "idempotencyKey",
            "operation",
            "actor.type",
            "actor.id",
            "original_timestamp",
            "replay_count",
            "duration_ms",
        ],
    ),
    (
        "info",
        "processed",
        &[
            "intakeId",
            "submissionId",
            "idempotencyKey",
            "operation",
            "actor.type",
            "actor.id",
            "duration_ms",
            "metadata.cached",
            "metadata.response_size_bytes",
        ],
    ),
    (
        "info",
        "key.expired",
        &[
            "idempotencyKey",
            "intakeId",
            "ttl_ms",
            "lifetime_ms",
            "reason",
        ],
    ),
    (
        "warn",
        "lock.contention",
        &[
            "idempotencyKey",
            "intakeId",
            "wait_time_ms",
            "queue_depth",
            "lock_holder",
            "metadata.message",
        ],
    ),
    (
        "warn",
        "circuit_breaker.opened",
        &[
            "backend",
            "failure_count",
            "threshold",
            "metadata.last_error",
            "metadata.recent_errors",
        ],
    ),
    (
        "warn",
        "storage.slow",
        &[
            "operation",
            "backend",
            "duration_ms",
            "threshold_ms",
            "metadata.p99_baseline_ms",
        ],
    ),
    (
        "warn",
        "lock.abandoned",
        &[
            "idempotencyKey",
            "lock_age_ms",
            "lock_holder",
            "metadata.message",
        ],
    ),
    (
        "error",
        "conflict",
        &[
            "idempotencyKey",
            "intakeId",
            "conflict_type",
            "actor.type",
            "actor.id",
            "metadata.original_hash",
            "metadata.current_hash",
            "metadata.original_timestamp",
        ],
    ),
    (
        "error",
        "storage.error",
        &[
            "operation",
            "backend",
            "error",
            "error_message",
            "retry_attempt",
            "metadata.host",
            "metadata.port",
        ],
    ),
    (
        "error",
        "lock.timeout",
        &[
            "idempotencyKey",
            "intakeId",
            "wait_time_ms",
            "timeout_ms",
            "metadata.message",
        ],
    ),
    (
        "error",
        "cache.oversized",
        &[
            "idempotencyKey",
            "intakeId",
            "response_size_bytes",
            "max_size_bytes",
            "metadata.message",
        ],
    ),
];
/// D0 §9.4, the same of the audit trail.
const AUDITED: [(&str, &[&str]); 5] = [
    (
        "key.created",
        &[
            "eventId",
            "timestamp",
            "actor.type",
            "actor.id",
            "metadata.intakeId",
            "metadata.submissionId",
            "metadata.idempotencyKey",
            "metadata.operation",
            "metadata.ttl_ms",
            "metadata.expiresAt",
        ],
    ),
    (
        "replay",
        &[
            "eventId",
            "timestamp",
            "actor.type",
            "actor.id",
            "metadata.intakeId",
            "metadata.submissionId",
            "metadata.idempotencyKey",
            "metadata.operation",
            "metadata.replayCount",
            "metadata.originalTimestamp",
            "metadata.timeSinceOriginal_ms",
        ],
    ),
    (
        "conflict",
        &[
            "eventId",
            "timestamp",
            "actor.type",
            "actor.id",
            "metadata.intakeId",
            "metadata.idempotencyKey",
            "metadata.conflictType",
            "metadata.originalRequestHash",
            "metadata.conflictingRequestHash",
            "metadata.originalTimestamp",
            "metadata.originalActor.type",
            "metadata.originalActor.id",
        ],
    ),
    (
        "key.expired",
        &[
            "eventId",
            "timestamp",
            "metadata.intakeId",
            "metadata.submissionId",
            "metadata.idempotencyKey",
            "metadata.ttl_ms",
            "metadata.lifetime_ms",
            "metadata.replayCount",
            "metadata.reason",
        ],
    ),
    (
        "lock.contention",
        &[
            "eventId",
            "timestamp",
            "actor.type",
            "actor.id",
            "metadata.intakeId",
            "metadata.idempotencyKey",
            "metadata.waitTime_ms",
            "metadata.queueDepth",
            "metadata.lockHolder",
        ],
    ),
];
/// By when a request is answered that the breaker refuses. It takes a millisecond or so: of several one
/// does, however busy the machine is.
const REFUSED_WITHIN: Duration = Duration::from_millis(50);
const REFUSED_TIMES: usize = 20;
const SUBMIT: &str = "/api/intakes/vendor-onboarding/submit";

/// The lines of a log whose `field` says that this happened.
fn lines(log: &str, field: &str, event: &str) -> Vec<Value> {
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let name = format!("idempotency.{event}");
    lines.filter(|line| line[field] == name).collect()
}

/// Whether a line says something in each of these fields; a dot leads into an object.
fn has_all(line: &Value, fields: &[&str]) -> bool {
    let value = |field: &str| field.split('.').fold(line, |value, part| &value[part]);
    fields.iter().all(|field| !value(field).is_null())
}

/// Whether a line of the log is about a submission. The services deliver webhooks to themselves, as nobody
/// and for no intake; what is only complained of makes no submission; and a store that is slow for the first
/// time has no baseline to be compared with.
fn is_of_an_intake(line: &Value) -> bool {
    let mut names = ["operation", "request_operation"].iter();
    let is_delivery = names.any(|name| line[*name] == "/demo/inbox");
    let is_complaint = line["event"] == "idempotency.processed" && line["status"] != 201;
    let is_of_the_store = line["event"] == "idempotency.storage.slow";
    !is_delivery && !is_complaint && !is_of_the_store
}

fn company(name: &str) -> Value {
    json!({"fields": {"companyName": name}})
}

/// What is asked of the services by an agent that they know.
struct Agent<'a> {
    demo: &'a Process,
    token: String,
}

impl Agent<'_> {
    async fn submit(&self, key: &str, name: &str) -> u16 {
        self.send(key, company(name), None).await
    }

    async fn send(&self, key: &str, body: Value, ttl_ms: Option<u32>) -> u16 {
        self.sending(key, body, ttl_ms).await
    }

    fn sending(
        &self,
        key: &str,
        body: Value,
        ttl_ms: Option<u32>,
    ) -> impl Future<Output = u16> + Send + use<> {
        let mut request = self.demo.request(SUBMIT, key, &body);
        request = request.header("Authorization", format!("Bearer {}", self.token));
        if let Some(ttl_ms) = ttl_ms {
            request = request.header("X-Idempotency-TTL", ttl_ms);
        }
        async move { request.send().await.unwrap().status().as_u16() }
    }
}

/// Holds a lock on a table for a while, from now on.
fn lock(postgres: &Arc<Postgres>, table: &str, seconds: f32) -> tokio::task::JoinHandle<()> {
    let postgres = Arc::clone(postgres);
    let sql = format!("BEGIN; LOCK TABLE {table}; SELECT pg_sleep({seconds}); COMMIT");
    tokio::task::spawn_blocking(move || {
        postgres.psql(&sql).unwrap();
    })
}

async fn is_locked(postgres: &Arc<Postgres>) -> bool {
    let postgres = Arc::clone(postgres);
    let held = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted";
    let held = tokio::task::spawn_blocking(move || postgres.psql(held).unwrap());
    held.await.unwrap().trim() != "0"
}

/// While the breaker is open a request does not wait for the database, and the log says why it is refused.
async fn is_refused_at_once(demo: &Process, agent: &Agent<'_>) {
    let mut soonest = Duration::MAX;
    for number in 0..REFUSED_TIMES {
        let watch = SystemClock::new();
        assert_eq!(
            agent.submit(&format!("refused-{number}"), "Gone").await,
            503
        );
        soonest = soonest.min(watch.now());
    }
    assert!(soonest < REFUSED_WITHIN, "{soonest:?}");
    let opened = lines(&demo.log(), "event", "circuit_breaker.opened");
    let says_why = opened.iter().any(|line| {
        let last = line["metadata"]["last_error"].as_str();
        last.is_some_and(|last| !last.is_empty()) && line["failure_count"] == line["threshold"]
    });
    assert!(says_why, "{opened:?}");
    eventually("a refusal says that the breaker is open", async || {
        let failed = lines(&demo.log(), "event", "storage.error").into_iter();
        let mut why = failed.map(|line| line.to_string());
        why.any(|line| line.contains("the circuit breaker is open"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_is_logged_and_every_alert_fires_and_clears() {
    let postgres = Arc::new(Postgres::start(PostgresOptions::default()).unwrap());
    let proxy = Proxy::start(&postgres.url()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let intakes = folder.path().join("intakes.json");
    let intake = json!([{
        "id": "vendor-onboarding",
        "title": "Vendor onboarding",
        "fields": {"companyName": {"type": "string", "required": true}},
        "idempotency": {"enabled": true, "lockTimeoutMs": 400, "executionTimeoutMs": 6000},
    }]);
    std::fs::write(&intakes, intake.to_string()).unwrap();
    let mark = if proxy.url().contains('?') { '&' } else { '?' };
    let database = format!("{}{mark}connections=1", proxy.url());
    let args = ["--database", &database, "--log", "debug", "--intakes"];
    let args = [&args[..], &[intakes.to_str().unwrap()]].concat();
    let demo = Process::start_with(folder.path(), Clock::RIGHT, &args).await;
    let asked = json!({"id": "agent_456", "type": "agent"});
    let token = demo.post("/api/v1/tokens", "-", asked).await.1;
    let agent = Agent {
        demo: &demo,
        token: token["token"].as_str().unwrap().to_owned(),
    };
    let prometheus = Prometheus::start(folder.path(), demo.admin());
    assert_eq!(agent.submit("warm", "Acme").await, 201);
    prometheus.scrapes().await;

    // A client that repeats itself, and one that uses its key for something else.
    for _ in 0..6 {
        assert_eq!(agent.submit("warm", "Acme").await, 200);
    }
    for number in 0..9 {
        assert_eq!(agent.submit("warm", &format!("Evil {number}")).await, 409);
    }
    prometheus.fires("IdempotencyHighReplayRate").await;
    prometheus.fires("IdempotencyConflictStorm").await;

    // A key whose time is short, and an answer that is too large: a complaint about each field.
    assert_eq!(agent.send("short", company("Short"), Some(1000)).await, 201);
    let fields: serde_json::Map<_, _> =
        (0..20_000).map(|it| (format!("f{it}"), json!(1))).collect();
    let sent = agent.send("large", json!({"fields": fields}), None).await;
    assert_eq!(sent, 422);

    // Duplicates of a request that hangs give up, it times out, and a retry takes it over.
    let locked = lock(&postgres, "submissions", 8.0);
    eventually("it is locked", async || is_locked(&postgres).await).await;
    let original = tokio::spawn(agent.sending("stuck", company("Stuck"), None));
    eventually("it runs", async || {
        demo.metric("idempotency_running").await == 1.0
    })
    .await;
    let mut duplicates = JoinSet::new();
    for _ in 0..12 {
        duplicates.spawn(agent.sending("stuck", company("Stuck"), None));
    }
    assert_eq!(duplicates.join_all().await, vec![503; 12]);
    prometheus.fires("IdempotencyLockTimeouts").await;
    assert!(original.await.unwrap() >= 500);
    locked.await.unwrap();
    eventually("the retry is taken", async || {
        agent.submit("stuck", "Stuck").await < 300
    })
    .await;
    prometheus.fires("IdempotencyLocksAbandoned").await;

    // A database that is slow, then one whose connections are all in use.
    proxy.delay(Duration::from_millis(600));
    let slow = tokio::spawn(agent.sending("slow", company("Slow"), None));
    prometheus.fires("IdempotencyStorageSlow").await;
    proxy.delay(Duration::ZERO);
    slow.await.unwrap();
    let table = postgres
        .psql("SELECT tablename FROM pg_tables WHERE tablename LIKE 'onlyonce%' ORDER BY length(tablename) LIMIT 1")
        .unwrap();
    let locked = lock(&postgres, table.trim(), 2.0);
    eventually("it is locked", async || is_locked(&postgres).await).await;
    let mut waiting = JoinSet::new();
    for number in 0..32 {
        waiting.spawn(agent.sending(&format!("many-{number}"), company("Many"), None));
    }
    locked.await.unwrap();
    waiting.join_all().await;
    prometheus.fires("IdempotencyConnectionPoolExhausted").await;

    // A database that is gone.
    proxy.refuse().await.unwrap();
    for number in 0..8 {
        assert_eq!(agent.submit(&format!("gone-{number}"), "Gone").await, 503);
    }
    prometheus.fires("IdempotencyCircuitBreakerOpen").await;
    prometheus.fires("IdempotencyStorageUnavailable").await;
    is_refused_at_once(&demo, &agent).await;
    proxy.resume().await.unwrap();

    // Everything is well again: new requests, and none of them a replay.
    eventually("the breaker closes", async || {
        agent.submit("back", "Back").await < 300
    })
    .await;
    for number in 0..60 {
        assert_eq!(agent.submit(&format!("fine-{number}"), "Fine").await, 201);
    }
    eventually("all alerts clear", async || {
        let firing = prometheus.firing().await;
        !ALERTS.iter().any(|alert| firing.contains(*alert))
    })
    .await;
    for (level, event, fields) in EVENTS {
        eventually(event, async || {
            let mut lines = lines(&demo.log(), "event", event).into_iter();
            lines.any(|line| line["level"] == level && has_all(&line, fields))
        })
        .await;
        for line in lines(&demo.log(), "event", event) {
            assert!(!is_of_an_intake(&line) || has_all(&line, fields), "{line}");
        }
    }
    for (event, fields) in AUDITED {
        eventually(event, async || {
            let trail = std::fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
            let mut lines = lines(&trail, "eventType", event).into_iter();
            lines.any(|line| has_all(&line, fields))
        })
        .await;
    }
    demo.kill().await;
}
