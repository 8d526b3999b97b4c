//! `ops/`: the alert rules fire on the metrics of gateways in real trouble, and the commands of each
//! runbook work there; the dashboard shows nothing that does not exist, and all that does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use onlyonce_metrics::NAMES;
use onlyonce_testkit::proxy::Proxy;
use onlyonce_testkit::servers::{Postgres, PostgresOptions, Redis, RedisOptions, Server as _};
use serde_json::Value;
use tokio::process::Command;

use crate::support::gateway::{Running, eventually, lost, service, vanishing};

const MEMORY: &str = "store = \"memory:\"\n";

/// Where an alert's runbook is: below what the Prometheus says, or else in the repository.
const RUNBOOK_URL: &str = "runbook_url: '{{ with $externalLabels.runbooks }}{{ . }}{{ else }}https://github.com/onlyonce/onlyonce/blob/main/ops/runbooks{{ end }}/";

fn ops(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../ops")
        .join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(ops(path)).unwrap()
}

async fn promtool(args: &[&str], folder: &Path) {
    let mut command = Command::new("promtool");
    let output = command.args(args).current_dir(folder).output().await;
    let output = output.expect("promtool is in the Debian package prometheus");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "promtool {args:?}: {said}");
}

/// The metrics that an expression names.
fn metrics(expression: &str) -> BTreeSet<&str> {
    let is_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
    let words = expression.split(|it| !is_name(it));
    words
        .filter(|it| it.starts_with("idem") || it.starts_with("onlyonce_"))
        .collect()
}

/// A metric without the ending of its kind.
fn bare(name: &str) -> &str {
    if NAMES.contains(&name) {
        return name;
    }
    let endings = ["_total", "_bucket", "_sum", "_count", "_info"];
    let mut bare = endings
        .iter()
        .filter_map(|ending| name.strip_suffix(ending));
    bare.find(|name| NAMES.contains(name)).unwrap_or(name)
}

/// The alerts, and the runbooks they name.
fn alerts() -> BTreeMap<String, String> {
    let rules = read("prometheus/alerts.yml");
    let of = |line: &str, field: &str| Some(line.trim().strip_prefix(field)?.trim().to_owned());
    let names = rules.lines().filter_map(|line| of(line, "- alert:"));
    let books = rules.lines().filter_map(|line| of(line, RUNBOOK_URL));
    let books = books.map(|it| format!("runbooks/{}", it.trim_end_matches('\'')));
    names.zip(books).collect()
}

#[tokio::test]
async fn the_rules_are_valid_and_fire_at_their_thresholds() {
    let folder = ops("prometheus");
    promtool(&["check", "rules", "alerts.yml"], &folder).await;
    promtool(&["test", "rules", "alerts_test.yml"], &folder).await;
}

#[test]
fn d0_9_3_1_every_runbook_of_the_document_is_there_under_its_name() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/runbooks");
    for name in [
        "idempotency-storage-outage.md",
        "circuit-breaker-recovery.md",
        "lock-contention.md",
        "idempotency-conflicts.md",
    ] {
        let page = fs::read_to_string(docs.join(name)).unwrap();
        let links: Vec<&str> = page
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
            .collect();
        assert!(
            links.iter().any(|link| link.contains("ops/runbooks/")),
            "{name}"
        );
        for link in links {
            assert!(docs.join(link).is_file(), "{name}: {link}");
        }
    }
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let alerts = alerts();
    assert_eq!(alerts.len(), 13);
    let tested = read("prometheus/alerts_test.yml");
    for (alert, runbook) in &alerts {
        assert!(
            read(runbook).contains(&format!("Alert: `{alert}`")),
            "{runbook}"
        );
        assert!(
            tested.contains(alert.as_str()),
            "{alert} is not in alerts_test.yml"
        );
    }
    let books = fs::read_dir(ops("runbooks")).unwrap();
    assert_eq!(books.count(), alerts.len());
}

#[test]
fn the_rules_and_the_dashboard_use_metrics_that_exist_and_the_dashboard_all_of_them() {
    let dashboard: Value = serde_json::from_str(&read("grafana/onlyonce.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    let expressions: Vec<_> = targets.map(|it| it["expr"].as_str().unwrap()).collect();
    let shown: BTreeSet<_> = expressions
        .iter()
        .flat_map(|it| metrics(it))
        .map(bare)
        .collect();
    let rules = read("prometheus/alerts.yml");
    let rules = rules
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    let used = rules
        .flat_map(metrics)
        .filter(|it| it.contains('_') && !it.starts_with("idempotent"));

    for name in used {
        assert!(NAMES.contains(&bare(name)), "{name} does not exist");
    }
    assert_eq!(shown, BTreeSet::from(NAMES));
}

async fn page(gateway: &Running) -> String {
    let answer = reqwest::get(format!("{}/metrics", gateway.admin))
        .await
        .unwrap();
    answer.text().await.unwrap()
}

/// How the counters of a page go on.
#[derive(Clone, Copy)]
enum Goes {
    /// They jumped once, from what they were before.
    Once,
    /// What happened happens again between any two scrapes.
    On,
}

/// What a page says, as series for promtool: a sample every 15 seconds.
fn series(before: &str, after: &str, goes: Goes) -> String {
    let samples = |page: &str| -> BTreeMap<String, f64> {
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        lines.filter_map(sample).collect()
    };
    let kinds: BTreeMap<&str, &str> = after
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .collect();
    let before = samples(before);
    let mut text = String::new();
    for (name, now) in samples(after) {
        let metric = name.split('{').next().unwrap();
        let then = before.get(&name).copied().unwrap_or(0.0);
        let values = match (kinds.get(bare(metric)), goes) {
            (Some(&"gauge"), _) => format!("{now}+0x80"),
            (_, Goes::Once) => format!("{then}+0x4 {now}+0x76"),
            (_, Goes::On) => format!("{then}+{}x80", now - then),
        };
        let name = name.replace('\'', "''");
        writeln!(text, "      - {{series: '{name}', values: '{values}'}}").unwrap();
    }
    text
}

/// The alert fires on what the gateway says, and its runbook's commands work right now.
async fn assert_handled(alert: &str, gateway: &Running, before: &str, goes: Goes) {
    let after = page(gateway).await;
    let at = match goes {
        Goes::Once => "1m45s",
        Goes::On => "20m",
    };
    let test = format!(
        "rule_files: [{:?}]\nevaluation_interval: 15s\ntests:\n  - interval: 15s\n    input_series:\n{}\
         \x20   promql_expr_test:\n      - expr: 'count(ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}) \
         > bool 0'\n        eval_time: {at}\n        exp_samples: [{{labels: '{{}}', value: 1}}]\n",
        ops("prometheus/alerts.yml"),
        series(before, &after, goes),
    );
    let file = gateway.folder.path().join("fires.yml");
    fs::write(&file, test).unwrap();
    promtool(&["test", "rules", "fires.yml"], gateway.folder.path()).await;

    let runbook = read(&alerts()[alert]);
    let commands = runbook
        .split("```sh\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_onlyonce")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    for line in commands.lines() {
        let mut shell = Command::new("sh");
        shell
            .args(["-euc", line])
            .env("PATH", &path)
            .env("ADMIN", &gateway.admin);
        let output = shell.output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{alert}: {line}: {said}");
    }
}

#[tokio::test]
async fn a_store_that_is_gone() {
    let redis = Redis::start(RedisOptions::default()).unwrap();
    let (upstream, _) = service().await;
    let gateway = Running::start(&upstream, &format!("store = \"{}\"\n", redis.url())).await;
    let before = page(&gateway).await;
    redis.kill().unwrap();
    for number in 0..8 {
        assert_eq!(
            gateway
                .send("/orders", &format!("key-{number}"), "{}")
                .await,
            503
        );
    }

    assert_handled("IdempotencyStorageUnavailable", &gateway, &before, Goes::On).await;
    assert_handled(
        "IdempotencyCircuitBreakerOpen",
        &gateway,
        &before,
        Goes::Once,
    )
    .await;
}

#[tokio::test]
async fn a_slow_service_with_impatient_clients() {
    let (upstream, work) = service().await;
    let gateway = Running::start(&upstream, &format!("{MEMORY}[rules]\nwait = \"50ms\"\n")).await;
    let before = page(&gateway).await;
    let slow = tokio::spawn(gateway.request("/slow", "key").send());
    eventually("it runs", async || work.runs.load(Ordering::SeqCst) == 1).await;
    for _ in 0..12 {
        assert_eq!(gateway.send("/slow", "key", "").await, 409);
    }

    assert_handled("IdempotencyLockTimeouts", &gateway, &before, Goes::Once).await;
    assert_handled("IdempotencyConcurrentRequests", &gateway, &before, Goes::On).await;
    work.gate.notify_one();
    slow.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_service_that_hangs() {
    let (upstream, work) = service().await;
    let gateway = Running::start(&upstream, MEMORY).await;
    let slow = tokio::spawn(gateway.request("/slow", "key").send());
    let held = async || {
        let page = page(&gateway).await;
        let line = page
            .lines()
            .find(|line| line.starts_with("idempotency_lock_held_longest_ms "));
        line.unwrap()
            .rsplit(' ')
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    while held().await <= 25_000 {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }

    assert_handled("IdempotencyLockHeldLong", &gateway, "", Goes::Once).await;
    work.gate.notify_one();
    slow.await.unwrap().unwrap();
}

#[tokio::test]
async fn keys_that_are_used_again_and_again() {
    let (upstream, _) = service().await;
    let gateway = Running::start(&upstream, MEMORY).await;
    let before = page(&gateway).await;
    for number in 0..9 {
        gateway
            .send("/orders", "key", &format!("{{\"n\":{number}}}"))
            .await;
    }

    assert_handled("IdempotencyConflictStorm", &gateway, &before, Goes::Once).await;
}

#[tokio::test]
async fn clients_that_repeat_themselves() {
    let (upstream, _) = service().await;
    let gateway = Running::start(&upstream, MEMORY).await;
    for _ in 0..3 {
        assert_eq!(gateway.send("/orders", "key", "{}").await, 200);
    }

    assert_handled("IdempotencyHighReplayRate", &gateway, "", Goes::On).await;
}

#[tokio::test]
async fn a_store_that_is_slow() {
    let redis = Redis::start(RedisOptions::default()).unwrap();
    let proxy = Proxy::start(&redis.url()).await.unwrap();
    let (upstream, _) = service().await;
    let gateway = Running::start(&upstream, &format!("store = \"{}\"\n", proxy.url())).await;
    let before = page(&gateway).await;
    proxy.delay(Duration::from_millis(600));
    assert_eq!(gateway.send("/orders", "key", "{}").await, 200);

    assert_handled("IdempotencyStorageSlow", &gateway, &before, Goes::On).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_with_too_few_connections() {
    let postgres = std::sync::Arc::new(Postgres::start(PostgresOptions::default()).unwrap());
    let (upstream, _) = service().await;
    let url = postgres.url();
    let mark = if url.contains('?') { '&' } else { '?' };
    let settings = format!("store = \"{url}{mark}connections=1\"\n");
    let gateway = Running::start(&upstream, &settings).await;
    assert_eq!(gateway.send("/orders", "key", "{}").await, 200);
    let table = postgres
        .psql("SELECT tablename FROM pg_tables WHERE tablename LIKE 'onlyonce%' ORDER BY length(tablename) LIMIT 1")
        .unwrap();
    let locking = std::sync::Arc::clone(&postgres);
    let lock = format!(
        "BEGIN; LOCK TABLE {}; SELECT pg_sleep(2); COMMIT",
        table.trim()
    );
    let locked = tokio::task::spawn_blocking(move || locking.psql(&lock));
    let sent: Vec<_> = (0..32)
        .map(|number| tokio::spawn(gateway.request("/orders", &format!("key-{number}")).send()))
        .collect();
    locked.await.unwrap().unwrap();
    for sent in sent {
        sent.await.unwrap().unwrap();
    }

    assert_handled(
        "IdempotencyConnectionPoolExhausted",
        &gateway,
        "",
        Goes::Once,
    )
    .await;
}

#[tokio::test]
async fn a_service_that_was_lost_with_a_request() {
    let gateway = Running::start(&vanishing(), MEMORY).await;
    assert_eq!(gateway.send("/orders", "key", "{}").await, 502);
    assert_eq!(gateway.send("/orders", "key", "{}").await, 200);

    assert_handled("IdempotencyLocksAbandoned", &gateway, "", Goes::Once).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_not_swept() {
    let (upstream, _) = service().await;
    let gateway = Running::start(&upstream, &format!("{MEMORY}ttl = \"20s\"\n")).await;
    for batch in 0..20 {
        let sent: Vec<_> = (0..60)
            .map(|number| {
                let key = format!("key-{batch}-{number}");
                tokio::spawn(gateway.request("/orders", &key).send())
            })
            .collect();
        for sent in sent {
            assert_eq!(sent.await.unwrap().unwrap().status(), 200);
        }
    }
    eventually("all have expired", async || {
        let stats = reqwest::get(format!("{}/api/v1/stats", gateway.admin))
            .await
            .unwrap();
        let stats: Value = serde_json::from_str(&stats.text().await.unwrap()).unwrap();
        stats["records"] == 0
    })
    .await;

    assert_handled("IdempotencyStaleKeys", &gateway, "", Goes::On).await;
}

#[tokio::test]
async fn outcomes_that_wait_for_a_decision_and_the_service_that_left_them() {
    let settings = format!("{MEMORY}[rules]\non_lapse = \"hold\"\n");
    let gateway = Running::start(&lost(), &settings).await;
    for number in 0..3 {
        let key = format!("key-{number}");
        assert_eq!(gateway.send("/orders", &key, "{}").await, 502);
    }

    assert_handled("IdempotencyOutcomesInDoubt", &gateway, "", Goes::On).await;
    assert_handled("IdempotencyUpstreamDown", &gateway, "", Goes::On).await;
}
