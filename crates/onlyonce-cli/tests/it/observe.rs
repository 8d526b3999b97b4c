//! `onlyonce observe report`, and a gateway that only observes, as its users meet them.

use std::sync::atomic::Ordering;

use serde_json::Value;

use crate::support::gateway::{Running, eventually, service};
use crate::support::program::run;

const KEY: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";

async fn report(gateway: &Running, format: &str) -> (i32, String) {
    let args = [
        "observe",
        "report",
        "--admin",
        &gateway.admin,
        "--format",
        format,
    ];
    let (code, out, said) = run(&args).await;
    assert_eq!(said, "");
    (code, out)
}

#[tokio::test]
async fn a_day_of_requests_is_told_in_sentences_and_then_enforced_by_the_setting_they_name() {
    let (upstream, work) = service().await;
    let route = "[[route]]\nmatch = \"POST /orders\"\n";
    let settings = format!("store = \"memory:\"\n{route}mode = \"observe\"\n");
    let gateway = Running::start(&upstream, &settings).await;
    for body in ["{\"n\":1}", "{\"n\":1}", "{\"n\":1}", "{\"n\":2}"] {
        assert_eq!(gateway.send("/orders", KEY, body).await, 200);
    }
    assert_eq!(work.runs.load(Ordering::SeqCst), 4);

    eventually("every end is counted", async || {
        report(&gateway, "text")
            .await
            .1
            .contains("2 ran a second time")
    })
    .await;
    let (code, text) = report(&gateway, "text").await;
    assert_eq!(code, 0);
    assert!(
        text.contains("2 of 4 keyed requests were repeats."),
        "{text}"
    );
    assert!(
        text.contains("2 would have got the stored answer."),
        "{text}"
    );
    assert!(
        text.contains("1 would have been refused as conflicts"),
        "{text}"
    );
    assert!(!text.contains(KEY), "a key is a secret: {text}");
    let (_, page) = report(&gateway, "markdown").await;
    assert!(page.contains("## POST /orders"), "{page}");
    let (_, json) = report(&gateway, "json").await;
    let view: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(view["routes"][0]["requests"], 4);

    let setting = "mode = \"enforce\"";
    assert!(text.lines().last().unwrap().contains(setting), "{text}");
    let file = gateway.folder.path().join("onlyonce.toml");
    let settings = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, settings.replace("mode = \"observe\"", setting)).unwrap();
    gateway.signal("-HUP").await;
    eventually("the route is enforced", async || {
        gateway.log().contains("settings read again")
    })
    .await;
    for body in ["{\"n\":3}", "{\"n\":3}", "{\"n\":3}"] {
        assert_eq!(gateway.send("/orders", KEY, body).await, 200);
    }
    assert_eq!(work.runs.load(Ordering::SeqCst), 5);
    assert!(
        report(&gateway, "text")
            .await
            .1
            .contains("not observed any more")
    );
}

#[tokio::test]
async fn a_gateway_says_at_its_start_that_it_protects_nothing_and_logs_what_it_sees() {
    let (upstream, _) = service().await;
    let settings = "store = \"memory:\"\nmode = \"observe\"\n[log]\nlevel = \"info\"\n";
    let gateway = Running::start(&upstream, settings).await;
    gateway.send("/orders", KEY, "{}").await;
    gateway.send("/orders", KEY, "{}").await;

    eventually("the repeat is logged", async || {
        gateway.log().contains("\"seen\":\"ran-again\"")
    })
    .await;
    let log = gateway.log();
    assert!(
        log.contains("nothing is protected here, only observed"),
        "{log}"
    );
    assert!(log.contains("\"seen\":\"replay\""), "{log}");
    assert!(!log.contains(KEY), "a key is a secret: {log}");
}

#[tokio::test]
async fn a_report_of_a_gateway_that_observes_nothing_is_a_no() {
    let (upstream, _) = service().await;
    let gateway = Running::start(&upstream, "store = \"memory:\"\n").await;

    let (code, text) = report(&gateway, "text").await;

    assert_eq!(code, 1);
    assert!(text.contains("Nothing is observed"), "{text}");
}

#[tokio::test]
async fn a_route_that_is_only_observed_is_not_verified() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("onlyonce.toml");
    std::fs::write(
        &file,
        "upstream = \"http://127.0.0.1:1\"\nmode = \"observe\"\n",
    )
    .unwrap();
    let file = file.to_str().unwrap();

    let (code, _, said) = run(&["verify", "http://127.0.0.1:1/orders", "--config", file]).await;
    let (checked, _, told) = run(&["config", "check", file]).await;

    assert_eq!(code, 2);
    assert!(said.contains("only observed"), "{said}");
    assert_eq!(checked, 0);
    assert!(told.contains("only observed"), "{told}");
}
