//! Secure servers, services and gateways: reached with a trusted certificate, refused with any other.

use std::process::Stdio;
use std::sync::atomic::Ordering;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

use crate::support::foreign::{self, Flaw};
use crate::support::gateway::{Running, service};
use crate::support::program::onlyonce;
use crate::support::secured::Secured;

const SETTINGS: &str = "store = \"memory:\"\n";

#[tokio::test]
async fn a_trusted_server_is_verified_and_any_other_is_refused() {
    let server = Secured::start(&foreign::start(Flaw::None).await).await;
    let url = format!("{}/orders", server.url);
    let (variable, trusted) = server.trusted();
    let verify = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
        command
            .args(["verify", &url, "--slow-path=/slow", "--skip=date"])
            .stdin(Stdio::null());
        command
    };

    let good = verify().env(variable, trusted).output().await.unwrap();
    let bad = verify().env_remove("SSL_CERT_FILE").output().await.unwrap();

    let told = String::from_utf8_lossy(&good.stdout);
    assert_eq!(good.status.code(), Some(0), "{told}");
    assert!(told.contains("0 failed"), "{told}");
    let told = String::from_utf8_lossy(&bad.stderr);
    assert_eq!(bad.status.code(), Some(2), "{told}");
    assert!(told.contains("SSL_CERT_FILE"), "{told}");
}

#[tokio::test]
async fn a_gateway_sends_to_a_service_that_the_machine_trusts_and_to_no_other() {
    let (plain, work) = service().await;
    let secured = Secured::start(&plain).await;
    let folder = TempDir::new().unwrap();
    let trusting = [secured.trusted()];
    let trusting = Running::start_with(&secured.url, SETTINGS, &trusting, folder).await;
    let wary = Running::start(&secured.url, SETTINGS).await;

    for _ in 0..2 {
        let answer = trusting.request("/orders", "key").send().await.unwrap();
        assert_eq!(answer.text().await.unwrap(), "order 1");
    }
    assert_eq!(wary.send("/orders", "key", "").await, 502);

    assert_eq!(work.runs.load(Ordering::SeqCst), 1);
}

/// HTTP/2 would be chosen for any other request, and does not know `Upgrade`.
#[tokio::test]
async fn a_web_socket_reaches_a_service_that_prefers_http_2() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let plain = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let agreed = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                           upgrade: websocket\r\n\r\nhello";
            stream.write_all(agreed).await.unwrap();
        }
    });
    let secured = Secured::start_offering(&plain, &["h2", "http/1.1"]).await;
    let folder = TempDir::new().unwrap();
    let trusting = [secured.trusted()];
    let gateway = Running::start_with(&secured.url, SETTINGS, &trusting, folder).await;

    let address = gateway.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let handshake =
        b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    stream.write_all(handshake).await.unwrap();
    let mut heard = String::new();
    stream.read_to_string(&mut heard).await.unwrap();

    assert!(heard.starts_with("HTTP/1.1 101 "), "{heard}");
    assert!(heard.ends_with("hello"), "{heard}");
}

#[tokio::test]
async fn named_roots_that_are_not_there_are_told_and_trust_nobody() {
    let (plain, work) = service().await;
    let secured = Secured::start(&plain).await;
    let (variable, _) = secured.trusted();
    let folder = TempDir::new().unwrap();
    let missing = folder.path().join("missing.pem").display().to_string();
    let gateway = Running::start_with(&secured.url, SETTINGS, &[(variable, missing)], folder).await;

    assert_eq!(gateway.send("/orders", "key", "").await, 502);

    assert_eq!(work.runs.load(Ordering::SeqCst), 0);
    let log = gateway.log();
    assert!(log.contains("nobody is trusted"), "{log}");
}

#[tokio::test]
async fn operators_reach_a_gateway_over_https_if_they_trust_it() {
    let gateway = Running::start("http://127.0.0.1:1", SETTINGS).await;
    let secured = Secured::start(&gateway.admin).await;
    let (variable, trusted) = secured.trusted();
    let stats = || onlyonce(&["store", "stats", "--json", "--admin", &secured.url]);

    let good = stats().env(variable, trusted).output().await.unwrap();
    let bad = stats().env_remove(variable).output().await.unwrap();

    let told = String::from_utf8_lossy(&good.stdout);
    assert!(told.contains("\"records\""), "{told}");
    let told = String::from_utf8_lossy(&bad.stderr);
    assert_eq!(bad.status.code(), Some(2), "{told}");
    assert!(told.contains("certificate"), "{told}");
}

#[tokio::test]
async fn a_plain_server_under_https_and_a_secure_one_under_http_say_so() {
    let plain = foreign::start(Flaw::None).await;
    let secure = Secured::start(&plain).await.url;

    for (url, hint) in [
        (plain.replace("http:", "https:"), "use http://"),
        (secure.replace("https:", "http:"), "rather than https"),
    ] {
        let unusable = crate::support::try_verify(&url, &[]).await.unwrap_err();

        assert!(unusable.hint.contains(hint), "{unusable}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_speak_http_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 64]).await;
            let _ = stream.write_all(b"220 mail.example.org ESMTP\r\n").await;
        }
    });

    let unusable = crate::support::try_verify(&url, &[]).await.unwrap_err();

    assert!(unusable.hint.contains("HTTP/1.1"), "{unusable}");
}
