//! Restarted, reloaded and stopped while clients go on: nothing fails and nothing runs twice.

use std::sync::atomic::Ordering;

use onlyonce_testkit::servers::{Shared, shared};

use super::load::Load;
use super::process::{HOST, Process, eventually};
use super::upstreams::Shop;
use crate::support::program::run;

/// How many more orders are answered between two steps.
const ORDERS_A_STEP: usize = 40;

fn unique(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

/// Returns when the clients got so many more answers.
async fn some_more(load: &Load) {
    let answered = || load.counts.answered.load(Ordering::SeqCst);
    let enough = answered() + ORDERS_A_STEP;
    eventually(async || answered() >= enough).await;
}

async fn each_ran_once(shop: &Shop, keys: &[String]) {
    let runs = shop.runs().await;
    assert_eq!(runs.len(), keys.len());
    for key in keys {
        assert_eq!(runs[key], 1, "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_fails_and_doubles_no_request() {
    let shop = Shop::start().await;
    let settings = format!(
        "upstream = \"{}\"\nstore = \"{}?prefix={}\"",
        shop.url(),
        shared(Shared::Redis),
        unique("rolling")
    );
    let mut gateways = [
        Process::start(&settings).await,
        Process::start(&settings).await,
    ];
    let urls = gateways.each_ref().map(|gateway| gateway.url("/orders"));
    let load = Load::start(&urls);

    for turn in 0..4 {
        let [first, second] = gateways;
        let (mut restarted, other) = if turn % 2 == 0 {
            (first, second)
        } else {
            (second, first)
        };
        some_more(&load).await;
        restarted.signal("TERM");
        let ended = restarted.ended().await;
        assert_eq!(ended.code(), Some(0), "{}", restarted.said());
        some_more(&load).await;
        let restarted = restarted.again(&settings).await;
        gateways = if turn % 2 == 0 {
            [restarted, other]
        } else {
            [other, restarted]
        };
    }
    some_more(&load).await;

    assert!(load.counts.broken.load(Ordering::SeqCst) > 0);
    let keys = load.stop().await;
    each_ran_once(&shop, &keys).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reloading_under_load_fails_and_doubles_no_request() {
    let shop = Shop::start().await;
    let settings = |more: &str| {
        let upstream = shop.url();
        format!("upstream = \"{upstream}\"\nstore = \"memory:\"\n{more}")
    };
    let gateway = Process::start(&settings("")).await;
    let load = Load::start(&[gateway.url("/orders")]);
    let said = |what: &str| gateway.said().matches(what).count();

    for turn in 1..=5 {
        gateway.write_settings(&settings(&format!("ttl = \"{turn}h\"")));
        gateway.signal("HUP");
        eventually(async || said("settings read again") >= turn).await;
        gateway.write_settings(&settings("tttl = \"1h\""));
        gateway.signal("HUP");
        eventually(async || said("did you mean `ttl`?") >= turn).await;
        some_more(&load).await;
    }

    assert_eq!(load.counts.broken.load(Ordering::SeqCst), 0);
    let keys = load.stop().await;
    each_ran_once(&shop, &keys).await;
}

#[tokio::test]
async fn a_gateway_told_to_stop_lets_what_runs_end_and_takes_nothing_new() {
    let shop = Shop::start().await;
    let settings = format!("upstream = \"{}\"\nstore = \"memory:\"", shop.url());
    let mut gateway = Process::start(&settings).await;
    let request = reqwest::Client::new()
        .post(gateway.url("/slow"))
        .header("idempotency-key", "key")
        .send();
    let running = tokio::spawn(async move { request.await.unwrap().text().await.unwrap() });
    eventually(async || shop.runs_of("key").await == 1).await;

    gateway.signal("TERM");
    let address = gateway.address;
    eventually(async || tokio::net::TcpStream::connect(address).await.is_err()).await;
    shop.open().await;

    assert_eq!(running.await.unwrap(), "key run 1");
    assert_eq!(gateway.ended().await.code(), Some(0));
}

/// A token that nobody verifies: its digest is kept with the record, under each secret another.
const TOKEN: &str = "Bearer eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJ1cyIsInN1YiI6ImFsaWNlIn0.c2ln";

async fn order(gateway: &Process, key: &str) -> String {
    let request = reqwest::Client::new()
        .post(gateway.url("/orders"))
        .header("host", HOST)
        .header("authorization", TOKEN)
        .header("idempotency-key", key);
    request.send().await.unwrap().text().await.unwrap()
}

async fn stopped(mut gateway: Process) -> Process {
    gateway.signal("TERM");
    assert_eq!(gateway.ended().await.code(), Some(0));
    gateway
}

#[tokio::test]
async fn the_slot_secret_is_rotated_in_two_restarts() {
    let shop = Shop::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, "2a".repeat(32)).unwrap();
    let kept = format!(
        "upstream = \"{}\"\nstore = \"sqlite:{}\"\n",
        shop.url(),
        folder.path().join("store.sqlite").display()
    );
    let alone = format!("{kept}secret_file = \"{}\"\n", file.display());
    let both = format!("{alone}former_secret_file = \"store\"\n");
    let gateway = Process::start(&kept).await;
    assert_eq!(order(&gateway, "before").await, "before run 1");

    let gateway = stopped(gateway).await.again(&both).await;
    assert_eq!(order(&gateway, "before").await, "before run 1");
    assert_eq!(order(&gateway, "between").await, "between run 1");
    let gateway = stopped(gateway).await.again(&alone).await;
    assert_eq!(order(&gateway, "between").await, "between run 1");
    drop(stopped(gateway).await);

    assert_eq!(shop.runs_of("before").await, 1);
    assert_eq!(shop.runs_of("between").await, 1);
    let settings = folder.path().join("kept.toml");
    std::fs::write(&settings, kept).unwrap();
    let config = settings.display().to_string();
    let args = ["gateway", "--admin", "127.0.0.1:0", "--config", &config];
    let (code, _, said) = run(&args).await;
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("configure the new one"), "{said}");
}
