//! The axum example as a real server: a process of its own, spoken to over TCP.

use axum::body::{Body, to_bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinSet;

use crate::example::{Example, Started};

const DUPLICATES: usize = 32;

#[tokio::test(flavor = "multi_thread")]
async fn the_axum_example_runs_concurrent_duplicates_once() {
    let (server, url) = serve().await;
    let client = client();

    let mut calls = JoinSet::new();
    for _ in 0..DUPLICATES {
        calls.spawn(send(client.clone(), charge(&url, "same-key")));
    }
    let answers = calls.join_all().await;

    assert!(answers.iter().all(|it| it.status == StatusCode::CREATED));
    assert!(answers.iter().all(|it| it.body == answers[0].body));
    let replayed = answers.iter().filter(|it| it.replayed).count();
    assert_eq!(replayed, DUPLICATES - 1);
    assert_eq!(count(&client, &url).await, "1");
    server.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_axum_example_charges_each_key() {
    let (server, url) = serve().await;
    let client = client();

    for key in ["key-1", "key-2", "key-1"] {
        send(client.clone(), charge(&url, key)).await;
    }

    assert_eq!(count(&client, &url).await, "2");
    server.kill().await;
}

#[cfg(unix)]
#[tokio::test]
async fn the_axum_example_ends_well_on_ctrl_c() {
    let (server, url) = serve().await;
    send(client(), charge(&url, "key-1")).await;

    assert!(server.interrupt().await);
}

async fn serve() -> (Started, String) {
    let mut server = Example::new("axum")
        .arg("--listen")
        .arg("127.0.0.1:0")
        .starts();
    let rest = server.tells("listening on ").await;
    let (url, _) = rest.split_once(';').expect("the address ends there");
    (server, format!("{url}/charges"))
}

type HttpClient = Client<HttpConnector, Body>;

fn client() -> HttpClient {
    Client::builder(TokioExecutor::new()).build_http()
}

fn charge(url: &str, key: &str) -> Request<Body> {
    Request::post(url)
        .header("idempotency-key", key)
        .header(CONTENT_TYPE, "application/json")
        .body(Body::from("{\"cents\":500}"))
        .expect("the request is valid")
}

struct Answer {
    status: StatusCode,
    replayed: bool,
    body: String,
}

async fn send(client: HttpClient, request: Request<Body>) -> Answer {
    let answer = client.request(request).await.expect("the server answers");
    let (parts, body) = answer.into_parts();
    let body = to_bytes(Body::new(body), 64 << 10).await;
    Answer {
        status: parts.status,
        replayed: parts.headers.contains_key("idempotent-replayed"),
        body: String::from_utf8_lossy(&body.expect("the body is whole")).into_owned(),
    }
}

async fn count(client: &HttpClient, url: &str) -> String {
    let request = Request::get(url).body(Body::empty());
    send(client.clone(), request.expect("the request is valid"))
        .await
        .body
}
