//! Every metric is provoked and seen over HTTP, with the documents' names, labels and buckets.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use onlyonce_gateway::Gateway;
use onlyonce_metrics::NAMES;
use onlyonce_testkit::servers::{Postgres, PostgresOptions, Redis, RedisOptions, Server as _};

use crate::support::{Service, client, eventually, gateway, order_with, started};

/// A route whose only part is called an intake.
const ROUTE: &str =
    "[[route]]\nmatch = \"POST /{intake}\"\nscope = [\"path:intake\", \"caller\"]\n";

/// What a scrape gives.
struct Page(String);

impl Page {
    async fn of(gateway: &Gateway) -> Self {
        let url = format!("http://{}/metrics", gateway.admin_address());
        let answer = client().get(url).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let kind = answer.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
        let page = answer.text().await.unwrap();
        assert!(page.ends_with("# EOF\n"), "{page}");
        Self(page)
    }

    /// The sum of the samples called `name` that have all of `labels`; none if there are none.
    fn find(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let has = |line: &str| {
            labels
                .iter()
                .all(|(label, value)| line.contains(&format!("{label}=\"{value}\"")))
        };
        let samples = self.0.lines().filter(|line| !line.starts_with('#'));
        let named = samples.filter(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(['{', ' ']))
        });
        let values: Vec<f64> = named
            .filter(|line| has(line))
            .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
            .collect();
        (!values.is_empty()).then(|| values.iter().sum())
    }

    #[track_caller]
    fn is(&self, name: &str, labels: &[(&str, &str)], value: f64) {
        assert_eq!(
            self.find(name, labels),
            Some(value),
            "{name} {labels:?}\n{}",
            self.0
        );
    }

    #[track_caller]
    fn is_some(&self, name: &str, labels: &[(&str, &str)]) {
        let found = self.find(name, labels);
        assert!(
            found.is_some_and(|it| it > 0.0),
            "{name} {labels:?}: {found:?}\n{}",
            self.0
        );
    }

    /// The ends of a histogram's buckets.
    fn buckets(&self, name: &str) -> Vec<f64> {
        let start = format!("{name}_bucket");
        let samples = self.0.lines().filter(|line| line.starts_with(&start));
        let ends = samples.filter_map(|line| {
            let end = line.split("le=\"").nth(1)?.split('"').next()?;
            end.parse::<f64>().ok().filter(|it| it.is_finite())
        });
        let mut ends: Vec<f64> = ends.collect();
        ends.sort_by(f64::total_cmp);
        ends.dedup();
        ends
    }

    /// The values of a label.
    fn values(&self, label: &str) -> BTreeSet<String> {
        let start = format!("{label}=\"");
        let samples = self.0.lines();
        let found = samples
            .filter_map(|line| Some(line.split(&start).nth(1)?.split('"').next()?.to_owned()));
        found.collect()
    }

    /// The metrics with a sample that is not zero.
    fn provoked(&self) -> BTreeSet<&'static str> {
        let with_endings = |name: &str| {
            ["", "_total", "_count", "_info"].iter().any(|ending| {
                self.find(&format!("{name}{ending}"), &[])
                    .is_some_and(|it| it != 0.0)
            })
        };
        NAMES
            .into_iter()
            .filter(|name| with_endings(name))
            .collect()
    }
}

/// An original, a replay, another payload under its key, and that payload again under a new key.
async fn usual_traffic() -> Page {
    let service = Service::start().await;
    let gateway = gateway(service.address, ROUTE).await;
    order_with(&gateway, "key-1", "{\"n\":1}").await;
    order_with(&gateway, "key-1", "{\"n\":1}").await;
    order_with(&gateway, "key-1", "{\"n\":2}").await;
    order_with(&gateway, "key-2", "{\"n\":2}").await;
    Page::of(&gateway).await
}

#[tokio::test]
async fn requests_replays_and_conflicts_are_counted_by_route_and_intake() {
    let page = usual_traffic().await;

    let intake = ("intake_id", "orders");
    let of = [intake, ("operation", "/{intake}")];
    let with = |replayed| [intake, ("operation", "/{intake}"), ("replayed", replayed)];
    page.is("idempotency_request_total", &with("false"), 3.0);
    page.is("idempotency_request_total", &with("true"), 1.0);
    page.is("idempotency_request_replayed_total", &of, 1.0);
    page.is("idempotency_request_duration_ms_count", &with("false"), 3.0);
    page.is("idempotency_request_duration_ms_count", &with("true"), 1.0);
    page.is("idempotency_cache_hit_rate", &[intake], 0.25);
    page.is(
        "idempotency_conflict_total",
        &[intake, ("conflict_type", "payload_mismatch")],
        1.0,
    );
    page.is(
        "idempotency_conflict_total",
        &[intake, ("conflict_type", "key_collision")],
        0.0,
    );
    page.is(
        "idempotency_conflict_retry_after_conflict_total",
        &[intake],
        1.0,
    );
    page.is("idempotency_lock_acquired_total", &[intake], 2.0);
    page.is("idempotency_lock_wait_time_ms_count", &[intake], 2.0);
    page.is("idempotency_lock_held_duration_ms_count", &of, 2.0);
    page.is("idempotency_key_active_count", &[intake], 2.0);
    page.is("idempotency_duplicate_age_ms_count", &[intake], 1.0);
    page.is("idempotency_response_bytes_count", &[], 2.0);
    page.is("idem_requests_total", &[("result", "new")], 2.0);
    page.is("idem_requests_total", &[("result", "replay")], 1.0);
    page.is("idem_requests_total", &[("result", "conflict")], 1.0);
    page.is("idem_execution_ms_count", &[], 2.0);
    page.is("idem_keys_active", &[], 2.0);
    page.is("idempotency_cache_size_entries", &[], 2.0);
    page.is_some("idempotency_cache_size_bytes", &[]);
    let claims = [("operation", "claim"), ("backend", "memory")];
    page.is(
        "idempotency_storage_operation_duration_ms_count",
        &claims,
        4.0,
    );
    page.is("idempotency_storage_error_rate", &claims, 0.0);
    let succeeded = [("operation", "claim"), ("status", "success")];
    page.is("idempotency_storage_operation_total", &succeeded, 4.0);
    let skew = page.find("idempotency_clock_skew_ms", &[]).unwrap();
    assert!(skew.abs() < 1000.0, "{skew}");
}

#[tokio::test]
async fn a_route_s_operation_is_its_label() {
    let service = Service::start().await;
    let gateway = gateway(service.address, &format!("{ROUTE}operation = \"submit\"\n")).await;
    order_with(&gateway, "key-1", "{\"n\":1}").await;
    order_with(&gateway, "key-1", "{\"n\":1}").await;

    let page = Page::of(&gateway).await;

    let of = [("intake_id", "orders"), ("operation", "submit")];
    page.is("idempotency_request_total", &of, 2.0);
    page.is("idempotency_request_replayed_total", &of, 1.0);
    assert_eq!(
        page.find("idempotency_request_total", &[("operation", "/{intake}")]),
        None
    );
}

#[tokio::test]
async fn histograms_have_the_documents_buckets() {
    let page = usual_traffic().await;

    for (name, ends) in [
        (
            "idempotency_request_duration_ms",
            &[10., 25., 50., 100., 250., 500., 1e3, 2.5e3, 5e3, 1e4][..],
        ),
        (
            "idempotency_storage_operation_duration_ms",
            &[1., 5., 10., 25., 50., 100., 250., 500., 1e3],
        ),
        (
            "idempotency_lock_wait_time_ms",
            &[0., 10., 50., 100., 250., 500., 1e3, 2.5e3, 5e3, 1e4, 3e4],
        ),
        (
            "idempotency_lock_held_duration_ms",
            &[10., 50., 100., 250., 500., 1e3, 2.5e3, 5e3, 1e4, 3e4],
        ),
        (
            "idempotency_key_average_lifetime_ms",
            &[6e4, 3e5, 6e5, 1.8e6, 3.6e6, 2.16e7, 8.64e7],
        ),
    ] {
        let last = format!("{name}_bucket{{le=\"+Inf\"");
        assert!(page.0.contains(&last), "{name}");
        let found = page.buckets(name);
        assert_eq!(found, ends, "{name}");
    }
}

/// A duplicate that waits while its original runs; the page is of that moment.
async fn a_waiting_duplicate() -> Page {
    let service = Service::start().await;
    let gateway = gateway(service.address, ROUTE).await;
    let send = || {
        let url = format!("http://{}/slow", gateway.address());
        tokio::spawn(client().post(url).header("idempotency-key", "key").send())
    };
    let first = send();
    eventually(|| service.work.runs() == 1).await;
    let second = send();
    let page = loop {
        let page = Page::of(&gateway).await;
        if page.find("idempotency_waiters", &[]) == Some(1.0) {
            break page;
        }
    };
    service.work.gate.notify_one();
    for sent in [first, second] {
        assert_eq!(sent.await.unwrap().unwrap().status(), 200);
    }
    page
}

#[tokio::test]
async fn who_runs_and_who_waits_is_seen_while_they_do() {
    let page = a_waiting_duplicate().await;

    page.is("idempotency_waiters", &[], 1.0);
    page.is("idempotency_running", &[], 1.0);
    page.is("idempotency_concurrent_requests_total", &[], 1.0);
    assert!(page.find("idempotency_lock_held_longest_ms", &[]).is_some());
}

/// A duplicate that waits in vain.
async fn a_lock_timeout() -> Page {
    let service = Service::start().await;
    let rules = format!("[rules]\nwait = \"50ms\"\n{ROUTE}");
    let gateway = gateway(service.address, &rules).await;
    let url = format!("http://{}/slow", gateway.address());
    let send = || client().post(&url).header("idempotency-key", "key").send();
    let first = tokio::spawn(send());
    eventually(|| service.work.runs() == 1).await;
    assert_eq!(send().await.unwrap().status(), 409);
    let page = Page::of(&gateway).await;
    service.work.gate.notify_one();
    first.await.unwrap().unwrap();
    page
}

#[tokio::test]
async fn a_duplicate_that_waited_in_vain_is_a_lock_timeout() {
    let page = a_lock_timeout().await;

    page.is(
        "idempotency_lock_timeout_total",
        &[("intake_id", "slow")],
        1.0,
    );
    page.is("idem_requests_total", &[("result", "in_progress")], 1.0);
    page.is_some("idempotency_lock_held_longest_ms", &[]);
}

/// An upstream that is lost with the request, and then runs it again.
async fn a_takeover() -> Page {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let mut bytes = [0; 4096];
            assert!(stream.read(&mut bytes).unwrap() > 0);
            if number > 0 {
                let answer =
                    "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nagain";
                stream.write_all(answer.as_bytes()).unwrap();
            }
        }
    });
    let gateway = gateway(address, ROUTE).await;
    assert_eq!(order_with(&gateway, "key", "{}").await.status(), 502);
    assert_eq!(order_with(&gateway, "key", "{}").await.status(), 200);
    Page::of(&gateway).await
}

#[tokio::test]
async fn a_claim_that_was_taken_over_is_an_abandoned_lock() {
    let page = a_takeover().await;

    page.is(
        "idempotency_lock_abandoned_total",
        &[("intake_id", "orders")],
        1.0,
    );
    page.is(
        "idempotency_event_total",
        &[("event", "outcome_unknown")],
        1.0,
    );
    page.is(
        "idempotency_refused_total",
        &[("reason", "outcome-unknown")],
        1.0,
    );
}

/// One key that expires, and one that an operator forgets.
async fn ended_keys() -> Page {
    let service = Service::start().await;
    let gateway = gateway(service.address, &format!("ttl = \"1s\"\n{ROUTE}")).await;
    order_with(&gateway, "key-1", "{}").await;
    let admin = format!("http://{}/api/v1", gateway.admin_address());
    let get = async |path: &str| {
        let answer = client().get(format!("{admin}{path}")).send().await.unwrap();
        serde_json::from_str::<serde_json::Value>(&answer.text().await.unwrap()).unwrap()
    };
    while get("/stats").await["records"] != 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The sizes on a page may be some seconds old: this is the first one.
    let swept = Page::of(&gateway).await;
    swept.is("idempotency_stale_keys_count", &[], 1.0);
    order_with(&gateway, "key-2", "{}").await;
    let slot = get("/records").await["records"][0]["slot"].clone();
    let url = format!("{admin}/records/{}", slot.as_str().unwrap());
    assert_eq!(client().delete(url).send().await.unwrap().status(), 204);
    loop {
        let page = Page::of(&gateway).await;
        let reason = [("reason", "ttl_elapsed")];
        if page.find("idempotency_key_expired_total", &reason) == Some(1.0) {
            break page;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn keys_end_by_time_or_by_hand() {
    let page = ended_keys().await;

    let by_hand = [("reason", "explicit_delete"), ("intake_id", "orders")];
    page.is("idempotency_key_expired_total", &by_hand, 1.0);
    page.is_some("idempotency_key_average_lifetime_ms_count", &[]);
    page.is(
        "idempotency_key_active_count",
        &[("intake_id", "orders")],
        0.0,
    );
}

/// A store that is gone.
async fn a_dead_store() -> Page {
    let redis = Redis::start(RedisOptions::default()).unwrap();
    let service = Service::start().await;
    let store = format!("store = \"{}\"\n{ROUTE}", redis.url());
    let gateway = started(service.address, &store).await;
    assert_eq!(order_with(&gateway, "key-0", "{}").await.status(), 201);
    redis.kill().unwrap();
    for number in 1..=8 {
        let refused = order_with(&gateway, &format!("key-{number}"), "{}").await;
        assert_eq!(refused.status(), 503);
    }
    Page::of(&gateway).await
}

#[tokio::test]
async fn a_dead_store_opens_the_breaker() {
    let page = a_dead_store().await;

    let backend = ("backend", "redis");
    page.is("idempotency_circuit_breaker_state", &[backend], 1.0);
    page.is("idempotency_circuit_breaker_opened_total", &[backend], 1.0);
    let rejected = "idempotency_circuit_breaker_rejected_requests_total";
    page.is_some(rejected, &[backend, ("operation", "claim")]);
    let claims = [backend, ("operation", "claim")];
    page.is_some("idempotency_storage_error_rate", &claims);
    let failed = [backend, ("operation", "claim"), ("status", "error")];
    page.is_some("idempotency_storage_operation_total", &failed);
    page.is_some("idempotency_refused_total", &[("reason", "store-down")]);
    page.is_some("idempotency_event_total", &[("event", "store_failed")]);
}

/// An upstream that is lost with two requests that must not run again, and an operator who forgets one.
async fn outcomes_in_doubt() -> Page {
    let lost = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = lost.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in lost.incoming() {
            let mut bytes = [0; 4096];
            assert!(stream.unwrap().read(&mut bytes).unwrap() > 0);
        }
    });
    let gateway = gateway(address, &format!("[rules]\non_lapse = \"hold\"\n{ROUTE}")).await;
    for key in ["key-1", "key-2"] {
        assert_eq!(order_with(&gateway, key, "{}").await.status(), 502);
    }
    let page = Page::of(&gateway).await;
    page.is("idempotency_outcomes_in_doubt", &[], 2.0);
    let url = format!("http://{}/api/v1/records", gateway.admin_address());
    let listed = client()
        .get(&url)
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let slot = listed["records"][0]["slot"].as_str().unwrap();
    let forgotten = client().delete(format!("{url}/{slot}")).send().await;
    assert_eq!(forgotten.unwrap().status(), 204);
    Page::of(&gateway).await
}

#[tokio::test]
async fn outcomes_in_doubt_an_upstream_that_fails_and_what_operators_do_are_counted() {
    let page = outcomes_in_doubt().await;

    page.is("idempotency_outcomes_in_doubt", &[], 1.0);
    page.is(
        "idempotency_operator_action_total",
        &[("action", "forget")],
        1.0,
    );
    page.is("idempotency_upstream_up", &[], 0.0);
    page.is(
        "idempotency_upstream_failure_total",
        &[("kind", "lost")],
        2.0,
    );
}

/// More claims than a store of one connection can answer while another session locks its table.
async fn too_few_connections() -> Page {
    let postgres = Arc::new(Postgres::start(PostgresOptions::default()).unwrap());
    let service = Service::start().await;
    let url = postgres.url();
    let mark = if url.contains('?') { '&' } else { '?' };
    let store = format!("store = \"{url}{mark}connections=1\"\n{ROUTE}");
    let gateway = Arc::new(started(service.address, &store).await);
    order_with(&gateway, "key", "{}").await;
    let table = postgres
        .psql("SELECT tablename FROM pg_tables WHERE tablename LIKE 'onlyonce%' ORDER BY length(tablename) LIMIT 1")
        .unwrap();
    let table = table.trim().to_owned();
    let locking = Arc::clone(&postgres);
    let locked = tokio::task::spawn_blocking(move || {
        locking.psql(&format!(
            "BEGIN; LOCK TABLE {table}; SELECT pg_sleep(2); COMMIT"
        ))
    });
    let sent: Vec<_> = (0..32)
        .map(|number| {
            let gateway = Arc::clone(&gateway);
            tokio::spawn(async move { order_with(&gateway, &format!("key-{number}"), "{}").await })
        })
        .collect();
    let page = loop {
        let page = Page::of(&gateway).await;
        let exhausted = page.find("idempotency_storage_connection_pool_exhausted_total", &[]);
        let active = page.find("idempotency_storage_connection_pool_active", &[]);
        if exhausted > Some(0.0) && active > Some(0.0) {
            break page;
        }
    };
    locked.await.unwrap().unwrap();
    for sent in sent {
        sent.await.unwrap();
    }
    page
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_in_use_and_too_few_of_them_are_seen() {
    let page = too_few_connections().await;

    let backend = [("backend", "postgres")];
    page.is("idempotency_storage_connection_pool_active", &backend, 1.0);
    page.is_some(
        "idempotency_storage_connection_pool_exhausted_total",
        &backend,
    );
}

#[tokio::test]
async fn a_label_has_at_most_a_hundred_values_and_other() {
    let service = Service::start().await;
    let gateway = gateway(service.address, ROUTE).await;
    for number in 0..120 {
        let url = format!("http://{}/path-{number}", gateway.address());
        let request = client().post(url).header("idempotency-key", "key");
        assert_eq!(request.send().await.unwrap().status(), 404);
    }

    let page = Page::of(&gateway).await;

    let mut intakes = page.values("intake_id");
    intakes.retain(|it| it.starts_with("path-") || it == "other");
    assert_eq!(intakes.len(), 101, "{intakes:?}");
    page.is("idempotency_request_total", &[("intake_id", "other")], 20.0);
}

#[tokio::test]
async fn paths_that_clients_choose_are_no_labels() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    for number in 0..120 {
        let url = format!("http://{}/path-{number}", gateway.address());
        let request = client()
            .post(url)
            .header("idempotency-key", format!("key-{number}"));
        assert_eq!(request.send().await.unwrap().status(), 404);
    }

    let page = Page::of(&gateway).await;

    assert!(!page.0.contains("path-"), "{}", page.0);
    page.is("idempotency_request_total", &[("operation", "*")], 120.0);
}

/// An original and its repeat on a route that is only observed.
async fn observed_traffic() -> Page {
    let service = Service::start().await;
    let more = "[[route]]\nmatch = \"POST /orders\"\nmode = \"observe\"\n";
    let gateway = gateway(service.address, more).await;
    for _ in 0..2 {
        let answer = order_with(&gateway, "key-1", "{}").await;
        answer.text().await.unwrap();
    }
    loop {
        let page = Page::of(&gateway).await;
        if page
            .find("idempotency_observed_total", &[("seen", "ran-again")])
            .is_some()
        {
            return page;
        }
    }
}

#[tokio::test]
async fn what_is_seen_on_observed_routes_is_counted_by_route_and_apart_from_what_is_enforced() {
    let page = observed_traffic().await;

    for (seen, count) in [
        ("first", 1.0),
        ("replay", 1.0),
        ("weak-key", 2.0),
        ("ran-again", 1.0),
    ] {
        let labels = [("route", "POST /orders"), ("seen", seen)];
        page.is("idempotency_observed_total", &labels, count);
    }
    assert_eq!(page.find("idempotency_request_total", &[]), None);
}

/// Remarks of `promtool check metrics` on names that the documents give: everything else it is content with.
const REMARKS: [&str; 2] = [
    "metric names should not contain abbreviated units",
    "non-histogram and non-summary metrics should not have \"_count\" suffix",
];

#[tokio::test]
async fn promtool_is_content_with_the_text_of_a_busy_gateway_but_for_the_documents_names() {
    let service = Service::start().await;
    let more = format!("[[route]]\nmatch = \"POST /orders\"\nmode = \"observe\"\n{ROUTE}");
    let gateway = gateway(service.address, &more).await;
    for path in ["orders", "me\u{e9}", "echo"] {
        for key in ["key-1", "key-1", "key-2"] {
            let url = format!("http://{}/{path}", gateway.address());
            let request = client().post(url).header("idempotency-key", key);
            request.send().await.unwrap();
        }
    }
    let url = format!("http://{}/metrics", gateway.admin_address());
    let answer = client()
        .get(&url)
        .header("accept", "text/plain;version=0.0.4");
    let answer = answer.send().await.unwrap();
    assert_eq!(
        answer.headers()["content-type"],
        onlyonce_metrics::TEXT_CONTENT_TYPE
    );
    let page = answer.text().await.unwrap();
    assert!(
        page.contains("# TYPE idempotency_request_total counter"),
        "{page}"
    );

    let mut promtool = tokio::process::Command::new("promtool");
    let promtool = promtool
        .args(["check", "metrics"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut checking = promtool
        .spawn()
        .expect("promtool is in the Debian package prometheus");
    let mut pipe = checking.stdin.take().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut pipe, page.as_bytes())
        .await
        .unwrap();
    drop(pipe);
    let output = checking.wait_with_output().await.unwrap();
    let told = [output.stdout, output.stderr].concat();
    let told = String::from_utf8_lossy(&told);
    let is_known = |line: &&str| REMARKS.iter().any(|remark| line.ends_with(remark));
    let others: Vec<_> = told.lines().filter(|line| !is_known(line)).collect();
    assert_eq!(others, [""; 0], "{page}");
    // Its own word for remarks: 1 would be text that it cannot read.
    assert_eq!(output.status.code(), Some(3), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_there_is_was_provoked_by_one_of_these() {
    let pages = [
        usual_traffic().await,
        a_waiting_duplicate().await,
        a_lock_timeout().await,
        a_takeover().await,
        ended_keys().await,
        a_dead_store().await,
        too_few_connections().await,
        outcomes_in_doubt().await,
        observed_traffic().await,
    ];

    let mut provoked: BTreeSet<_> = pages.iter().flat_map(Page::provoked).collect();
    // Zero where the clocks agree to the millisecond; seen above. Expired, but not yet swept: so too.
    provoked.extend(["idempotency_clock_skew_ms", "idempotency_stale_keys_count"]);
    assert_eq!(provoked, BTreeSet::from(NAMES));
    let named = pages.iter().flat_map(|page| page.0.lines());
    let named = named.filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let unnamed: Vec<_> = named.filter(|name| !NAMES.contains(name)).collect();
    assert_eq!(unnamed, [""; 0], "not in NAMES");
}
