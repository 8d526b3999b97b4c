//! A real Prometheus with the shipped rules, whose durations are scaled: every `for:` is a second and every
//! range ten. Thresholds, metrics and labels are as shipped.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use onlyonce_testkit::servers::free_port;
use serde_json::Value;
use tokio::process::{Child, Command};

/// By when an alert has fired or cleared. An error rate looks back one minute.
const SOON: Duration = Duration::from_secs(120);

/// A Prometheus that scrapes one address.
pub(crate) struct Prometheus {
    url: String,
    _child: Child,
}

impl Prometheus {
    /// Starts in `folder`; ends with what this returns.
    pub(crate) fn start(folder: &Path, admin: &str) -> Self {
        let rules = include_str!("../../../../../ops/prometheus/alerts.yml");
        let rules = scaled(rules);
        std::fs::write(folder.join("alerts.yml"), rules).unwrap();
        let target = admin.strip_prefix("http://").unwrap();
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 500ms}}\n\
             rule_files: [alerts.yml]\n\
             scrape_configs:\n  - job_name: demo\n    static_configs: [{{targets: ['{target}']}}]\n"
        );
        std::fs::write(folder.join("prometheus.yml"), config).unwrap();
        let address = format!("127.0.0.1:{}", free_port().unwrap());
        let child = Command::new("prometheus")
            .arg(format!("--web.listen-address={address}"))
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg("--log.level=error")
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("prometheus is in the Debian package prometheus");
        Self {
            url: format!("http://{address}"),
            _child: child,
        }
    }

    /// The alerts that fire now; none while it does not answer yet.
    pub(crate) async fn firing(&self) -> BTreeSet<String> {
        self.told().await.unwrap_or_default()
    }

    /// The alerts that fire now, if it answers.
    async fn told(&self) -> Option<BTreeSet<String>> {
        let alerts = self.ask("/api/v1/alerts").await?;
        let firing = alerts["data"]["alerts"].as_array()?.iter();
        let firing = firing.filter(|alert| alert["state"] == "firing");
        let name = |alert: &Value| alert["labels"]["alertname"].as_str().map(str::to_owned);
        Some(firing.filter_map(name).collect())
    }

    async fn ask(&self, path: &str) -> Option<Value> {
        let answer = reqwest::get(format!("{}{path}", self.url)).await.ok()?;
        serde_json::from_str(&answer.text().await.ok()?).ok()
    }

    /// Returns when the alert fires.
    pub(crate) async fn fires(&self, alert: &str) {
        eventually(&format!("{alert} fires"), async || {
            self.firing().await.contains(alert)
        })
        .await;
    }

    /// Returns when the alert does not fire.
    pub(crate) async fn clears(&self, alert: &str) {
        eventually(&format!("{alert} clears"), async || {
            let told = self.told().await;
            told.is_some_and(|firing| !firing.contains(alert))
        })
        .await;
    }

    /// Returns when it has scraped, and what it scraped is there to be asked for.
    pub(crate) async fn scrapes(&self) {
        eventually("it scrapes", async || {
            let path = "/api/v1/query?query=idempotency_lock_acquired_total";
            let found = self.ask(path).await.unwrap_or_default();
            !found["data"]["result"].as_array().is_none_or(Vec::is_empty)
        })
        .await;
    }
}

/// The rules with short durations, and with everything else as it is.
fn scaled(rules: &str) -> String {
    let scale = |line: &str| match line.trim_start().strip_prefix("for: ") {
        Some(_) => format!("{}for: 1s", &line[..line.len() - line.trim_start().len()]),
        None => ["[1m]", "[5m]", "[10m]", "[1h]"]
            .iter()
            .fold(line.to_owned(), |line, range| line.replace(range, "[10s]")),
    };
    let lines: Vec<_> = rules.lines().map(scale).collect();
    lines.join("\n") + "\n"
}

pub(crate) async fn eventually(what: &str, holds: impl AsyncFn() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let held = tokio::time::timeout(SOON, waiting).await;
    assert!(held.is_ok(), "never: {what}");
}
