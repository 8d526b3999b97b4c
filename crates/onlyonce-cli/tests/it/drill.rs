//! An operator's drill: a service crashes and leaves 35 outcomes in doubt, an alert fires, and an operator
//! settles them.

use serde_json::Value;

use crate::support::gateway::{Running, lost};
use crate::support::program::run;
use crate::support::prometheus::Prometheus;

const OUTCOMES: usize = 35;
const ALERT: &str = "IdempotencyOutcomesInDoubt";
const REASON: &str = "crash at 14:02";
const SETTINGS: &str = "store = \"memory:\"\ninstance = \"web-1\"\n\
     [rules]\non_lapse = \"hold\"\n[audit]\npath = \"FOLDER/audit.jsonl\"\n";

/// A gateway whose service crashed with 35 requests.
async fn after_the_crash() -> Running {
    let gateway = Running::start(&lost(), SETTINGS).await;
    for number in 0..OUTCOMES {
        let path = if number < 30 { "/orders" } else { "/refunds" };
        assert_eq!(gateway.send(path, &key(number), "{}").await, 502);
    }
    gateway
}

fn key(number: usize) -> String {
    format!("order-number-{number:04}")
}

async fn in_doubt(gateway: &Running) -> f64 {
    let page = reqwest::get(format!("{}/metrics", gateway.admin)).await;
    let page = page.unwrap().text().await.unwrap();
    let name = "idempotency_outcomes_in_doubt ";
    let value = page.lines().find_map(|line| line.strip_prefix(name));
    value.unwrap().parse().unwrap()
}

/// A Prometheus that has raised the alert.
async fn alerted(gateway: &Running) -> Prometheus {
    let prometheus = Prometheus::start(gateway.folder.path(), &gateway.admin);
    prometheus.fires(ALERT).await;
    prometheus
}

/// All outcomes were settled by mia, for the reason that was given.
async fn assert_audited(gateway: &Running, via: &str) {
    let deeds = deeds(gateway).await;
    assert_eq!(deeds.len(), OUTCOMES);
    for deed in &deeds {
        assert_eq!(deed["eventType"], "idempotency.operator.discard");
        assert_eq!(deed["actor"]["id"], "mia");
        assert_eq!(deed["metadata"]["reason"], REASON);
        assert_eq!(deed["metadata"]["via"], via);
    }
}

/// Sends a form as a browser does from a page of the console: its status, where it leads, the page.
async fn form(gateway: &Running, path: &str, fields: &[(&str, &str)]) -> (u16, String, String) {
    let fields = fields
        .iter()
        .map(|(name, value)| format!("{name}={}", value.replace(' ', "+")));
    let still = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
    let request = still
        .build()
        .unwrap()
        .post(format!("{}{path}", gateway.admin));
    let request = request
        .header("origin", &gateway.admin)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(fields.collect::<Vec<_>>().join("&"));
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    let location = answer.headers().get("location");
    let location = location.map(|it| it.to_str().unwrap().to_owned());
    (
        status,
        location.unwrap_or_default(),
        answer.text().await.unwrap(),
    )
}

/// The operators' entries of the audit trail.
async fn deeds(gateway: &Running) -> Vec<Value> {
    let file = gateway.folder.path().join("audit.jsonl");
    let file = file.to_str().unwrap();
    // The trail is written by a thread of its own.
    for _ in 0..200 {
        let (code, out, err) = run(&["audit", "tail", "--file", file, "-n", "1000"]).await;
        assert_eq!(code, 0, "{err}");
        let entries = out.lines().map(|line| serde_json::from_str(line).unwrap());
        let deeds: Vec<Value> = entries
            .filter(|it: &Value| it["eventType"].as_str().unwrap().contains(".operator."))
            .collect();
        if deeds.len() >= OUTCOMES {
            return deeds;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("the deeds are not in the trail");
}

#[tokio::test]
async fn the_drill_by_command_line_settles_all_in_bulk_and_the_trail_says_who_and_why() {
    let gateway = after_the_crash().await;
    assert_eq!(in_doubt(&gateway).await, 35.0);
    let admin = ["--admin", &gateway.admin, "--as", "mia"];
    let settle = |more: &[&'static str]| {
        let args: Vec<String> = ["keys", "resolve", "--did-not-happen"]
            .iter()
            .chain(more)
            .chain(&admin)
            .map(|&it| it.to_owned())
            .collect();
        async move { run(&args.iter().map(String::as_str).collect::<Vec<_>>()).await }
    };

    let unnamed = settle(&["--reason", "crash"]).await;
    let unreasoned = settle(&["--all"]).await;
    let dry = settle(&[
        "--operation",
        "/orders",
        "--reason",
        "crash at 14:02",
        "--dry-run",
    ])
    .await;
    assert_eq!(in_doubt(&gateway).await, 35.0, "nothing was changed");
    let orders = settle(&["--operation", "/orders", "--reason", "crash at 14:02"]).await;
    let others = settle(&["--holder", "web-2", "--reason", "crash at 14:02"]).await;
    let rest = settle(&["--holder", "web-1", "--reason", "not in the ledger"]).await;

    assert_eq!((unnamed.0, unreasoned.0), (2, 2));
    assert!(unnamed.2.contains("say which outcomes"), "{}", unnamed.2);
    assert!(dry.2.contains("30 outcomes would be settled"), "{}", dry.2);
    assert_eq!(dry.1.lines().count(), 31, "a heading and 30 records");
    assert!(
        orders.2.contains("30 of 30 outcomes settled"),
        "{}",
        orders.2
    );
    assert!(others.2.contains("0 of 0 outcomes settled"), "{}", others.2);
    assert!(rest.2.contains("5 of 5 outcomes settled"), "{}", rest.2);
    assert_eq!(in_doubt(&gateway).await, 0.0);
    let deeds = deeds(&gateway).await;
    assert_eq!(deeds.len(), OUTCOMES);
    for deed in &deeds {
        assert_eq!(deed["eventType"], "idempotency.operator.discard");
        assert_eq!(deed["actor"]["type"], "operator");
        assert_eq!(deed["actor"]["id"], "mia");
        assert_eq!(deed["metadata"]["via"], "cli");
    }
    let reason = |deed: &Value| deed["metadata"]["reason"] == "crash at 14:02";
    assert_eq!(deeds.iter().filter(|it| reason(it)).count(), 30);
    let log = gateway.log();
    assert_eq!(
        log.matches("idempotency.operator").count(),
        OUTCOMES,
        "{log}"
    );
    assert!(log.contains("idempotency.upstream.failed"), "{log}");
    // What did not happen runs with its next request: the service is asked, and lost again.
    assert_eq!(gateway.send("/orders", &key(0), "{}").await, 502);
    let listed = reqwest::get(format!("{}/api/v1/records/in-doubt", gateway.admin)).await;
    let listed: Value = serde_json::from_str(&listed.unwrap().text().await.unwrap()).unwrap();
    assert_eq!(listed["records"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_alert_of_a_crash_clears_once_all_is_settled_by_command_line() {
    let gateway = after_the_crash().await;
    let prometheus = alerted(&gateway).await;
    let all = [
        "keys",
        "resolve",
        "--all",
        "--did-not-happen",
        "--reason",
        REASON,
    ];
    let signed = ["--admin", &gateway.admin, "--as", "mia"];

    let (code, _, err) = run(&[&all[..], &signed].concat()).await;

    assert_eq!(code, 0, "{err}");
    assert!(err.contains("35 of 35 outcomes settled"), "{err}");
    prometheus.clears(ALERT).await;
    assert_audited(&gateway, "cli").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_alert_of_a_crash_clears_once_all_is_settled_in_the_console() {
    let gateway = after_the_crash().await;
    let prometheus = alerted(&gateway).await;
    let decision = [
        ("outcome", "did_not_happen"),
        ("by", "mia"),
        ("reason", REASON),
    ];

    let all = [&[("which", "all")][..], &decision].concat();
    let (previewed, _, preview) = form(&gateway, "/in-doubt/preview", &all).await;
    assert_eq!(previewed, 200, "{preview}");
    assert!(
        preview.contains("35 outcomes would be settled"),
        "{preview}"
    );
    let hidden = preview.split("<input type=\"hidden\" name=\"attempt\" value=\"");
    let attempts: Vec<&str> = hidden
        .skip(1)
        .filter_map(|it| it.split('"').next())
        .collect();
    assert_eq!(in_doubt(&gateway).await, 35.0, "nothing was changed");
    let attempts = attempts.iter().map(|attempt| ("attempt", *attempt));
    let shown: Vec<_> = attempts.chain(decision).collect();
    let (status, location, page) = form(&gateway, "/in-doubt/settle", &shown).await;

    assert_eq!(status, 303, "{page}");
    assert_eq!(location, "/in-doubt?settled=35&skipped=0");
    prometheus.clears(ALERT).await;
    assert_audited(&gateway, "console").await;
}

#[tokio::test]
async fn what_a_dry_run_listed_is_settled_and_no_later_attempt() {
    let gateway = after_the_crash().await;
    let file = gateway.folder.path().join("listed.json");
    let admin = ["--admin", &gateway.admin, "--reason", REASON];
    let resolve = ["keys", "resolve", "--did-not-happen"];
    let dry = [&resolve[..], &["--all", "--dry-run", "--json"], &admin].concat();
    let (code, listed, err) = run(&dry).await;
    assert_eq!(code, 0, "{err}");
    std::fs::write(&file, listed).unwrap();
    let refunds = [&resolve[..], &["--operation", "/refunds"], &admin].concat();
    let (code, shown, err) = run(&refunds).await;
    assert_eq!(
        (code, shown.lines().count()),
        (0, 6),
        "a heading and 5: {err}"
    );
    // Their retries run, and fall in doubt again: about these nothing was found out.
    for number in 30..OUTCOMES {
        assert_eq!(gateway.send("/refunds", &key(number), "{}").await, 502);
    }

    let from = ["--listed", file.to_str().unwrap()];
    let (code, _, err) = run(&[&resolve[..], &from, &admin].concat()).await;

    assert_eq!(code, 0, "{err}");
    assert!(err.contains("30 of 30 outcomes settled"), "{err}");
    assert!(err.contains("5 more were not in doubt any more"), "{err}");
    assert_eq!(in_doubt(&gateway).await, 5.0);
}

#[tokio::test]
async fn an_answer_for_one_record_says_which_attempt_gets_it() {
    let gateway = after_the_crash().await;

    let answer = ["keys", "resolve", &key(3), "--status", "201"];
    let (code, _, err) = run(&[&answer[..], &["--admin", &gateway.admin]].concat()).await;

    assert_eq!(code, 0, "{err}");
    assert!(err.contains("resolved /orders, claimed at 20"), "{err}");
    assert!(err.contains("attempt 1: every retry gets 201"), "{err}");
}

#[tokio::test]
async fn an_answer_given_in_bulk_is_what_every_retry_gets() {
    let gateway = after_the_crash().await;

    let happened = [
        "keys",
        "resolve",
        "--all",
        "--status=201",
        "--body={\"by\":\"hand\"}",
        "--content-type=application/json",
    ];
    let signed = ["--reason", "all in the ledger", "--admin", &gateway.admin];
    let (code, _, err) = run(&[&happened[..], &signed].concat()).await;

    assert_eq!(code, 0, "{err}");
    for number in [0, 34] {
        let path = if number < 30 { "/orders" } else { "/refunds" };
        let retry = gateway.request(path, &key(number)).body("{}").send().await;
        let retry = retry.unwrap();
        assert_eq!(retry.status(), 201);
        assert_eq!(retry.headers()["content-type"], "application/json");
        assert_eq!(retry.text().await.unwrap(), "{\"by\":\"hand\"}");
    }
    assert_eq!(in_doubt(&gateway).await, 0.0);
}

#[tokio::test]
async fn a_change_straight_in_a_store_is_written_to_the_trail_that_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let url = crate::operators::folder(folder.path()).await;
    let trail = folder.path().join("audit.jsonl");
    let trail = trail.to_str().unwrap();
    let missing = run(&["audit", "tail", "--file", trail]).await;
    let line = ["keys", "forget", crate::operators::KEY, "--store", &url];
    let signed = [
        "--audit",
        trail,
        "--as",
        "mia",
        "--reason",
        "paid twice by hand",
    ];

    let (code, _, err) = run(&[&line[..], &signed].concat()).await;

    assert_eq!(code, 0, "{err}");
    assert_eq!(missing.0, 2);
    assert!(
        missing.2.contains("there is no audit trail here"),
        "{}",
        missing.2
    );
    let (_, out, _) = run(&["audit", "tail", "--file", trail]).await;
    let deed: Value = serde_json::from_str(out.trim()).unwrap();
    assert_eq!(deed["eventType"], "idempotency.operator.forget");
    assert_eq!(deed["actor"]["id"], "mia");
    assert_eq!(deed["metadata"]["reason"], "paid twice by hand");
    assert_eq!(deed["metadata"]["operation"], "pay");
}
