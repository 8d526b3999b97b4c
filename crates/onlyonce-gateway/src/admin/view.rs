//! A record as operators see it. Keys are not stored, bodies come only on request, and tokens and
//! credentials never. The fields of D4 §6.3 have the names of its example (§15).

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use onlyonce_core::engine::step_of;
use onlyonce_core::operate::{AttemptId, StateName};
use onlyonce_core::{OnLapse, Record, Response, Slot, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// A record.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RecordView {
    /// Its address, as 64 hex digits.
    pub slot: String,
    /// This attempt at that slot: what settles, answers or forgets only this one names it.
    pub attempt_id: String,
    /// A harmless start of the key; empty for short keys.
    pub hint: String,
    /// `pending`, `lapsed`, `done`, `failed` or `unknown`.
    pub state: String,
    /// The same in the words of D4 §6.2: `RUNNING` (also while lapsed), `COMPLETED` or `FAILED`;
    /// absent for `unknown`, which it has no word for.
    pub document_state: Option<String>,
    /// What the request meant: a SHA-256 digest, as 64 hex digits.
    pub fingerprint: String,
    /// The route or job.
    pub operation: String,
    /// Who asked, where that is known.
    pub actor: Option<String>,
    /// The instance that holds or held it.
    pub holder: String,
    /// The trace of the original request.
    pub trace: Option<String>,
    /// 1, or more after a lapse.
    pub attempt: u32,
    /// `rerun` or `hold`.
    pub on_lapse: String,
    /// When the key was first claimed.
    pub created_at: String,
    /// When its answer was stored.
    pub completed_at: Option<String>,
    /// When it is forgotten.
    pub expires_at: String,
    /// How long it is still kept, in seconds.
    pub keep_left_seconds: u64,
    /// How long a running claim is still good for, in seconds.
    pub lease_left_seconds: Option<u64>,
    /// How long the handler took, in milliseconds, once there is an answer.
    pub execution_time_ms: Option<u64>,
    /// How often it was replayed, as far as counted.
    pub replays: u64,
    /// The stored answer, once there is one.
    pub response: Option<ResponseView>,
    /// Where a key was looked for while the slot secret is rotated: the slot of the record of the
    /// same request under the other secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_half: Option<String>,
    /// Its durable steps, in their order, where they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepView>,
}

/// A durable step of an operation: a record of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepView {
    /// Its name; `charge > authorize` for a step of a step.
    pub name: String,
    /// The address of its record, as 64 hex digits.
    pub slot: String,
    /// `pending`, `lapsed`, `done`, `failed` or `unknown`.
    pub state: String,
    /// 1, or more if it was begun again.
    pub attempt: u32,
    /// `rerun` or `hold`.
    pub on_lapse: String,
    /// When it was begun first.
    pub created_at: String,
    /// When its value was stored.
    pub completed_at: Option<String>,
}

/// A stored answer.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ResponseView {
    /// Its status.
    pub status: u16,
    /// Its headers by name.
    pub headers: BTreeMap<String, HeaderView>,
    /// How long the body is.
    pub body_bytes: usize,
    /// The body, if it was asked for and is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The body in base64, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_b64: Option<String>,
    /// The id of what was made, where it was named.
    pub resource: Option<String>,
}

/// The value of a header, or all of them where it was sent more than once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum HeaderView {
    /// One line.
    One(String),
    /// Several lines, in order.
    Several(Vec<String>),
}

impl HeaderView {
    /// Each line's value, in order.
    pub fn lines(&self) -> &[String] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Several(values) => values,
        }
    }
}

impl RecordView {
    /// The record in `slot`, with its body if asked for.
    pub fn of(slot: &Slot, record: &Record, with_body: bool) -> Self {
        Self {
            slot: slot.to_string(),
            attempt_id: AttemptId::of(slot, record).to_string(),
            hint: record.meta.hint.to_string(),
            state: StateName::of(record).to_string(),
            document_state: document_state(StateName::of(record)).map(str::to_owned),
            fingerprint: hex(record.fingerprint.digest()),
            operation: record.meta.operation.to_string(),
            actor: record.meta.actor.as_deref().map(str::to_owned),
            holder: record.meta.holder.to_string(),
            trace: record.meta.trace.as_deref().map(str::to_owned),
            attempt: record.attempt,
            on_lapse: match record.on_lapse {
                OnLapse::Rerun => "rerun",
                OnLapse::Hold => "hold",
            }
            .to_owned(),
            created_at: record.created_at.to_rfc3339(),
            completed_at: record.completed_at.map(|at| at.to_rfc3339()),
            expires_at: record.expires_at.to_rfc3339(),
            keep_left_seconds: record.keep_left.as_secs(),
            lease_left_seconds: match record.state {
                State::Pending { lease_left } => Some(lease_left.as_secs()),
                State::Done(_) | State::Failed(_) | State::Unknown => None,
            },
            execution_time_ms: record.response().map(|response| millis(response.took)),
            replays: record.replays,
            response: record
                .response()
                .map(|response| ResponseView::of(response, with_body)),
            other_half: None,
            steps: Vec::new(),
        }
    }

    /// The same with the records of its steps.
    #[must_use]
    pub fn with_steps(mut self, steps: &[(String, Slot, Record)]) -> Self {
        self.steps = steps.iter().map(StepView::of).collect();
        self
    }

    /// The records of one key, in whatever scopes and under whichever secrets, without those of its
    /// steps.
    pub fn of_key(found: &[(Slot, Record)]) -> Vec<Self> {
        let view = |(slot, record): &(Slot, Record)| Self {
            other_half: other_half(found, record).map(Slot::to_string),
            ..Self::of(slot, record, false)
        };
        let is_step = |(slot, record): &&(Slot, Record)| {
            let operation = &record.meta.operation;
            let mut parents = found.iter();
            parents.any(|(parent, _)| step_of(parent, slot, operation).is_some())
        };
        found.iter().filter(|it| !is_step(it)).map(view).collect()
    }
}

impl StepView {
    fn of((name, slot, record): &(String, Slot, Record)) -> Self {
        let RecordView {
            state,
            attempt,
            on_lapse,
            created_at,
            completed_at,
            slot,
            ..
        } = RecordView::of(slot, record, false);
        let name = name.clone();
        Self {
            name,
            slot,
            state,
            attempt,
            on_lapse,
            created_at,
            completed_at,
        }
    }
}

/// Scopes are not stored: a half is one of a pair only if nothing else could be.
fn other_half<'a>(found: &'a [(Slot, Record)], of: &Record) -> Option<&'a Slot> {
    let alike = found.iter().filter(|(_, it)| {
        it.fingerprint == of.fingerprint
            && (&it.meta.operation, &it.meta.actor) == (&of.meta.operation, &of.meta.actor)
    });
    // The hint of one key differs only by the secret.
    let (own, others): (Vec<_>, Vec<_>) = alike.partition(|(_, it)| it.meta.hint == of.meta.hint);
    match (&own[..], &others[..]) {
        ([_], [(slot, _)]) => Some(slot),
        _ => None,
    }
}

/// D4 §6.2 has no `NEW` record, and no word for an outcome that is unknown.
const fn document_state(state: StateName) -> Option<&'static str> {
    match state {
        StateName::Pending | StateName::Lapsed => Some("RUNNING"),
        StateName::Done => Some("COMPLETED"),
        StateName::Failed => Some("FAILED"),
        StateName::Unknown => None,
    }
}

impl ResponseView {
    fn of(response: &Response, with_body: bool) -> Self {
        let body = with_body.then_some(&response.body);
        let text = body.and_then(|body| std::str::from_utf8(body).ok());
        Self {
            status: response.status.as_u16(),
            headers: fields(&response.headers),
            body_bytes: response.body.len(),
            body: text.map(str::to_owned),
            body_b64: body.map(|body| STANDARD.encode(body)),
            resource: response.resource.clone(),
        }
    }
}

fn fields(headers: &HeaderMap) -> BTreeMap<String, HeaderView> {
    let value = |name| {
        let mut values: Vec<String> = headers
            .get_all(name)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .collect();
        match values.len() {
            1 => HeaderView::One(values.remove(0)),
            _ => HeaderView::Several(values),
        }
    };
    headers
        .keys()
        .map(|name| (name.to_string(), value(name)))
        .collect()
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
