//! PROTOCOL 36: which operation it is travels to the upstream, and no client can say it instead.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use onlyonce_gateway::Gateway;
use tokio::net::TcpListener;

use crate::support::{client, gateway, started};
use crate::wire::{Say, scripted};

/// What arrived at a service: heads and bodies, in order.
type Arrived = Arc<Mutex<Vec<(HeaderMap, Bytes)>>>;

/// A service that notes what arrives, and fails so that nothing is stored.
async fn noting(status: StatusCode) -> (SocketAddr, Arrived) {
    let arrived = Arrived::default();
    let note = move |State(arrived): State<Arrived>, headers: HeaderMap, body: Bytes| async move {
        arrived.lock().unwrap().push((headers, body));
        status
    };
    let app = Router::new()
        .fallback(note)
        .with_state(Arc::clone(&arrived));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    (address, arrived)
}

fn take(arrived: &Arrived) -> Vec<(HeaderMap, Bytes)> {
    std::mem::take(&mut *arrived.lock().unwrap())
}

async fn post(gateway: &Gateway, headers: &[(&str, &str)], body: &'static str) -> StatusCode {
    let mut request = client().post(format!("http://{}/orders", gateway.address()));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body).send().await.unwrap().status()
}

const KEY: (&str, &str) = ("idempotency-key", "key-1");

#[tokio::test]
async fn an_attempt_that_was_lost_and_the_next_one_from_another_gateway_carry_one_id() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("store = \"sqlite:{}/a.db\"\n", folder.path().display());
    let rules = format!("{store}[rules]\non_lapse = \"rerun\"\n");
    let (lost, _) = scripted(|_, _| Say::Nothing).await;
    let (service, arrived) = noting(StatusCode::CREATED).await;
    let first = started(lost, &rules).await;
    let second = started(service, &rules).await;
    let third = started(service, &rules).await;
    assert_eq!(post(&first, &[KEY, ("host", "a")], "{}").await, 502);

    assert_eq!(post(&second, &[KEY, ("host", "a")], "{}").await, 201);
    let other = [("idempotency-key", "key-2"), ("host", "a")];
    assert_eq!(post(&third, &other, "{}").await, 201);

    let arrived = take(&arrived);
    let attempts: Vec<_> = arrived
        .iter()
        .map(|(headers, _)| headers["onlyonce-attempt"].to_str().unwrap())
        .collect();
    assert_eq!(attempts, ["2", "1"]);
    let ids: Vec<_> = arrived
        .iter()
        .map(|(headers, _)| headers["onlyonce-operation"].to_str().unwrap())
        .collect();
    assert_ne!(ids[0], ids[1]);
    assert!(!ids[0].contains("key"), "{ids:?}");
}

#[tokio::test]
async fn every_attempt_carries_the_same_id_as_the_first_one() {
    let (service, arrived) = noting(StatusCode::SERVICE_UNAVAILABLE).await;
    let gateway = gateway(service, "").await;

    for _ in 0..3 {
        assert_eq!(post(&gateway, &[KEY], "{}").await, 503);
    }

    let ids: Vec<_> = take(&arrived)
        .iter()
        .map(|(headers, _)| headers["onlyonce-operation"].clone())
        .collect();
    assert_eq!(ids.len(), 3);
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[tokio::test]
async fn what_a_client_says_of_it_is_removed_however_it_is_spelled() {
    let (service, arrived) = noting(StatusCode::CREATED).await;
    let gateway = gateway(service, "[identity]\noperation_header = \"x-op\"\n").await;
    let forged = [
        ("onlyonce-operation", "forged"),
        ("Onlyonce_Operation", "forged"),
        ("onlyonce-attempt", "forged"),
        ("onlyonce_attempt", "forged"),
        ("onlyonce-lease", "forged"),
        ("x-op", "forged"),
        ("x_op", "forged"),
        ("connection", "x-op, onlyonce-attempt"),
    ];

    let keyed: Vec<_> = forged.into_iter().chain([KEY]).collect();
    assert_eq!(post(&gateway, &keyed, "{}").await, 201);
    assert_eq!(post(&gateway, &forged, "{}").await, 201);

    let arrived = take(&arrived);
    for (headers, _) in &arrived {
        let forged = headers.values().any(|value| value == "forged");
        assert!(!forged, "{headers:?}");
    }
    assert_eq!(arrived[0].0["onlyonce-attempt"], "1");
    assert_eq!(arrived[0].0["x-op"].len(), 36);
    assert!(!arrived[0].0.contains_key("onlyonce-operation"));
    assert!(!arrived[1].0.contains_key("onlyonce-attempt"));
    assert!(!arrived[1].0.contains_key("x-op"));
}

#[tokio::test]
async fn an_upstreams_own_key_is_the_operations_id_in_its_own_header() {
    let (service, arrived) = noting(StatusCode::CREATED).await;
    let route = "[[route]]\nmatch = \"POST /orders\"\nupstream_keys = true\n\
                 upstream_key_in = \"header:Idempotency-Key\"\n";
    let gateway = gateway(service, route).await;

    assert_eq!(post(&gateway, &[KEY], "{}").await, 201);

    let (headers, _) = &take(&arrived)[0];
    assert_eq!(headers["idempotency-key"], headers["onlyonce-operation"]);
    assert_eq!(headers.get_all("idempotency-key").iter().count(), 1);
}

const MEMBER: &str = "[[route]]\nmatch = \"POST /orders\"\nupstream_key_in = \"body:request_id\"\n";

#[tokio::test]
async fn an_upstreams_own_key_replaces_the_member_that_the_client_sent() {
    let (service, arrived) = noting(StatusCode::CREATED).await;
    let gateway = gateway(service, MEMBER).await;
    let body =
        r#"{"amount": 10000000000000000000000.10, "request\u005fid": "mine", "request_id":1}"#;

    assert_eq!(post(&gateway, &[KEY], body).await, 201);

    let (headers, body) = &take(&arrived)[0];
    let id = headers["onlyonce-operation"].to_str().unwrap();
    let wanted = format!("{{\"request_id\":\"{id}\",\"amount\":10000000000000000000000.10}}");
    assert_eq!(body, &wanted);
    assert_eq!(headers["content-length"], wanted.len().to_string());
}

#[tokio::test]
async fn a_request_without_a_place_for_the_key_is_refused_before_it_is_sent() {
    let (service, arrived) = noting(StatusCode::CREATED).await;
    let gateway = gateway(service, MEMBER).await;

    for (headers, body) in [
        (vec![KEY], "amount=1"),
        (vec![("idempotency-key", "key-2")], "[1]"),
        (vec![("idempotency-key", "key-3")], ""),
        (
            vec![
                ("idempotency-key", "key-4"),
                ("content-digest", "sha-256=:x:"),
            ],
            "{}",
        ),
    ] {
        let first = post(&gateway, &headers, body).await;
        let retry = post(&gateway, &headers, body).await;
        assert_eq!((first.as_u16(), retry.as_u16()), (422, 422), "{body}");
    }

    assert!(take(&arrived).is_empty());
}
