//! The events of a submission: what happened to it, in order, by whom and under which key.

use axum::extract::{Path, State};
use serde_json::{Value, json};

use super::{Desk, Submission, SubmissionPath};
use crate::actor::{self, Actor};
use crate::db::Work;
use crate::ids::shown;
use crate::reply::{Fault, Reply};

/// What can happen to a submission.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Created,
    FieldsSet,
    Submitted,
    Replayed,
}

impl What {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Created => "submission.created",
            Self::FieldsSet => "submission.fields_set",
            Self::Submitted => "submission.submitted",
            Self::Replayed => "submission.replayed",
        }
    }
}

/// An event to write.
pub(crate) struct New<'a> {
    pub(crate) id: &'a str,
    pub(crate) submission: &'a str,
    /// Its place: whoever writes it has counted the submission's events up, and holds its row.
    pub(crate) seq: i64,
    pub(crate) what: What,
    pub(crate) at: i64,
    pub(crate) actor: Option<&'a str>,
    /// The digest of its key, and how people see it.
    pub(crate) key: Option<(&'a str, &'a str)>,
    /// Of a replay: the event it repeats, and for which time.
    pub(crate) replay: Option<(&'a str, i64)>,
}

impl New<'_> {
    pub(crate) async fn write(&self, work: &mut Work) -> Result<(), sqlx::Error> {
        const INSERT: &str = "INSERT INTO submission_events \
            (id, submission, seq, type, at, actor, slot, key_label, original, replay_number) \
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, NULLIF($10, 0))";
        let args = [
            self.id.into(),
            self.submission.into(),
            self.seq.into(),
            self.what.name().into(),
            self.at.into(),
            self.actor.into(),
            self.key.map(|(slot, _)| slot).into(),
            self.key.map(|(_, label)| label).into(),
            self.replay.map(|(original, _)| original).into(),
            self.replay.map_or(0, |(_, number)| number).into(),
        ];
        work.run(INSERT, &args).await.map(drop)
    }
}

#[derive(sqlx::FromRow)]
struct Event {
    id: String,
    r#type: String,
    at: i64,
    actor: Option<String>,
    key_label: Option<String>,
    original: Option<String>,
    replay_number: Option<i64>,
}

impl Event {
    fn view(&self, submission: &str) -> Value {
        let mut payload = json!({});
        if let Some(label) = &self.key_label {
            payload["idempotencyKey"] = json!(label);
        }
        if let (Some(original), Some(number)) = (&self.original, self.replay_number) {
            payload["originalEventId"] = json!(original);
            payload["replayNumber"] = json!(number);
        }
        json!({
            "eventId": self.id,
            "submissionId": submission,
            "type": self.r#type,
            "timestamp": shown(self.at),
            "actor": actor::view(self.actor.as_deref()),
            "payload": payload,
        })
    }
}

/// `GET /api/submissions/{id}/events`
pub(super) async fn list(
    State(desk): State<Desk>,
    Path(SubmissionPath { submission }): Path<SubmissionPath>,
    actor: Actor,
) -> Result<Reply, Fault> {
    Submission::read(&desk, &submission, &actor).await?;
    // Replays are written down a little later: not later than somebody looks.
    desk.noted.flush().await;
    const SELECT: &str = "SELECT id, type, at, actor, key_label, original, replay_number \
        FROM submission_events WHERE submission = $1 ORDER BY seq";
    let events: Vec<Event> = desk.db.all(SELECT, &[(&submission).into()]).await?;
    let events: Vec<_> = events.iter().map(|event| event.view(&submission)).collect();
    Ok(Reply::ok(json!({"ok": true, "events": events})))
}
