//! gRPC over the layer: its status decides what is stored, and refusals speak its language. A
//! real tonic service and client are in the examples.

use http::{HeaderMap, HeaderValue, Response};
use onlyonce_core::Profile;

use crate::support::{App, Ask, Frames, post};

const GRPC: &str = "application/grpc";

/// A unary call; the key is sent as metadata, which is a header.
fn call(message: &'static [u8]) -> Ask {
    post("/shop.Orders/Place").key("a-key").body(GRPC, message)
}

/// A message and a status in the trailers, as gRPC ends a call.
fn ended(run: usize, status: &'static str) -> Response<axum::body::Body> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(status));
    trailers.append("x-run", HeaderValue::from(run));
    let body = Frames::default()
        .data(format!("message {run}"))
        .trailers(trailers)
        .body();
    let mut response = Response::new(body);
    let grpc = HeaderValue::from_static(GRPC);
    response.headers_mut().insert("content-type", grpc);
    response
}

#[tokio::test]
async fn a_unary_call_runs_once_and_replays_its_trailers() {
    let app = App::under(Profile::Standard)
        .answer(|run| ended(run, "0"))
        .open()
        .await;

    let first = app.send(&call(b"\0\0\0\0\x02hi")).await;
    let retry = app.send(&call(b"\0\0\0\0\x02hi")).await;

    assert_eq!(app.runs(), 1);
    assert_eq!((first.text(), retry.text()), ("message 1", "message 1"));
    for answer in [&first, &retry] {
        let trailers = answer.trailers.as_ref().unwrap();
        assert_eq!(trailers["grpc-status"], "0");
        assert_eq!(trailers["x-run"], "1");
    }
    assert_eq!(retry.header("idempotent-replayed"), Some("true"));
}

#[tokio::test]
async fn the_grpc_status_decides_what_is_stored() {
    for (status, stored) in [
        ("0", true),
        ("5", true),
        ("9", true),
        ("13", true),
        ("8", false),
        ("14", false),
        ("16", false),
    ] {
        let app = App::under(Profile::Standard)
            .answer(move |run| ended(run, status))
            .open()
            .await;

        app.send(&call(b"same")).await;
        let retry = app.send(&call(b"same")).await;

        assert_eq!(
            app.runs(),
            if stored { 1 } else { 2 },
            "grpc-status {status}"
        );
        let trailers = retry.trailers.as_ref().unwrap();
        assert_eq!(trailers["grpc-status"], status);
    }
}

#[tokio::test]
async fn a_refusal_is_a_grpc_status_and_not_an_http_error() {
    let app = App::under(Profile::Standard)
        .answer(|run| ended(run, "0"))
        .open()
        .await;
    app.send(&call(b"one")).await;

    let other = app.send(&call(b"another")).await;
    let bad_key = app
        .send(
            &post("/shop.Orders/Place")
                .key("a b")
                .body(GRPC, &b"one"[..]),
        )
        .await;

    assert_eq!(
        (other.status, other.header("grpc-status")),
        (200, Some("9"))
    );
    assert_eq!(other.header("content-type"), Some(GRPC));
    assert!(
        other
            .header("grpc-message")
            .unwrap()
            .contains("different request")
    );
    assert_eq!(
        (bad_key.status, bad_key.header("grpc-status")),
        (200, Some("3"))
    );
    assert_eq!(app.runs(), 1);
}
