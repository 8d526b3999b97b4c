//! actix-idempotent in front of the trivial handler. Its answers live in sessions, and its sessions
//! in Redis.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actix_idempotent::{IdempotentFactory, IdempotentOptions};
use actix_session::storage::RedisSessionStore;
use actix_session::{Session, SessionMiddleware};
use actix_web::cookie::Key;
use actix_web::web::{Bytes, post};
use actix_web::{App, HttpResponse, HttpServer};

static RUNS: AtomicU64 = AtomicU64::new(0);

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    let store = RedisSessionStore::new(variable("REDIS_URL")).await.unwrap();
    let key = Key::generate();
    HttpServer::new(move || {
        let once = || IdempotentFactory::new(IdempotentOptions::default());
        let sessions = SessionMiddleware::builder(store.clone(), key.clone())
            .cookie_name("session".to_owned())
            .cookie_secure(false)
            .build();
        App::new()
            .wrap(sessions)
            .route("/payments", post().to(pay).wrap(once()))
            .route("/slow", post().to(slow).wrap(once()))
            .route("/session", post().to(begin))
    })
    .bind(format!("127.0.0.1:{}", variable("PORT")))?
    .run()
    .await
}

async fn pay(_: Bytes) -> HttpResponse {
    let body = format!("\"{}\"", "r".repeat(198));
    HttpResponse::Ok()
        .content_type("application/json")
        .body(body)
}

async fn slow(_: Bytes) -> HttpResponse {
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let mut file = std::fs::File::options()
        .append(true)
        .open(variable("RUNS"))
        .unwrap();
    file.write_all(b".").unwrap();
    actix_web::rt::time::sleep(Duration::from_millis(100)).await;
    let body = format!("{{\"run\":{run}}}");
    HttpResponse::Ok()
        .content_type("application/json")
        .body(body)
}

async fn begin(session: Session, _: Bytes) -> &'static str {
    session.insert("user", 1).unwrap();
    "begun"
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap()
}
