//! An axum service that charges once, however often a client retries: an engine and a layer.
//!
//! `cargo run -p onlyonce-examples --example axum` serves until Ctrl-C, on a free port or where
//! `--listen ADDR` says, and prints what to try; `-- --demo` tries it by itself and ends.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use onlyonce::{Engine, IdempotencyLayer, MemoryStore};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::signal::ctrl_c;

/// How many charges were made: what must not grow with retries.
type Charges = Arc<AtomicU32>;

#[derive(Deserialize)]
struct Order {
    cents: u64,
}

#[derive(Serialize)]
struct Receipt {
    charge: u32,
    cents: u64,
}

async fn charge(
    State(charges): State<Charges>,
    Json(order): Json<Order>,
) -> (StatusCode, Json<Receipt>) {
    // The bank takes its time, so that impatient clients have something to repeat.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let charge = charges.fetch_add(1, Ordering::Relaxed) + 1;
    let cents = order.cents;
    (StatusCode::CREATED, Json(Receipt { charge, cents }))
}

async fn count(State(charges): State<Charges>) -> Json<u32> {
    Json(charges.load(Ordering::Relaxed))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse()?;

    let engine = Engine::open(MemoryStore::new()).await?;
    let app = Router::new()
        .route("/charges", post(charge).get(count))
        .layer(IdempotencyLayer::new(engine.clone()))
        .with_state(Charges::default());

    let listener = TcpListener::bind(args.listen).await?;
    let address = listener.local_addr()?;
    if args.demo {
        tokio::spawn(axum::serve(listener, app).into_future());
        return demo(address).await;
    }
    introduce(address);
    axum::serve(listener, app)
        .with_graceful_shutdown(async { ctrl_c().await.expect("Ctrl-C can be awaited") })
        .await?;
    // Handlers outlive clients that hung up: give them time to finish and to store their answers.
    engine.shutdown(Duration::from_secs(10)).await;
    Ok(())
}

struct Args {
    listen: SocketAddr,
    demo: bool,
}

impl Args {
    fn parse() -> Result<Self, Box<dyn Error>> {
        let mut parsed = Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            demo: false,
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--demo" => parsed.demo = true,
                "--listen" => parsed.listen = args.next().ok_or("--listen needs ADDR")?.parse()?,
                _ => return Err(format!("{arg}? there are --demo and --listen ADDR").into()),
            }
        }
        Ok(parsed)
    }
}

const KEY: &str = "0b9e1c52-6d0f-4a43-9a3b-5f6f0d7e2c11";

fn introduce(address: SocketAddr) {
    let curl = format!("curl -i http://{address}/charges -H 'Idempotency-Key: {KEY}' --json");
    println!("listening on http://{address}; Ctrl-C ends it");
    println!("a charge:           {curl} '{{\"cents\":500}}'");
    println!("its retry, replays: {curl} '{{\"cents\":500}}'");
    println!("another body, 422:  {curl} '{{\"cents\":900}}'");
}

/// The three calls that `introduce` suggests, and their outcomes.
async fn demo(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let first = call(address, 500).await?;
    println!("charge:       {first}");
    assert_eq!((first.status, first.replayed), (StatusCode::CREATED, false));

    let retry = call(address, 500).await?;
    println!("its retry:    {retry}");
    assert_eq!((retry.status, retry.replayed), (StatusCode::CREATED, true));
    assert_eq!(retry.body, first.body);

    let other = call(address, 900).await?;
    println!("another body: {other}");
    assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY);

    let count =
        send(Request::get(format!("http://{address}/charges")).body(Body::empty())?).await?;
    println!("charges made: {}", count.body);
    assert_eq!(count.body, "1");
    Ok(())
}

async fn call(address: SocketAddr, cents: u64) -> Result<Answer, Box<dyn Error>> {
    let request = Request::post(format!("http://{address}/charges"))
        .header("Idempotency-Key", KEY)
        .header(CONTENT_TYPE, "application/json")
        .body(Body::from(format!("{{\"cents\":{cents}}}")))?;
    send(request).await
}

async fn send(request: Request<Body>) -> Result<Answer, Box<dyn Error>> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let (parts, body) = client.request(request).await?.into_parts();
    let body = to_bytes(Body::new(body), 64 << 10).await?;
    Ok(Answer {
        status: parts.status,
        replayed: parts.headers.contains_key("idempotent-replayed"),
        body: String::from_utf8(body.into())?,
    })
}

struct Answer {
    status: StatusCode,
    replayed: bool,
    body: String,
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let replayed = if self.replayed { " (replayed)" } else { "" };
        write!(f, "{}{replayed} {}", self.status, self.body)
    }
}
