//! A record as operators see it. Keys are not stored, bodies come only on request, and tokens and
//! credentials never.

use std::time::Duration;

use http::HeaderMap;
use onlyonce_core::operate::StateName;
use onlyonce_core::{OnLapse, Record, Response, Slot, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A record.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RecordView {
    /// Its address, as 64 hex digits.
    pub slot: String,
    /// A harmless start of the key; empty for short keys.
    pub hint: String,
    /// `pending`, `lapsed`, `done`, `failed` or `unknown`.
    pub state: String,
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
    /// How often it was replayed, as far as counted.
    pub replays: u64,
    /// The stored answer, once there is one.
    pub response: Option<ResponseView>,
    /// Where a key was looked for while the slot secret is rotated: the slot of the record of the
    /// same request under the other secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_half: Option<String>,
}

/// A stored answer.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ResponseView {
    /// Its status.
    pub status: u16,
    /// Its headers, in order.
    pub headers: Vec<(String, String)>,
    /// How long the body is.
    pub body_bytes: usize,
    /// The body, if it was asked for and is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The body in base64, if it was asked for and is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// How long the service took, in milliseconds.
    pub took_ms: u64,
    /// The id of what was made, where it was named.
    pub resource: Option<String>,
}

impl RecordView {
    /// The record in `slot`, with its body if asked for.
    pub fn of(slot: &Slot, record: &Record, with_body: bool) -> Self {
        Self {
            slot: slot.to_string(),
            hint: record.meta.hint.to_string(),
            state: StateName::of(record).to_string(),
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
            replays: record.replays,
            response: record
                .response()
                .map(|response| ResponseView::of(response, with_body)),
            other_half: None,
        }
    }

    /// The records of one key, in whatever scopes and under whichever secrets.
    pub fn of_key(found: &[(Slot, Record)]) -> Vec<Self> {
        let view = |(slot, record): &(Slot, Record)| Self {
            other_half: other_half(found, record).map(Slot::to_string),
            ..Self::of(slot, record, false)
        };
        found.iter().map(view).collect()
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

impl ResponseView {
    fn of(response: &Response, with_body: bool) -> Self {
        let (body, body_base64) = match (with_body, std::str::from_utf8(&response.body)) {
            (false, _) => (None, None),
            (true, Ok(text)) => (Some(text.to_owned()), None),
            (true, Err(_)) => {
                use base64::Engine as _;
                let encoded = base64::engine::general_purpose::STANDARD.encode(&response.body);
                (None, Some(encoded))
            }
        };
        Self {
            status: response.status.as_u16(),
            headers: fields(&response.headers),
            body_bytes: response.body.len(),
            body,
            body_base64,
            took_ms: millis(response.took),
            resource: response.resource.clone(),
        }
    }
}

fn fields(headers: &HeaderMap) -> Vec<(String, String)> {
    headers
        .iter()
        .map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.to_string(), value)
        })
        .collect()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
