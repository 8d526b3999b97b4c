//! What was written down: the audit events of every key, and how often an answer was replayed.

use axum::Router;
use axum::extract::State;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use onlyonce::policy::Envelope;
use serde_json::{Value, json};

use crate::actor;
use crate::db::Db;
use crate::ids::shown;
use crate::record::Recorder;
use crate::reply::{Fault, Reply, word};

#[derive(Clone)]
struct Audit {
    db: Db,
    recorder: Recorder,
}

/// `/demo/audit` and `/demo/stats`
pub(crate) fn router(db: &Db, recorder: &Recorder) -> Router {
    let audit = Audit {
        db: db.clone(),
        recorder: recorder.clone(),
    };
    Router::new()
        .route("/demo/audit", get(list))
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
async fn list(State(Audit { db, recorder }): State<Audit>) -> Result<Reply, Fault> {
    const SELECT: &str = "SELECT id, type, at, actor, operation, metadata FROM audit_events \
        ORDER BY at DESC, id LIMIT 200";
    recorder.flush().await;
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

/// How many requests were answered from a record, of all that had a key.
async fn stats(State(Audit { recorder, .. }): State<Audit>) -> Reply {
    let (runs, replays) = recorder.counts();
    let keyed = runs + replays;
    let hit_rate = if keyed == 0 {
        0.0
    } else {
        replays as f64 / keyed as f64
    };
    Reply::ok(json!({"runs": runs, "replays": replays, "hitRate": hit_rate}))
}
