//! The trivial handler as a program of its own, bare or behind the tower layer.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::post;
use axum::serve::ListenerExt as _;
use bytes::Bytes;
use clap::Args;
use http::header::CONTENT_TYPE;
use onlyonce_core::Engine;
use onlyonce_tower::IdempotencyLayer;
use tokio::net::TcpListener;

use crate::failure::Failure;
use crate::runtime;

/// How long the slow handler takes.
const SLOW: Duration = Duration::from_millis(100);
/// JSON.
static ANSWER: [u8; 200] = {
    let mut answer = [b'r'; 200];
    (answer[0], answer[199]) = (b'"', b'"');
    answer
};

#[derive(Args)]
pub(crate) struct Options {
    #[arg(long)]
    port: u16,
    /// The store of the layer; without one there is no layer
    #[arg(long)]
    store: Option<String>,
    /// Where each run of the slow handler leaves a byte
    #[arg(long)]
    runs: PathBuf,
}

/// This program, to serve on a port.
pub(crate) fn command(port: u16, store: Option<&str>, runs: &Path) -> Result<Command, Failure> {
    let own = std::env::current_exe().map_err(Failure::doing("find this program"))?;
    let mut command = Command::new(own);
    command.arg("serve").arg("--port").arg(port.to_string());
    command.arg("--runs").arg(runs);
    command.args(store.map(|store| ["--store", store]).iter().flatten());
    Ok(command)
}

/// Serves until it is ended.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    runtime()?.block_on(async {
        let handlers = Router::new()
            .route("/payments", post(pay))
            .route("/echo", post(echo))
            .route("/slow", post(slow))
            .with_state(options.runs.clone());
        let app = match &options.store {
            Some(url) => {
                let store = onlyonce_stores::open(url).await?;
                let engine = Engine::open(store)
                    .await
                    .map_err(Failure::doing("start the engine"))?;
                handlers.layer(IdempotencyLayer::new(engine))
            }
            None => handlers,
        };
        let cannot = || Failure::doing("serve");
        let listener = TcpListener::bind(("127.0.0.1", options.port)).await;
        // Without it every answer would wait for the last one to be acknowledged.
        let listener = listener
            .map_err(cannot())?
            .tap_io(|stream| drop(stream.set_nodelay(true)));
        axum::serve(listener, app).await.map_err(cannot())
    })
}

async fn pay(_: Bytes) -> impl IntoResponse {
    (
        [(CONTENT_TYPE, "application/json")],
        Bytes::from_static(&ANSWER),
    )
}

/// Answers as much as it was sent.
async fn echo(body: Bytes) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], body)
}

async fn slow(State(runs): State<PathBuf>, _: Bytes) -> impl IntoResponse {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let file = std::fs::File::options().append(true).open(runs);
    file.and_then(|mut file| file.write_all(b"."))
        .expect("the runs can be counted");
    tokio::time::sleep(SLOW).await;
    let body = format!("{{\"run\":{run}}}");
    ([(CONTENT_TYPE, "application/json")], body)
}
