//! The form broker: `POST /api/forms/{form}/submit` with a session (`contextId`) and its data. A
//! key is derived from both where none is sent. The same as a plain HTML page, for a browser whose
//! user clicks twice, goes back, or reloads.

use std::sync::Arc;

use axum::Extension;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use onlyonce::{Execution, Policy};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::db::Db;
use crate::ids::{Ids, column, now};
use crate::once::Once;
use crate::reply::{Fault, Reply, word};

mod definition;
mod page;

pub(crate) use self::definition::Form;

/// Where a form is submitted.
pub(crate) const SUBMIT: &str = "/api/forms/{form}/submit";

/// What the handlers share.
#[derive(Clone)]
pub(crate) struct Forms {
    all: Arc<[Form]>,
    db: Db,
    ids: Ids,
}

/// The routes of the broker, under the rules of `policy`.
pub(crate) fn router(all: Vec<Form>, db: &Db, ids: &Ids, once: &Once, policy: Policy) -> Router {
    let forms = Forms {
        all: all.into(),
        db: db.clone(),
        ids: ids.clone(),
    };
    let envelope = policy.http.envelope;
    let service = Router::new()
        .route(SUBMIT, post(submit))
        .layer(from_fn_with_state(envelope, word));
    let api = once
        .around(service, policy)
        .route("/api/forms/{form}/records", get(records))
        .with_state(forms.clone());
    page::router(forms, api.clone()).merge(api)
}

impl Forms {
    fn find(&self, id: &str) -> Result<&Form, Fault> {
        let mut forms = self.all.iter();
        forms
            .find(|form| form.id == id)
            .ok_or_else(|| Fault::not_found(format!("there is no form `{id}`")))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Sent {
    context_id: String,
    form_data: Map<String, Value>,
}

/// `POST /api/forms/{form}/submit`
async fn submit(
    State(forms): State<Forms>,
    Path(id): Path<String>,
    keyed: Option<Extension<Execution>>,
    body: Bytes,
) -> Result<Reply, Fault> {
    let form = forms.find(&id)?;
    let sent: Sent = serde_json::from_slice(&body).map_err(|error| {
        let why = format!("the body must be {{\"contextId\": …, \"formData\": {{…}}}}: {error}");
        Fault::no(StatusCode::BAD_REQUEST, "invalid_request", why)
    })?;
    if sent.context_id.trim().is_empty() {
        let why = "contextId is empty: it names the session, as in `test-form:SESSION`";
        return Err(Fault::no(StatusCode::BAD_REQUEST, "invalid_request", why));
    }
    valid(form, &sent.form_data)?;

    let keyed = keyed.as_ref().map(|Extension(execution)| execution);
    let mut work = forms.db.work(keyed).await?;
    const RECORD: &str = "INSERT INTO form_records (id, form, context_id, data, at) \
        VALUES ($1, $2, $3, $4, $5)";
    const BUSINESS: &str =
        "INSERT INTO business_records (id, record, object_type) VALUES ($1, $2, $3)";
    const RELATION: &str = "INSERT INTO relationships (id, record, business) VALUES ($1, $2, $3)";
    let ids = &forms.ids;
    let (record, relation) = (ids.make("a0B"), ids.make("a0C"));
    let business = ids.make(&form.makes.id_prefix);
    let data = Value::from(sent.form_data).to_string();
    let args = [
        (&record).into(),
        (&form.id).into(),
        (&sent.context_id).into(),
        (&data).into(),
        column(now()).into(),
    ];
    work.run(RECORD, &args).await?;
    let made = &form.makes.object_type;
    let args = [(&business).into(), (&record).into(), made.into()];
    work.run(BUSINESS, &args).await?;
    let args = [(&relation).into(), (&record).into(), (&business).into()];
    work.run(RELATION, &args).await?;
    let said = json!({
        "success": true,
        "recordId": record,
        "businessRecordIds": [{"id": business, "objectType": made}],
        "relationshipIds": [relation],
        "contextId": sent.context_id,
        "message": "Form submitted successfully",
    });
    work.finish(Reply::ok(said).made(&record)).await
}

/// `GET /api/forms/{form}/records`: how many there are, and the newest.
async fn records(State(forms): State<Forms>, Path(id): Path<String>) -> Result<Reply, Fault> {
    const COUNT: &str = "SELECT COUNT(*) FROM form_records WHERE form = $1";
    const NEWEST: &str =
        "SELECT id, data FROM form_records WHERE form = $1 ORDER BY at DESC LIMIT 20";
    let (form, db) = (forms.find(&id)?, &forms.db);
    let count: Vec<(i64,)> = db.all(COUNT, &[(&form.id).into()]).await?;
    let newest: Vec<(String, String)> = db.all(NEWEST, &[(&form.id).into()]).await?;
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

fn valid(form: &Form, data: &Map<String, Value>) -> Result<(), Fault> {
    let wrongs = form.wrongs(data);
    if wrongs.is_empty() {
        return Ok(());
    }
    let text = |wrong: &Value, name: &str| wrong[name].as_str().unwrap_or_default().to_owned();
    let said: Vec<_> = wrongs
        .iter()
        .map(|wrong| format!("`{}` {}", text(wrong, "field"), text(wrong, "message")))
        .collect();
    let status = StatusCode::UNPROCESSABLE_ENTITY;
    let fault = Fault::no(status, "validation_error", said.join("; "));
    Err(fault.with(Value::from(wrongs)))
}
