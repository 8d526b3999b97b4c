//! Who is who behind the gateway, and what one caller may take.

use std::path::Path;
use std::sync::atomic::Ordering;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{EncodingKey, Header, encode, get_current_timestamp};
use onlyonce_gateway::Gateway;
use serde_json::json;

use crate::support::{Service, checked, client, gateway, http2, settings};

/// An order with these headers; its status and text.
async fn order(gateway: &Gateway, headers: &[(&str, &str)]) -> (u16, String) {
    let mut request = client().post(format!("http://{}/orders", gateway.address()));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

/// A set with one shared key, which is its own id.
fn write_key_set(file: &Path, key: &str) {
    let set = json!({"keys": [
        {"kty": "oct", "alg": "HS256", "kid": key, "k": URL_SAFE_NO_PAD.encode(key)},
    ]});
    std::fs::write(file, set.to_string()).unwrap();
}

/// Alice's token, which lives so many seconds.
fn alice(key: &str, lives: u64) -> String {
    let header = Header {
        kid: Some(key.to_owned()),
        ..Header::default()
    };
    let claims = json!({"iss": "us", "sub": "alice", "exp": get_current_timestamp() + lives});
    let token = encode(&header, &claims, &EncodingKey::from_secret(key.as_bytes()));
    format!("Bearer {}", token.unwrap())
}

#[tokio::test]
async fn a_caller_is_known_by_a_key_set_which_a_reload_reads_again() {
    let service = Service::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.json");
    write_key_set(&file, "the-first-key");
    let more = format!(
        "scope = [\"route\", \"jwt:sub\"]\n[jwt]\nkey_file = {:?}\nissuer = \"us\"",
        file.display().to_string()
    );
    let gateway = gateway(service.address, &more).await;
    let send = async |token: &str| {
        let headers = [("idempotency-key", "key"), ("authorization", token)];
        order(&gateway, &headers).await
    };
    let first = (201, "order 1".to_owned());
    assert_eq!(send(&alice("the-first-key", 600)).await, first);
    assert_eq!(send(&alice("the-first-key", 1200)).await, first);
    // Signed with a key that is not in the set: nobody's, whatever it says.
    assert_eq!(send(&alice("the-second-key", 600)).await.0, 401);

    write_key_set(&file, "the-second-key");
    gateway.reload(&settings(service.address, &more)).unwrap();

    assert_eq!(send(&alice("the-second-key", 1200)).await, first);
    assert_eq!(send(&alice("the-first-key", 1200)).await.0, 401);
    assert_eq!(service.work.runs(), 1);
}

#[tokio::test]
async fn a_key_set_that_cannot_be_read_keeps_the_old_one() {
    let service = Service::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.json");
    write_key_set(&file, "the-first-key");
    let more = format!(
        "scope = [\"jwt:sub\"]\n[jwt]\nkey_file = {:?}",
        file.display().to_string()
    );
    let gateway = gateway(service.address, &more).await;

    std::fs::write(&file, "{}").unwrap();
    let error = checked(service.address, &more);

    assert!(error.unwrap_err().to_string().contains("JWKS"));
    for lives in [600, 1200] {
        let token = alice("the-first-key", lives);
        let headers = [("idempotency-key", "key"), ("authorization", &*token)];
        assert_eq!(order(&gateway, &headers).await.1, "order 1");
    }
}

#[tokio::test]
async fn a_replay_is_given_only_to_whom_the_service_still_lets_in() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "auth_check = \"GET /me\"").await;
    let headers = [("idempotency-key", "key"), ("authorization", "Bearer a")];
    let send = || order(&gateway, &headers);
    assert_eq!(send().await, (201, "order 1".to_owned()));
    assert_eq!(send().await, (201, "order 1".to_owned()));

    service.work.access.store(403, Ordering::SeqCst);
    assert_eq!(send().await.0, 403);
    service.work.access.store(500, Ordering::SeqCst);
    let (status, told) = send().await;
    assert_eq!(status, 503);
    assert!(told.contains("auth-check-failed"), "{told}");

    service.work.access.store(0, Ordering::SeqCst);
    assert_eq!(send().await, (201, "order 1".to_owned()));
    assert_eq!(service.work.runs(), 1);
}

#[tokio::test]
async fn a_replay_over_http_2_is_checked_under_the_name_that_was_asked_for() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "auth_check = \"GET /me\"").await;
    let mut client = http2(&gateway).await;
    let request = || {
        let request = http::Request::post("http://shop.example/orders")
            .header("idempotency-key", "key")
            .header("authorization", "Bearer a");
        request.body(http_body_util::Full::default()).unwrap()
    };

    let first = client.send_request(request()).await.unwrap();
    let replay = client.send_request(request()).await.unwrap();

    assert_eq!(first.status(), 201);
    assert_eq!(replay.status(), 201);
    let checks = service.work.checks.lock().unwrap();
    assert_eq!(checks.len(), 1);
    assert_eq!(checks[0]["host"], "shop.example");
}

#[tokio::test]
async fn a_check_carries_nothing_that_was_meant_for_the_request_itself() {
    const MEANT_FOR_IT: [(&str, &str); 16] = [
        ("if-match", "\"a\""),
        ("if-none-match", "*"),
        ("if-modified-since", "Sat, 29 Oct 1994 19:43:31 GMT"),
        ("if-unmodified-since", "Sat, 29 Oct 1994 19:43:31 GMT"),
        ("if-range", "\"a\""),
        ("range", "bytes=0-1"),
        ("content-type", "application/json"),
        ("content-digest", "sha-256=:AAAA:"),
        ("content-md5", "AAAA"),
        ("digest", "sha-256=AAAA"),
        ("repr-digest", "sha-256=:AAAA:"),
        ("idempotency-key", "key"),
        ("x-http-method-override", "DELETE"),
        ("x-http-method", "DELETE"),
        ("x-method-override", "DELETE"),
        ("trailer", "x-checksum"),
    ];
    let service = Service::start().await;
    let gateway = gateway(service.address, "auth_check = \"GET /me\"").await;
    let mut headers = MEANT_FOR_IT.to_vec();
    headers.extend([("authorization", "Bearer a"), ("accept-language", "de")]);

    order(&gateway, &headers).await;
    assert_eq!(order(&gateway, &headers).await.0, 201);

    let checks = service.work.checks.lock().unwrap();
    for (name, _) in MEANT_FOR_IT {
        assert!(!checks[0].contains_key(name), "{name}");
    }
    assert_eq!(checks[0]["authorization"], "Bearer a");
    assert_eq!(checks[0]["accept-language"], "de");
}

#[tokio::test]
async fn a_check_does_not_carry_a_key_under_a_name_of_ones_own() {
    let service = Service::start().await;
    let more = "auth_check = \"GET /me\"\n[rules]\nkey_header = \"x-request-token\"";
    let gateway = gateway(service.address, more).await;
    let headers = [("x-request-token", "key"), ("authorization", "Bearer a")];

    for _ in 0..2 {
        assert_eq!(order(&gateway, &headers).await.1, "order 1");
    }

    let checks = service.work.checks.lock().unwrap();
    assert!(!checks[0].contains_key("x-request-token"));
    assert_eq!(checks[0]["authorization"], "Bearer a");
}

#[tokio::test]
async fn a_credential_that_differs_with_every_request_needs_a_configured_scope() {
    let service = Service::start().await;
    let signed = "AWS4-HMAC-SHA256 Credential=AKID/20260101/eu/s3/aws4_request, Signature=00";
    let headers = [
        ("idempotency-key", "key"),
        ("authorization", signed),
        ("x-user", "alice"),
    ];
    let plain = gateway(service.address, "").await;
    let scoped = gateway(service.address, "scope = [\"trusted-header:x-user\"]").await;

    let (status, told) = order(&plain, &headers).await;

    assert_eq!(status, 400);
    assert!(told.contains("configured scope"), "{told}");
    for _ in 0..2 {
        assert_eq!(order(&scoped, &headers).await, (201, "order 1".to_owned()));
    }
}

#[tokio::test]
async fn one_caller_cannot_fill_the_store_for_all() {
    let service = Service::start().await;
    let more = "[limits]\nkeys_a_caller = 2\naddress_header = \"x-forwarded-for\"";
    let gateway = gateway(service.address, more).await;
    // Whoever floods can make up credentials and what comes before the last entry, not its address.
    let send = async |n: u32, address: &str| {
        let (key, token) = (format!("key-{n}"), format!("Bearer made-up-{n}"));
        let from = format!("10.0.0.{n}, {address}");
        let headers = [
            ("idempotency-key", &*key),
            ("authorization", &token),
            ("x-forwarded-for", &from),
        ];
        order(&gateway, &headers).await.0
    };

    assert_eq!(send(1, "192.0.2.1").await, 201);
    assert_eq!(send(2, "192.0.2.1").await, 201);
    assert_eq!(send(3, "192.0.2.1").await, 429);
    assert_eq!(send(4, "192.0.2.2").await, 201);
    assert_eq!(send(1, "192.0.2.1").await, 201);
    assert_eq!(service.work.runs(), 3);
}

#[tokio::test]
async fn who_guesses_keys_is_told_to_wait() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "[limits]\nbad_requests_a_minute = 2").await;
    let mallory = ("authorization", "Bearer mallory");
    let bad = [("idempotency-key", "\"broken"), mallory];
    for _ in 0..2 {
        assert_eq!(order(&gateway, &bad).await.0, 400);
    }

    let url = format!("http://{}/orders", gateway.address());
    let request = client().post(url).header("idempotency-key", "\"broken");
    let request = request.header(mallory.0, mallory.1);
    let paused = request.send().await.unwrap();

    assert_eq!(paused.status(), 429);
    let after: u64 = paused.headers()["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=30).contains(&after), "{after}");
    let good = ("idempotency-key", "good");
    assert_eq!(order(&gateway, &[good, mallory]).await.0, 429);
    // Whoever else comes from there does not wait for it.
    let alice = ("authorization", "Bearer alice");
    assert_eq!(order(&gateway, &[good, alice]).await.0, 201);
    assert_eq!(order(&gateway, &[good]).await.0, 201);
}
