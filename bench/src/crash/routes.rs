//! Requests with new keys through the gateway: a route with `reconcile`, and one with `transactional`, each
//! against the same route without. Nothing is ever looked up here.

use std::fs;
use std::path::Path;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use http::{HeaderMap, StatusCode};
use onlyonce_stores::sql::sqlx::{self, PgPool};
use onlyonce_testkit::servers::{Postgres, Server as _};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::{INSERT, Options};
use crate::failure::Failure;
use crate::gateway::Upstream;
use crate::proxy::Onlyonce;
use crate::report::Report;
use crate::rounds::{Rounds, Sample};
use crate::wrk::{self, Keys, Load};

/// What the service says; its length is that of the other upstream's answer.
const ANSWER: &[u8] = &[b'7'; 200];

/// With and without `reconcile`, on a store of the gateway's own.
pub(super) fn readable(
    runtime: &Runtime,
    options: &Options,
    report: &mut Report,
) -> Result<(), Failure> {
    let upstream = runtime.block_on(Upstream::start())?;
    fs::create_dir_all(&options.folder).map_err(Failure::doing("make a folder"))?;
    for store in ["memory", "file"] {
        let mut rounds = Rounds::default();
        for _ in options.rounds(&format!("routes, {store}")) {
            let turn = |reconcile: &str| {
                // On the disk that was named: where the system keeps its temporary files is often none.
                let folder = tempfile::tempdir_in(&options.folder);
                let folder = folder.map_err(Failure::doing("make a folder"))?;
                let url = match store {
                    "file" => format!("file:{}", folder.path().join("records").display()),
                    _ => "memory:".to_owned(),
                };
                turn(options, upstream.port(), &url, reconcile)
            };
            let without = turn("")?;
            let with = turn("reconcile = \"GET /payments/{operation}\"\n")?;
            rounds.add(with, without);
        }
        let case = format!("route, {store}, 64 connections: reconcile / without");
        add(report, &rounds, &case);
    }
    Ok(())
}

/// With and without `transactional`, before a service that writes a row in the database that has the
/// records. Both services are the same one: without the header it completes nothing.
pub(super) fn transactional(
    runtime: &Runtime,
    options: &Options,
    (server, pool): (&Postgres, &PgPool),
    report: &mut Report,
) -> Result<(), Failure> {
    let port = runtime.block_on(service(pool.clone()))?;
    let mut rounds = Rounds::default();
    for _ in options.rounds("routes, postgres") {
        let turn = |transactional: &str| {
            server.psql("CHECKPOINT")?;
            turn(options, port, &server.url(), transactional)
        };
        let without = turn("")?;
        let with = turn("transactional = true\n")?;
        rounds.add(with, without);
    }
    let case = "route with a row, postgres, 64 connections: transactional / without";
    add(report, &rounds, case);
    Ok(())
}

fn add(report: &mut Report, rounds: &Rounds, case: &str) {
    report.rows.push(rounds.rate("crash", case, None));
    report.rows.push(rounds.per_cpu("crash", case, None));
    report.rows.push(rounds.p50("crash", case));
}

fn turn(options: &Options, upstream: u16, store: &str, more: &str) -> Result<Sample, Failure> {
    let program = options.program.path()?;
    let folder = tempfile::tempdir().map_err(Failure::doing("make a folder"))?;
    let config = configured(folder.path(), more)?;
    let gateway = Onlyonce::configured(&program, upstream, store, &config)?;
    let load = Load::new(gateway.port(), Keys::New, options.seconds);
    wrk::run(load, &[gateway.pid()])
}

fn configured(folder: &Path, more: &str) -> Result<std::path::PathBuf, Failure> {
    let config = folder.join("onlyonce.toml");
    let route = format!("[[route]]\nmatch = \"POST /payments\"\n{more}");
    fs::write(&config, route).map_err(Failure::doing("write a configuration"))?;
    Ok(config)
}

/// A service on this pool, as long as the runtime runs; returns its port.
async fn service(pool: PgPool) -> Result<u16, Failure> {
    let cannot = || Failure::doing("listen on a free port");
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(cannot())?;
    let port = listener.local_addr().map_err(cannot())?.port();
    let app = Router::new().route("/payments", post(pay)).with_state(pool);
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(port)
}

/// Anything but 200 is a failure of the run.
async fn pay(State(pool): State<PgPool>, headers: HeaderMap) -> (StatusCode, &'static [u8]) {
    match paid(&pool, headers.get("onlyonce-lease")).await {
        Ok(()) => (StatusCode::OK, ANSWER),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, ANSWER),
    }
}

async fn paid(pool: &PgPool, lease: Option<&http::HeaderValue>) -> Result<(), sqlx::Error> {
    let mut transaction = pool.begin().await?;
    sqlx::query(INSERT).execute(&mut *transaction).await?;
    if let Some(lease) = lease.and_then(|lease| lease.to_str().ok()) {
        let complete = "SELECT onlyonce_complete($1, 200, '{}'::jsonb, $2)";
        let query = sqlx::query(complete).bind(lease).bind(ANSWER);
        query.execute(&mut *transaction).await?;
    }
    transaction.commit().await
}
