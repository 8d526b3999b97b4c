//! The other end of the webhooks: a consumer that takes each delivery once, by its key.

use axum::Extension;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::post;
use onlyonce::{Execution, Policy};
use serde_json::{Value, json};

use crate::db::Db;
use crate::ids::{Ids, column, now, shown};
use crate::once::Once;
use crate::reply::{Fault, Reply, word};

/// Where it is.
pub(crate) const PATH: &str = "/demo/inbox";

#[derive(Clone)]
struct Inbox {
    db: Db,
    ids: Ids,
}

/// `/demo/inbox`: takes deliveries, and lists them.
pub(crate) fn router(db: &Db, ids: &Ids, once: &Once) -> Router {
    let policy = Policy::default();
    let inbox = Inbox {
        db: db.clone(),
        ids: ids.clone(),
    };
    let service = Router::new()
        .route(PATH, post(take).get(list))
        .layer(from_fn_with_state(policy.http.envelope, word));
    once.around(service, policy).with_state(inbox)
}

async fn take(
    State(Inbox { db, ids }): State<Inbox>,
    keyed: Option<Extension<Execution>>,
    body: Bytes,
) -> Result<Reply, Fault> {
    const INSERT: &str = "INSERT INTO inbox (id, body, at) VALUES ($1, $2, $3)";
    let told: Value = serde_json::from_slice(&body).map_err(|error| {
        let why = format!("the body must be JSON: {error}");
        Fault::no(StatusCode::BAD_REQUEST, "invalid_request", why)
    })?;
    let keyed = keyed.as_ref().map(|Extension(execution)| execution);
    let mut work = db.work(keyed).await?;
    let (id, text) = (ids.make("in_"), told.to_string());
    let args = [(&id).into(), (&text).into(), column(now()).into()];
    work.run(INSERT, &args).await?;
    let reply = Reply::ok(json!({"taken": id})).made(&id);
    work.finish(reply).await
}

async fn list(State(Inbox { db, .. }): State<Inbox>) -> Result<Reply, Fault> {
    // In one statement: the count and the list are of one moment.
    const NEWEST: &str = "SELECT body, at, COUNT(*) OVER () FROM inbox ORDER BY at DESC LIMIT 20";
    let newest: Vec<(String, i64, i64)> = db.all(NEWEST, &[]).await?;
    let count = newest.first().map_or(0, |(_, _, count)| *count);
    let newest: Vec<_> = newest
        .into_iter()
        .map(|(body, at, _)| {
            let told: Value = serde_json::from_str(&body).unwrap_or_default();
            json!({"at": shown(at), "told": told})
        })
        .collect();
    Ok(Reply::ok(json!({"count": count, "deliveries": newest})))
}
