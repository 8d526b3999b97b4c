//! What an intake does: create a draft, set its fields, submit it, or all of that at once.

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use onlyonce::Execution;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::events::{New, What};
use super::{Desk, Submission, SubmissionPath};
use crate::actor::Actor;
use crate::db::Work;
use crate::ids::{column, now, shown};
use crate::reply::{Fault, Reply};
use crate::rules::Extent;

type Keyed = Option<Extension<Execution>>;

/// What is sent to an intake.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sent {
    #[serde(default)]
    fields: Map<String, Value>,
}

impl Sent {
    /// Nothing at all is as good as no fields.
    fn read(body: &[u8]) -> Result<Self, Fault> {
        if body.trim_ascii().is_empty() {
            return Ok(Self::default());
        }
        serde_json::from_slice(body).map_err(|error| {
            let why = format!("the body must be {{\"fields\": {{…}}}}: {error}");
            Fault::no(StatusCode::BAD_REQUEST, "invalid_request", why)
        })
    }
}

/// One change of a submission on its way into the database.
struct Change<'a> {
    desk: &'a Desk,
    work: Work,
    keyed: Option<&'a Execution>,
    actor: &'a Actor,
    at: i64,
}

impl<'a> Change<'a> {
    async fn begin(desk: &'a Desk, keyed: &'a Keyed, actor: &'a Actor) -> Result<Self, Fault> {
        let keyed = keyed.as_ref().map(|Extension(execution)| execution);
        Ok(Self {
            desk,
            work: desk.db.work(keyed).await?,
            keyed,
            actor,
            at: column(now()),
        })
    }

    async fn insert(&mut self, state: &str, fields: &Map<String, Value>) -> Result<String, Fault> {
        const INSERT: &str = "INSERT INTO submissions \
            (id, intake, owner, state, fields, events, created_at) \
            VALUES ($1, $2, $3, $4, $5, 1, $6)";
        let id = self.desk.ids.make("sub_");
        let fields = Value::from(fields.clone()).to_string();
        let args = [
            (&id).into(),
            (&self.desk.definition.id).into(),
            self.actor.name().into(),
            state.into(),
            (&fields).into(),
            self.at.into(),
        ];
        self.work.run(INSERT, &args).await?;
        Ok(id)
    }

    async fn happened(&mut self, id: &str, seq: i64, what: What) -> Result<(), Fault> {
        let slot = self.work.slot();
        let label = self
            .keyed
            .and_then(Execution::label)
            .map(|it| it.to_string());
        let event = New {
            id: &self.desk.ids.make("evt_"),
            submission: id,
            seq,
            what,
            at: self.at,
            actor: self.actor.name(),
            key: slot.as_deref().zip(label.as_deref()),
            replay: None,
        };
        Ok(event.write(&mut self.work).await?)
    }

    /// Marks it as submitted, and its webhook as due: both with the same commit.
    async fn submitted(&mut self, id: &str, fields: &Map<String, Value>) -> Result<(), Fault> {
        const SUBMIT: &str =
            "UPDATE submissions SET state = 'submitted', submitted_at = $2 WHERE id = $1";
        self.work.run(SUBMIT, &[id.into(), self.at.into()]).await?;
        let definition = &self.desk.definition;
        if let Some(target) = &definition.webhook {
            let told = json!({
                "event": What::Submitted.name(),
                "submissionId": id,
                "intakeId": definition.id,
                "submittedAt": shown(self.at),
                "fields": fields,
            });
            let outbox = &self.desk.outbox;
            outbox.put(&mut self.work, target, &told, self.at).await?;
        }
        Ok(())
    }

    async fn finish(self, reply: Reply) -> Result<Reply, Fault> {
        let reply = self.work.finish(reply).await?;
        self.desk.outbox.wake();
        Ok(reply)
    }
}

/// `POST /api/intakes/{intake}/submissions`: a draft, with or without fields.
pub(super) async fn create(
    State(desk): State<Desk>,
    actor: Actor,
    keyed: Keyed,
    body: Bytes,
) -> Result<Reply, Fault> {
    let fields = Sent::read(&body)?.fields;
    valid(&desk, &fields, Extent::Draft)?;
    let mut change = Change::begin(&desk, &keyed, &actor).await?;
    let id = change.insert("draft", &fields).await?;
    change.happened(&id, 1, What::Created).await?;
    let said = json!({"ok": true, "submissionId": id, "state": "draft", "fields": fields});
    let reply = Reply::new(StatusCode::CREATED, said).made(&id);
    change.finish(reply).await
}

/// `PATCH /api/submissions/{id}/fields`: sets fields; `null` takes one away.
pub(super) async fn set_fields(
    State(desk): State<Desk>,
    Path(SubmissionPath { submission: id }): Path<SubmissionPath>,
    actor: Actor,
    keyed: Keyed,
    body: Bytes,
) -> Result<Reply, Fault> {
    const UPDATE: &str = "UPDATE submissions SET fields = $2 WHERE id = $1";
    let (taken, set): (Map<_, _>, Map<_, _>) = Sent::read(&body)?
        .fields
        .into_iter()
        .partition(|(_, value)| value.is_null());
    valid(&desk, &set, Extent::Draft)?;
    let mut change = Change::begin(&desk, &keyed, &actor).await?;
    let held = Submission::hold(&mut change.work, &id, &actor).await?;
    is_draft(&held)?;
    let mut fields = held.fields();
    fields.extend(set);
    fields.retain(|name, _| !taken.contains_key(name));
    let text = Value::from(fields.clone()).to_string();
    let args = [(&id).into(), (&text).into()];
    change.work.run(UPDATE, &args).await?;
    change.happened(&id, held.events, What::FieldsSet).await?;
    let said = json!({"ok": true, "submissionId": id, "state": "draft", "fields": fields});
    change.finish(Reply::ok(said).made(&id)).await
}

/// `POST /api/submissions/{id}/submit`: submits a draft that is whole.
pub(super) async fn submit(
    State(desk): State<Desk>,
    Path(SubmissionPath { submission: id }): Path<SubmissionPath>,
    actor: Actor,
    keyed: Keyed,
) -> Result<Reply, Fault> {
    let mut change = Change::begin(&desk, &keyed, &actor).await?;
    let held = Submission::hold(&mut change.work, &id, &actor).await?;
    is_draft(&held)?;
    let fields = held.fields();
    // Setting its fields may help: not an answer to keep.
    valid(&desk, &fields, Extent::Whole).map_err(Fault::passing)?;
    change.submitted(&id, &fields).await?;
    change.happened(&id, held.events, What::Submitted).await?;
    let said = json!({"ok": true, "submissionId": id, "state": "submitted"});
    change.finish(Reply::ok(said).made(&id)).await
}

/// `POST /api/intakes/{intake}/submit`: creates and submits in one.
pub(super) async fn submit_whole(
    State(desk): State<Desk>,
    actor: Actor,
    keyed: Keyed,
    body: Bytes,
) -> Result<Reply, Fault> {
    let fields = Sent::read(&body)?.fields;
    valid(&desk, &fields, Extent::Whole)?;
    let mut change = Change::begin(&desk, &keyed, &actor).await?;
    let id = change.insert("submitted", &fields).await?;
    change.submitted(&id, &fields).await?;
    change.happened(&id, 1, What::Submitted).await?;
    let said = json!({"ok": true, "submissionId": id, "state": "submitted"});
    let reply = Reply::new(StatusCode::CREATED, said).made(&id);
    change.finish(reply).await
}

/// `GET /api/submissions/{id}`
pub(super) async fn show(
    State(desk): State<Desk>,
    Path(SubmissionPath { submission: id }): Path<SubmissionPath>,
    actor: Actor,
) -> Result<Reply, Fault> {
    let found = Submission::read(&desk, &id, &actor).await?;
    Ok(Reply::ok(json!({
        "ok": true,
        "submissionId": id,
        "intakeId": desk.definition.id,
        "state": found.state,
        "fields": found.fields(),
        "createdAt": shown(found.created_at),
        "submittedAt": found.submitted_at.map(shown),
    })))
}

/// `POST /api/submissions/{id}/validate`: whether it could be submitted. Changes nothing.
pub(super) async fn validate(
    State(desk): State<Desk>,
    Path(SubmissionPath { submission: id }): Path<SubmissionPath>,
    actor: Actor,
) -> Result<Reply, Fault> {
    let found = Submission::read(&desk, &id, &actor).await?;
    Ok(judged(&desk, &found.fields()))
}

/// `POST /api/intakes/{intake}/validate`: whether these fields could be submitted.
pub(super) async fn validate_fields(State(desk): State<Desk>, body: Bytes) -> Result<Reply, Fault> {
    Ok(judged(&desk, &Sent::read(&body)?.fields))
}

fn judged(desk: &Desk, fields: &Map<String, Value>) -> Reply {
    let wrongs = desk.definition.wrongs(fields, Extent::Whole);
    Reply::ok(json!({"ok": true, "valid": wrongs.is_empty(), "errors": wrongs}))
}

fn valid(desk: &Desk, fields: &Map<String, Value>, extent: Extent) -> Result<(), Fault> {
    let wrongs = desk.definition.wrongs(fields, extent);
    if wrongs.is_empty() {
        return Ok(());
    }
    let status = StatusCode::UNPROCESSABLE_ENTITY;
    let fault = Fault::no(status, "validation_failed", "some fields are not right");
    Err(fault.with(Value::from(wrongs)))
}

fn is_draft(held: &Submission) -> Result<(), Fault> {
    if held.state == "draft" {
        return Ok(());
    }
    let why = "it is submitted already, and cannot be changed any more";
    Err(Fault::no(StatusCode::CONFLICT, "invalid_state", why))
}
