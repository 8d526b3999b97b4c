//! What a program can ask the daemon, over its socket or loopback HTTP: the same as on the command line,
//! in JSON. Credentials are taken and never shown.

use axum::extract::{DefaultBodyLimit, Path, RawQuery, State};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use onlyonce_client::{
    Entries, GroupId, Keys, OperationId, Queue, QueueError, State as EntryState,
};
use serde_json::{Value, json};

use super::CommandError;
use super::guard::{Guard, admitted};
use super::look::{as_json, group_state};
use super::wanted::{self, Wanted, WantedGroup, wrong};

/// A body of the largest request, written as JSON.
const REQUEST_BYTES_MAX: usize = 8 * 1024 * 1024;

pub(super) fn router(queue: Queue, guard: Guard) -> Router {
    Router::new()
        .route("/", get(stats))
        .route("/requests", get(list).post(add))
        .route("/requests/{id}", get(show).put(edit).delete(discard))
        .route("/requests/{id}/retry", post(retry))
        .route("/groups", post(add_group))
        .route("/groups/{id}", get(show_group))
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .layer(from_fn_with_state(guard, admitted))
        .with_state(queue)
}

type Answer = Result<Response, Refused>;

async fn stats(State(queue): State<Queue>) -> Answer {
    let stats = queue.stats().await?;
    let told = json!({
        "done": stats.done,
        "failed": stats.failed,
        "spare": stats.spare,
        "waiting": stats.waiting,
    });
    Ok(Json(told).into_response())
}

async fn add(State(queue): State<Queue>, Json(wanted): Json<Wanted>) -> Answer {
    let key = match &wanted.key {
        Some(key) => wanted::key(key)?,
        None => Keys::default().v4(),
    };
    let queued = queue.enqueue_as(&key, wanted.operation()?).await?;
    let told = json!({"id": queued.id.number(), "key": key.expose(), "new": queued.is_new});
    let status = if queued.is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, Json(told)).into_response())
}

async fn add_group(State(queue): State<Queue>, Json(wanted): Json<WantedGroup>) -> Answer {
    let group = queue.enqueue_group(wanted.group()?).await?;
    let told = json!({"group": group.number()});
    Ok((StatusCode::CREATED, Json(told)).into_response())
}

async fn show_group(State(queue): State<Queue>, Path(id): Path<i64>) -> Answer {
    let id = GroupId::from_number(id);
    let status = queue.group(id).await?.ok_or(QueueError::NotThere)?;
    let wanted = Entries {
        group: Some(id),
        ..Entries::default()
    };
    let entries = queue.entries(wanted).await?;
    let parts: Vec<_> = entries.iter().map(|it| as_json(it, false, false)).collect();
    let told = json!({"group": id.number(), "state": group_state(status), "requests": parts});
    Ok(Json(told).into_response())
}

/// `?state=failed&after=17&limit=100`.
async fn list(State(queue): State<Queue>, RawQuery(query): RawQuery) -> Answer {
    let entries = queue.entries(asked(&query.unwrap_or_default())?).await?;
    let told: Vec<_> = entries.iter().map(|it| as_json(it, false, false)).collect();
    Ok(Json(told).into_response())
}

fn asked(query: &str) -> Result<Entries, CommandError> {
    const STATES: [EntryState; 4] = [
        EntryState::Waiting,
        EntryState::Spare,
        EntryState::Failed,
        EntryState::Done,
    ];
    let mut wanted = Entries::default();
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let number = || {
            let number = value.parse::<u32>();
            number.map_err(|_| wrong(&format!("`{name}` is a number")))
        };
        match &*name {
            "state" => {
                let named = STATES.into_iter().find(|state| state.name() == value);
                let unknown = "`state` is waiting, spare, failed or done";
                wanted.state = Some(named.ok_or_else(|| wrong(unknown))?);
            }
            "after" => wanted.after = Some(OperationId::from_number(number()?.into())),
            "limit" => wanted.limit = number()?,
            _ => return Err(wrong("a list takes `state`, `after` and `limit`")),
        }
    }
    Ok(wanted)
}

async fn show(State(queue): State<Queue>, Path(id): Path<i64>) -> Answer {
    let entry = queue.entry(OperationId::from_number(id)).await?;
    let entry = entry.ok_or(QueueError::NotThere)?;
    Ok(Json(as_json(&entry, false, true)).into_response())
}

async fn edit(State(queue): State<Queue>, Path(id): Path<i64>, Json(new): Json<Wanted>) -> Answer {
    if new.key.is_some() {
        return Err(wrong("an edited request gets a new key of its own: leave `key` out").into());
    }
    let id = OperationId::from_number(id);
    let edited = queue.edit(id, new.operation()?).await?;
    let told = json!({
        "id": id.number(),
        "key": edited.key.expose(),
        "may_have_run": edited.may_have_run,
    });
    Ok(Json(told).into_response())
}

async fn retry(State(queue): State<Queue>, Path(id): Path<i64>) -> Answer {
    queue.retry(OperationId::from_number(id)).await?;
    Ok(Json(json!({"id": id})).into_response())
}

async fn discard(State(queue): State<Queue>, Path(id): Path<i64>) -> Answer {
    let may_have_run = queue.discard(OperationId::from_number(id)).await?;
    Ok(Json(json!({"id": id, "may_have_run": may_have_run})).into_response())
}

/// Why it was not done.
struct Refused(CommandError);

impl<E: Into<CommandError>> From<E> for Refused {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = match &self.0 {
            CommandError::Queue(error) => match error {
                QueueError::NotThere => StatusCode::NOT_FOUND,
                QueueError::KeyInUse | QueueError::InGroup => StatusCode::CONFLICT,
                QueueError::KeyNotSendable(_) | QueueError::EmptyGroup => {
                    StatusCode::UNPROCESSABLE_ENTITY
                }
                QueueError::Full { .. } => StatusCode::INSUFFICIENT_STORAGE,
                QueueError::Folder { .. }
                | QueueError::InUse { .. }
                | QueueError::Sending { .. }
                | QueueError::Replaced { .. }
                | QueueError::Stopped
                | QueueError::Database(_)
                | QueueError::Version(_)
                | QueueError::Damaged { .. }
                | _ => StatusCode::INTERNAL_SERVER_ERROR,
            },
            CommandError::Operation(_) | CommandError::Wrong(_) => StatusCode::UNPROCESSABLE_ENTITY,
            CommandError::Io { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        };
        problem(status, &self.0.to_string()).into_response()
    }
}

pub(super) fn problem(status: StatusCode, why: &str) -> (StatusCode, Json<Value>) {
    let told =
        json!({"title": status.canonical_reason(), "status": status.as_u16(), "detail": why});
    (status, Json(told))
}
