//! The documents' own services show what happens: metrics with the documents' labels, a log that
//! says why, a circuit breaker before a database that is gone (D0 §8.2, §9).

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce::core::{Clock as _, SystemClock};
use onlyonce_demo::Options;
use onlyonce_observe::BreakerState;
use onlyonce_testkit::proxy::Proxy;
use onlyonce_testkit::servers::{Postgres, PostgresOptions, Server as _};
use serde_json::json;

use crate::postgres::database;
use crate::support::{Answer, Bed, uuid};

/// By when a request is answered that the breaker refuses. It takes a millisecond or so; of several rounds
/// the one in the middle counts, so that a busy machine does not decide it.
const REFUSED_WITHIN: Duration = Duration::from_millis(50);
const ROUNDS: usize = 5;

/// What a page of metrics says of a sample that has all of `labels`.
fn sample(bed: &Bed, name: &str, labels: &[(&str, &str)]) -> f64 {
    let page = bed.demo.observed().observers.metrics().page();
    let has = |line: &&str| {
        let mut labels = labels.iter();
        labels.all(|(label, value)| line.contains(&format!("{label}=\"{value}\"")))
    };
    let samples = page.lines().filter(|line| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(['{', ' ']))
    });
    let values = samples.filter(has).map(|line| {
        let value = line.rsplit(' ').next().unwrap();
        value.parse::<f64>().unwrap()
    });
    values.sum()
}

async fn submit(bed: &Bed, key: &str, company: &str) -> Answer {
    bed.post("/api/intakes/vendor-onboarding/submit")
        .key(key)
        .json(json!({"fields": {"companyName": company}}))
        .send()
        .await
}

#[tokio::test]
async fn the_intake_service_counts_by_intake_and_operation() {
    let bed = Bed::new().await;
    let draft = bed
        .post("/api/intakes/vendor-onboarding/submissions")
        .key("draft")
        .json(json!({"fields": {}}))
        .send()
        .await;
    let path = format!("/api/submissions/{}/fields", draft.text_at("submissionId"));
    let fields = json!({"fields": {"companyName": "Acme"}});
    assert_eq!(
        bed.patch(&path)
            .key("fields")
            .json(fields)
            .send()
            .await
            .status,
        200
    );

    assert_eq!(submit(&bed, "whole", "Acme").await.status, 201);
    for _ in 0..6 {
        assert_eq!(submit(&bed, "whole", "Acme").await.status, 200);
    }
    assert_eq!(submit(&bed, "whole", "Evil").await.status, 409);

    let intake = ("intake_id", "vendor-onboarding");
    let request = |operation, replayed| {
        let labels = [intake, ("operation", operation), ("replayed", replayed)];
        sample(&bed, "idempotency_request_total", &labels)
    };
    assert_eq!(request("create", "false"), 1.0);
    assert_eq!(request("setFields", "false"), 1.0);
    assert_eq!(
        (request("submit", "false"), request("submit", "true")),
        (2.0, 6.0)
    );
    let conflicts = [intake, ("conflict_type", "payload_mismatch")];
    assert_eq!(sample(&bed, "idempotency_conflict_total", &conflicts), 1.0);
    assert_eq!(
        sample(&bed, "idempotency_lock_acquired_total", &[intake]),
        3.0
    );
    let claims = [("operation", "claim"), ("backend", "sqlite")];
    assert!(sample(&bed, "idempotency_storage_operation_total", &claims) > 0.0);
}

#[tokio::test]
async fn the_broker_and_the_sync_service_count_too() {
    let bed = Bed::new().await;
    let token = bed.token("user", "ada").await;
    for _ in 0..2 {
        let form = json!({"contextId": "test-form:1", "formData": {"name": "John"}});
        let sent = bed.post("/api/forms/test-form/submit").json(form).send();
        assert_eq!(sent.await.status, 200);
        let user = json!({"meta": {}, "payload": {"email": "a@example.com"}});
        let made = bed.post("/api/v1/users").token(&token).key(&uuid(1));
        assert_eq!(made.json(user).send().await.status, 201);
    }

    for operation in ["/api/forms/{form}/submit", "/api/v1/users"] {
        let labels = [("operation", operation), ("replayed", "true")];
        assert_eq!(
            sample(&bed, "idempotency_request_total", &labels),
            1.0,
            "{operation}"
        );
    }
}

/// What is logged in this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn with_the_database_gone_the_tenth_request_does_not_ask_it_and_the_log_says_why() {
    let proxy = Proxy::start(&database("demo_gone").await).await.unwrap();
    let log = Log::default();
    let lines = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || lines.clone())
        .finish();
    // The test's runtime has one thread, so all of it logs here.
    let _logging = tracing::subscriber::set_default(subscriber);
    let bed = Bed::start(&Options::new(proxy.url()), None).await;
    let draft = submit(&bed, "before", "Acme").await.text_at("submissionId");

    proxy.refuse().await.unwrap();
    for number in 0..9 {
        assert_eq!(
            submit(&bed, &format!("key-{number}"), "Acme").await.status,
            503
        );
    }
    assert_eq!(bed.demo.observed().breaker(), BreakerState::Open);
    let claims = [("operation", "claim"), ("backend", "postgres")];
    let asked = sample(&bed, "idempotency_storage_operation_total", &claims);
    let tenth = submit(&bed, "key-9", "Acme").await;

    assert_eq!(tenth.status, 503);
    assert_eq!(tenth.header("retry-after"), Some("5"));
    assert_eq!(
        sample(&bed, "idempotency_storage_operation_total", &claims),
        asked,
        "the store was not asked"
    );
    let path = format!("/api/submissions/{draft}/submit");
    assert_eq!(bed.post(&path).key("key-10").send().await.status, 503);
    let rejected = [("backend", "postgres")];
    let rejected = sample(
        &bed,
        "idempotency_circuit_breaker_rejected_requests_total",
        &rejected,
    );
    assert!(
        (1.0..=9.0).contains(&rejected),
        "each refused request counts once: {rejected}"
    );
    let log = log.text();
    for said in [
        "idempotency.circuit_breaker.opened",
        "failure_count=5 threshold=5",
        "metadata.last_error=",
        "idempotency.storage.error",
        "the circuit breaker is open",
    ] {
        assert!(log.contains(said), "{said}: {log}");
    }

    proxy.resume().await.unwrap();
    while bed.demo.observed().breaker() != BreakerState::Closed {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(submit(&bed, "key-9", "Acme").await.status, 201);
}

/// A server of PostgreSQL that is stopped, not one that cannot be reached; and the tenth request, not the
/// soonest of some.
#[tokio::test]
async fn with_the_database_stopped_the_tenth_request_is_answered_at_once_and_the_log_says_why() {
    let postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let log = Log::default();
    let lines = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || lines.clone())
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let bed = Bed::start(&Options::new(postgres.url()), None).await;
    let mut tenths = Vec::new();

    for round in 0..ROUNDS {
        while submit(&bed, &format!("before-{round}"), "Acme")
            .await
            .status
            != 201
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        postgres.kill().unwrap();
        for number in 0..9 {
            let answer = submit(&bed, &format!("key-{round}-{number}"), "Acme").await;
            assert_eq!(answer.status, 503);
        }
        let said = log.text().matches("the circuit breaker is open").count();
        let watch = SystemClock::new();
        let tenth = submit(&bed, &format!("key-{round}-9"), "Acme").await;
        tenths.push(watch.now());
        assert_eq!(tenth.status, 503);
        let says_now = log.text().matches("the circuit breaker is open").count();
        assert!(says_now > said, "round {round}: the log says why");
        postgres.start_again().unwrap();
    }

    tenths.sort();
    assert!(tenths[ROUNDS / 2] < REFUSED_WITHIN, "{tenths:?}");
}
