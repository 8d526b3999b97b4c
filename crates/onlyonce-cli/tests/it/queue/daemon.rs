//! `onlyonce queue serve`: beside other commands, killed, and asked over its socket and over HTTP.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::{Outbox, Service, assert_private, by_key, eventually};
use crate::support::program::{RUN_MAX, onlyonce};

/// A daemon that listens, and where.
async fn listening(outbox: &Outbox, args: &[&str]) -> (Child, String) {
    let args: Vec<_> = ["serve"].iter().chain(args).copied().collect();
    let args = outbox.args(&args);
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let mut daemon = onlyonce(&args).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(daemon.stderr.take().unwrap()).lines();
    let said = timeout(RUN_MAX, lines.next_line()).await.unwrap().unwrap();
    let said = said.expect("it says where it listens");
    let (_, place) = said.split_once(" listens on ").expect("it listens");
    (daemon, place.to_owned())
}

#[tokio::test]
async fn adds_at_the_same_time_and_a_daemon_lose_nothing_and_send_nothing_twice() {
    let (service, address) = Service::start().await;
    let outbox = Outbox::new();
    let mut daemon = outbox.start(&["serve"]);
    let first = outbox.add(&["POST", &address]).await;
    assert_eq!(first.0, "1");

    let adds = (0..12).map(|number| {
        let url = format!("{address}/{number}");
        let outbox = &outbox;
        async move { outbox.add(&["POST", &url]).await.1 }
    });
    let mut keys = futures_util::future::join_all(adds).await;
    keys.push(first.1);

    eventually(|| by_key(&service).len() >= keys.len()).await;
    let list = outbox.list().await;
    assert_eq!(list.len(), 13);
    let counts = by_key(&service);
    assert!(
        keys.iter().all(|key| counts.get(key) == Some(&1)),
        "{counts:?}"
    );
    daemon.kill().await.unwrap();
}

#[tokio::test]
async fn a_daemon_killed_in_the_middle_of_sending_is_followed_by_the_same_key() {
    let (service, address) = Service::start().await;
    let outbox = Outbox::new();
    let (_, key) = outbox.add(&["POST", &format!("{address}/held")]).await;
    for killed in 1..=3 {
        let mut daemon = outbox.start(&["serve"]);
        service.until_seen(killed).await;
        // SIGKILL: nothing is written down, nothing is given up in an orderly way.
        daemon.kill().await.unwrap();
    }
    assert_eq!(outbox.list().await[0]["state"], "waiting");

    let sending = outbox.start(&["send"]);
    service.until_seen(4).await;
    service.open.send_replace(true);
    let sent = timeout(RUN_MAX, sending.wait_with_output()).await;

    assert!(sent.unwrap().unwrap().status.success());
    assert!(service.seen().iter().all(|seen| seen.key == key));
    assert_eq!(outbox.list().await[0]["state"], "done");
}

#[tokio::test]
async fn one_process_sends_and_a_killed_one_gives_that_up() {
    let (service, address) = Service::start().await;
    let outbox = Outbox::new();
    outbox.add(&["POST", &format!("{address}/held")]).await;
    let mut daemon = outbox.start(&["serve"]);
    service.until_seen(1).await;

    let (code, _, told) = outbox.run(&["send"]).await;
    assert_eq!(code, 3, "{told}");
    assert!(told.contains("another process"), "{told}");
    assert_eq!(outbox.run(&["serve"]).await.0, 3);
    assert_eq!(service.seen().len(), 1);
    daemon.kill().await.unwrap();
    let sending = outbox.start(&["send"]);
    service.until_seen(2).await;
    service.open.send_replace(true);

    let sent = timeout(RUN_MAX, sending.wait_with_output()).await;
    assert!(sent.unwrap().unwrap().status.success());
}

#[tokio::test]
async fn any_program_can_use_the_socket_and_only_its_owner_can_open_it() {
    let (service, address) = Service::start().await;
    let outbox = Outbox::new();
    let (mut daemon, socket) = listening(&outbox, &[]).await;
    assert_private(&outbox.path());
    let ask = async |method: &str, path: &str, body: &str| -> (u16, Value) {
        let mut curl = Command::new("curl");
        curl.args(["-s", "--unix-socket", &socket, "-X", method])
            .args(["-w", "\n%{http_code}", &format!("http://localhost{path}")]);
        if !body.is_empty() {
            curl.args(["-H", "content-type: application/json", "-d", body]);
        }
        let output = curl.output().await.unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap();
        let body = serde_json::from_str(body).unwrap_or_default();
        (status.parse().unwrap(), body)
    };

    let bad = json!({"method": "POST", "url": format!("{address}/bad"), "json": {"a": 1},
                     "headers": {"Authorization": "Bearer sesame"}, "key": "order-17"});
    let (status, added) = ask("POST", "/requests", &bad.to_string()).await;
    assert_eq!((status, &added["key"]), (201, &"order-17".into()));
    assert_eq!(ask("POST", "/requests", &bad.to_string()).await.0, 200);
    service.until_seen(1).await;
    let failed = async || ask("GET", "/requests?state=failed", "").await.1;
    while failed().await.as_array().unwrap().is_empty() {}
    let (_, shown) = ask("GET", "/requests/1", "").await;
    assert!(!shown.to_string().contains("sesame"), "{shown}");
    let good = json!({"method": "POST", "url": format!("{address}/good")});
    let (status, edited) = ask("PUT", "/requests/1", &good.to_string()).await;
    assert_eq!(status, 200);
    assert_ne!(edited["key"], "order-17");
    service.until_seen(2).await;
    while ask("GET", "/", "").await.1["done"] != 1 {}

    assert_eq!(ask("DELETE", "/requests/1", "").await.0, 404, "it is done");
    assert_eq!(ask("GET", "/requests?colour=red", "").await.0, 422);
    assert_eq!(
        ask("POST", "/requests", r#"{"method":"POST"}"#).await.0,
        422
    );
    let held = std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777;
    assert_eq!(held, 0o600);
    stop(&mut daemon).await;
    assert!(!std::path::Path::new(&socket).exists());
}

/// Tells it to stop; it ends well.
async fn stop(daemon: &mut Child) {
    let id = daemon.id().unwrap().to_string();
    let told = Command::new("kill").arg(id).status().await.unwrap();
    assert!(told.success());
    let ended = timeout(RUN_MAX, daemon.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(0));
}

#[tokio::test]
async fn the_socket_of_a_killed_daemon_is_replaced_and_one_in_use_is_not() {
    let outbox = Outbox::new();
    let (mut killed, socket) = listening(&outbox, &[]).await;
    killed.kill().await.unwrap();
    assert!(std::path::Path::new(&socket).exists());
    let (mut daemon, again) = listening(&outbox, &[]).await;
    assert_eq!(socket, again);

    let other = Outbox::new();
    let (code, _, told) = other.run(&["serve", "--socket", &socket]).await;

    assert_eq!(code, 2, "{told}");
    assert!(told.contains("another program listens there"), "{told}");
    let file = other.folder.path().join("letters");
    std::fs::write(&file, "dear").unwrap();
    let (code, _, told) = other
        .run(&["serve", "--socket", file.to_str().unwrap()])
        .await;
    assert_eq!(code, 2, "{told}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "dear");
    stop(&mut daemon).await;
}

#[tokio::test]
async fn over_http_only_programs_with_the_token_come_in() {
    let outbox = Outbox::new();
    let token = outbox.folder.path().join("token");
    std::fs::write(&token, "a-token-of-some-length\n").unwrap();
    let token = token.to_str().unwrap();
    let args = ["--listen", "127.0.0.1:0", "--token-file", token];
    let (mut daemon, address) = listening(&outbox, &args).await;
    let url = format!("{address}/requests");
    let body = json!({"method": "POST", "url": "http://127.0.0.1:1/"}).to_string();
    let post = || {
        let request = reqwest::Client::new().post(&url);
        request
            .header(CONTENT_TYPE, "application/json")
            .body(body.clone())
    };
    let bearer = "Bearer a-token-of-some-length";
    let status = async |request: reqwest::RequestBuilder| request.send().await.unwrap().status();

    assert_eq!(status(post()).await, 401);
    assert_eq!(
        status(post().header(AUTHORIZATION, "Bearer another")).await,
        401
    );
    let signed = || post().header(AUTHORIZATION, bearer);
    assert_eq!(status(signed().header(HOST, "rebound.example")).await, 421);
    assert_eq!(
        status(signed().header(ORIGIN, "http://page.example")).await,
        403
    );
    let text = reqwest::Client::new()
        .post(&url)
        .header(AUTHORIZATION, bearer);
    assert_eq!(status(text.body(body.clone())).await, 415);
    assert!(outbox.list().await.is_empty());
    assert_eq!(status(signed()).await, 201);
    assert_eq!(outbox.list().await.len(), 1);
    stop(&mut daemon).await;
}

#[tokio::test]
async fn json_is_sent_as_it_was_written_down() {
    let (service, address) = Service::start().await;
    let outbox = Outbox::new();
    let (mut daemon, listens) = listening(&outbox, &["--listen", "127.0.0.1:0"]).await;
    let json = r#"{"wei":123456789012345678901,"price":1.10,"b":1,"a":2}"#;
    let one = format!(r#"{{"method":"POST","url":"{address}/one","json":{json}}}"#);
    let group = format!(r#"{{"steps":[{{"do":{one}}}]}}"#);

    for (path, body) in [("requests", one), ("groups", group)] {
        let request = reqwest::Client::new().post(format!("{listens}/{path}"));
        let request = request.header(CONTENT_TYPE, "application/json").body(body);
        assert_eq!(request.send().await.unwrap().status(), 201, "{path}");
    }

    service.until_seen(2).await;
    for seen in service.seen() {
        assert_eq!(seen.body, json);
    }
    stop(&mut daemon).await;
}
