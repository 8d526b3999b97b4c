//! What was written down: the audit events of every key, and how often an answer was replayed. Events
//! are kept for a time (`record`), and those of an actor go on request (D0 §9.4.2, §9.4.3).

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use onlyonce::policy::Envelope;
use onlyonce_observe::audit::{Purged, Trail};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::actor;
use crate::db::{Db, Work};
use crate::ids::shown;
use crate::record::Noted;
use crate::reply::{Fault, Reply, word};

#[derive(Clone)]
struct Audit {
    db: Db,
    noted: Noted,
    /// The same in a file, where one is written.
    trail: Option<Arc<Trail>>,
}

/// `/demo/audit` and `/demo/stats`
pub(crate) fn router(db: &Db, noted: Noted, trail: Option<Trail>) -> Router {
    let audit = Audit {
        db: db.clone(),
        noted,
        trail: trail.map(Arc::new),
    };
    Router::new()
        .route("/demo/audit", get(list).delete(purge))
        .route("/demo/stats", get(stats))
        .layer(from_fn_with_state(Envelope::Problem, word))
        .with_state(audit)
}

#[derive(sqlx::FromRow)]
struct Row {
    id: String,
    r#type: String,
    at: i64,
    actor: Option<String>,
    operation: String,
    metadata: String,
}

/// The newest audit events first.
async fn list(State(Audit { db, noted, .. }): State<Audit>) -> Result<Reply, Fault> {
    const SELECT: &str = "SELECT id, type, at, actor, operation, metadata FROM audit_events \
        ORDER BY at DESC, id LIMIT 200";
    noted.flush().await;
    let rows: Vec<Row> = db.all(SELECT, &[]).await?;
    let events: Vec<_> = rows
        .into_iter()
        .map(|row| {
            let mut metadata: Value = serde_json::from_str(&row.metadata).unwrap_or_default();
            metadata["operation"] = json!(row.operation);
            json!({
                "eventId": row.id,
                "eventType": row.r#type,
                "timestamp": shown(row.at),
                "actor": actor::view(row.actor.as_deref()),
                "metadata": metadata,
            })
        })
        .collect();
    Ok(Reply::ok(json!({"events": events})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Whose {
    actor: String,
}

/// `DELETE /demo/audit?actor=ID`: removes every event of an actor, and names it in no other; in the
/// audit trail too that is written beside the database.
async fn purge(
    State(Audit { db, noted, trail }): State<Audit>,
    whose: Result<Query<Whose>, QueryRejection>,
) -> Result<Reply, Fault> {
    let bad = |why: String| Fault::no(StatusCode::BAD_REQUEST, "invalid_request", why);
    let Query(Whose { actor }) = whose.map_err(|error| bad(error.body_text()))?;
    if actor.is_empty() {
        let why = "actor is the id of an actor, as in ?actor=ada";
        return Err(bad(why.to_owned()));
    }
    noted.flush().await;
    // First what can fail as a whole: then all of it can be asked for again.
    let purged = match trail {
        Some(trail) => Some(purge_trail(trail, actor.clone()).await?),
        None => None,
    };
    let mut work = db.plain_work().await?;
    let removed = remove(&mut work, &actor).await?;
    unname(&mut work, &actor).await?;
    work.commit().await?;
    let mut told = json!({"removed": removed});
    if let Some(purged) = purged {
        told["removedFromTrail"] = json!(purged.removed);
    }
    Ok(Reply::ok(told))
}

/// Removes what the actor did from the files of the trail.
async fn purge_trail(trail: Arc<Trail>, actor: String) -> Result<Purged, Fault> {
    let failed = |why: String| {
        Fault::no(StatusCode::SERVICE_UNAVAILABLE, "audit_unavailable", why).passing()
    };
    let purged = tokio::task::spawn_blocking(move || trail.purge(&actor)).await;
    purged
        .map_err(|error| failed(error.to_string()))?
        .map_err(|error| failed(error.to_string()))
}

/// Removes what the actor did; says how much that was. One id may have several types.
async fn remove(work: &mut Work, id: &str) -> Result<u64, sqlx::Error> {
    const ACTORS: &str = "SELECT DISTINCT actor FROM audit_events WHERE actor IS NOT NULL";
    const REMOVE: &str = "DELETE FROM audit_events WHERE actor = $1";
    let actors: Vec<(String,)> = work.all(ACTORS, &[]).await?;
    let mut removed = 0;
    for (actor,) in &actors {
        if actor::view(Some(actor))["id"] == id {
            removed += work.run(REMOVE, &[actor.into()]).await?;
        }
    }
    Ok(removed)
}

/// Takes the actor's name out of the conflicts that others had with its keys.
async fn unname(work: &mut Work, id: &str) -> Result<(), sqlx::Error> {
    const CONFLICTS: &str =
        "SELECT id, metadata FROM audit_events WHERE type = 'idempotency.conflict'";
    const CHANGE: &str = "UPDATE audit_events SET metadata = $2 WHERE id = $1";
    let conflicts: Vec<(String, String)> = work.all(CONFLICTS, &[]).await?;
    for (event, metadata) in &conflicts {
        let mut metadata: Value = serde_json::from_str(metadata).unwrap_or_default();
        if metadata["originalActor"]["id"] == id {
            metadata["originalActor"] = Value::Null;
            let metadata = metadata.to_string();
            work.run(CHANGE, &[event.into(), (&metadata).into()])
                .await?;
        }
    }
    Ok(())
}

/// How many requests were answered from a record, of all that had a key.
async fn stats(State(Audit { noted, .. }): State<Audit>) -> Reply {
    let (runs, replays) = noted.counts();
    let keyed = runs + replays;
    let hit_rate = if keyed == 0 {
        0.0
    } else {
        replays as f64 / keyed as f64
    };
    Reply::ok(json!({"runs": runs, "replays": replays, "hitRate": hit_rate}))
}
