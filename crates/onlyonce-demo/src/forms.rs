//! The form broker: `POST /api/forms/{form}/submit` with a session (`contextId`) and its data. A
//! key is derived from both where none is sent. The same as a plain HTML page, for a browser whose
//! user clicks twice, goes back, or reloads.

use axum::Extension;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use onlyonce::{Engine, Execution, IdempotencyLayer, Policy};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::db::Db;
use crate::ids::{Ids, column, now};
use crate::reply::{Fault, Reply, word};

mod page;

/// A form: its fields, and what becomes of a submission.
pub(crate) struct Form {
    id: &'static str,
    title: &'static str,
    fields: &'static [Field],
    /// What business record each submission makes.
    makes: &'static str,
}

struct Field {
    name: &'static str,
    label: &'static str,
    /// The type of its input on the page.
    input: &'static str,
}

const FORMS: [Form; 1] = [Form {
    id: "test-form",
    title: "Test form",
    fields: &[
        Field {
            name: "name",
            label: "Name",
            input: "text",
        },
        Field {
            name: "email",
            label: "E-mail",
            input: "email",
        },
    ],
    makes: "Lead",
}];

/// What the handlers share.
#[derive(Clone)]
pub(crate) struct Forms {
    db: Db,
    ids: Ids,
}

/// The routes of the broker, under the rules of `policy`.
pub(crate) fn router(db: &Db, ids: &Ids, engine: &Engine, policy: Policy) -> Router {
    let forms = Forms {
        db: db.clone(),
        ids: ids.clone(),
    };
    let envelope = policy.http.envelope;
    let api = Router::new()
        .route("/api/forms/{form}/submit", post(submit))
        .layer(from_fn_with_state(envelope, word))
        .layer(IdempotencyLayer::new(engine.clone()).policy(policy))
        .route("/api/forms/{form}/records", get(records))
        .with_state(forms);
    page::router(ids, api.clone()).merge(api)
}

fn find(id: &str) -> Result<&'static Form, Fault> {
    let mut forms = FORMS.iter();
    forms
        .find(|form| form.id == id)
        .ok_or_else(|| Fault::not_found(format!("there is no form `{id}`")))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Sent {
    context_id: String,
    form_data: Map<String, Value>,
}

/// `POST /api/forms/{form}/submit`
async fn submit(
    State(Forms { db, ids }): State<Forms>,
    Path(id): Path<String>,
    keyed: Option<Extension<Execution>>,
    body: Bytes,
) -> Result<Reply, Fault> {
    let form = find(&id)?;
    let sent: Sent = serde_json::from_slice(&body).map_err(|error| {
        let why = format!("the body must be {{\"contextId\": …, \"formData\": {{…}}}}: {error}");
        Fault::no(StatusCode::BAD_REQUEST, "invalid_request", why)
    })?;
    if sent.context_id.trim().is_empty() {
        let why = "contextId is empty: it names the session, as in `test-form:SESSION`";
        return Err(Fault::no(StatusCode::BAD_REQUEST, "invalid_request", why));
    }
    form.takes(&sent.form_data)?;

    let keyed = keyed.as_ref().map(|Extension(execution)| execution);
    let mut work = db.work(keyed).await?;
    const RECORD: &str = "INSERT INTO form_records (id, form, context_id, data, at) \
        VALUES ($1, $2, $3, $4, $5)";
    const BUSINESS: &str =
        "INSERT INTO business_records (id, record, object_type) VALUES ($1, $2, $3)";
    const RELATION: &str = "INSERT INTO relationships (id, record, business) VALUES ($1, $2, $3)";
    let (record, business, relation) = (ids.make("a0B"), ids.make("00Q"), ids.make("a0C"));
    let data = Value::from(sent.form_data).to_string();
    let args = [
        (&record).into(),
        form.id.into(),
        (&sent.context_id).into(),
        (&data).into(),
        column(now()).into(),
    ];
    work.run(RECORD, &args).await?;
    let args = [(&business).into(), (&record).into(), form.makes.into()];
    work.run(BUSINESS, &args).await?;
    let args = [(&relation).into(), (&record).into(), (&business).into()];
    work.run(RELATION, &args).await?;
    let said = json!({
        "success": true,
        "recordId": record,
        "businessRecordIds": [{"id": business, "objectType": form.makes}],
        "relationshipIds": [relation],
        "contextId": sent.context_id,
        "message": "Form submitted successfully",
    });
    work.finish(Reply::ok(said).made(&record)).await
}

/// `GET /api/forms/{form}/records`: how many there are, and the newest.
async fn records(
    State(Forms { db, .. }): State<Forms>,
    Path(id): Path<String>,
) -> Result<Reply, Fault> {
    const COUNT: &str = "SELECT COUNT(*) FROM form_records WHERE form = $1";
    const NEWEST: &str =
        "SELECT id, data FROM form_records WHERE form = $1 ORDER BY at DESC LIMIT 20";
    let form = find(&id)?;
    let count: Vec<(i64,)> = db.all(COUNT, &[form.id.into()]).await?;
    let newest: Vec<(String, String)> = db.all(NEWEST, &[form.id.into()]).await?;
    let newest: Vec<_> = newest
        .into_iter()
        .map(|(id, data)| {
            let data: Value = serde_json::from_str(&data).unwrap_or_default();
            json!({"recordId": id, "formData": data})
        })
        .collect();
    let count = count.first().map_or(0, |(count,)| *count);
    Ok(Reply::ok(
        json!({"success": true, "count": count, "records": newest}),
    ))
}

impl Form {
    /// Takes any of its fields, as text.
    fn takes(&self, data: &Map<String, Value>) -> Result<(), Fault> {
        let known = |name: &str| self.fields.iter().any(|field| field.name == name);
        for (name, value) in data {
            let why = if !known(name) {
                format!("there is no field `{name}` in {}", self.title)
            } else if !value.is_string() {
                format!("the field `{name}` must be text")
            } else {
                continue;
            };
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            return Err(Fault::no(status, "validation_error", why));
        }
        Ok(())
    }
}
