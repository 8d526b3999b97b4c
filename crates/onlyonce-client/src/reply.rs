//! What a service's answer means. Every profile's refusals are told apart by the tables that the
//! service words them with; anybody else's answers by status and the usual headers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, StatusCode};
use onlyonce_core::policy::Mark;
use onlyonce_core::refusal::MAY_HAVE_TAKEN_EFFECT;
use onlyonce_core::{Reason, Timestamp, profile};
use serde_json::Value;

use crate::cause::{Cause, Failure};

#[cfg(test)]
mod tests;

/// A larger error body is not looked into.
const ERROR_BYTES_MAX: usize = 64 * 1024;
const DETAIL_CHARS_MAX: usize = 300;
const URN: &str = "urn:onlyonce:problem:";

/// What came back over the wire.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, as far as it was read.
    pub body: Bytes,
    /// Whether that is all of it.
    pub is_whole: bool,
    /// Whether the transport followed a redirect, so that this is the answer to another request. It
    /// then says nothing about the operation.
    pub was_redirected: bool,
}

impl Reply {
    /// A whole reply.
    pub fn new(status: StatusCode, headers: HeaderMap, body: Bytes) -> Self {
        Self {
            status,
            headers,
            body,
            is_whole: true,
            was_redirected: false,
        }
    }

    /// Whether this is the kept answer of an earlier attempt, where the service says so.
    pub fn is_replayed(&self) -> bool {
        let marked = |name: &HeaderName| {
            let value = self.headers.get(name);
            value.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"))
        };
        SPOKEN.flags.iter().any(marked) || self.is_marked_in_body()
    }

    fn is_marked_in_body(&self) -> bool {
        let marked = |body: &Value| {
            let mut fields = SPOKEN.fields.iter();
            fields.any(|field| body.get(field) == Some(&Value::Bool(true)))
        };
        self.json().is_some_and(|body| marked(&body))
    }

    fn json(&self) -> Option<Value> {
        if self.body.len() > ERROR_BYTES_MAX || !self.is_whole {
            return None;
        }
        serde_json::from_slice(&self.body).ok()
    }

    pub(crate) fn is_json(&self) -> bool {
        self.json().is_some()
    }

    /// Whether a status of success says that the operation still runs: services may refuse a
    /// duplicate with 202.
    pub(crate) fn says_in_progress(&self) -> bool {
        self.headers.contains_key(RETRY_AFTER) && Said::read(self).is_in_progress()
    }

    /// What went wrong, when it is no success.
    pub(crate) fn into_failure(self, now: Timestamp) -> Failure {
        let said = Said::read(&self);
        let retry_after = retry_after(&self.headers, now).or(said.retry_after);
        let cause = self.cause(&said, retry_after.is_some());
        let status = self.status;
        let detail = match &said.message {
            Some(message) => format!("{status}: {}", cut(message)),
            None => status.to_string(),
        };
        let speaks_of_earlier = |message: &String| message.contains(MAY_HAVE_TAKEN_EFFECT);
        Failure {
            retry_after,
            is_earlier_open: said.message.as_ref().is_some_and(speaks_of_earlier),
            reply: Some(Box::new(self)),
            ..Failure::new(cause, detail)
        }
    }

    fn cause(&self, said: &Said, asks_to_wait: bool) -> Cause {
        if let Some(cause) = said.refusal(self.status) {
            return cause;
        }
        if asks_to_wait && said.is_in_progress() {
            return Cause::InProgress;
        }
        match (self.status.as_u16(), said.retryable) {
            (202, _) => Cause::InProgress,
            (401 | 407, _) => Cause::Unauthorised,
            (413, _) => Cause::RequestTooLarge,
            (409, _) if asks_to_wait => Cause::InProgress,
            (408 | 425 | 429 | 502..=504, None) | (_, Some(true)) => Cause::Unavailable,
            (500.., Some(false)) => Cause::FailedForGood,
            (500.., None) if self.is_replayed() => Cause::FailedForGood,
            (500.., None) => Cause::Failed,
            (_, None | Some(false)) => Cause::Rejected,
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.status, self.body.len())
    }
}

/// What the body of an error says.
#[derive(Default)]
struct Said {
    /// Its type or code, as far as it has any.
    codes: Vec<String>,
    message: Option<String>,
    retryable: Option<bool>,
    retry_after: Option<Duration>,
}

impl Said {
    /// Reads the envelopes there are: problem+json, and an `error` object, a list of `errors` or a
    /// bare object with a code, a type, a status or details with an issue.
    fn read(reply: &Reply) -> Self {
        let Some(body) = reply.json() else {
            return Self::default();
        };
        let first = |name: &str| body.get(name).and_then(|list| list.get(0));
        let error = match body.get("error").or_else(|| first("errors")) {
            Some(error @ Value::Object(_)) => error,
            _ => &body,
        };
        let text = |name: &str| error.get(name).and_then(Value::as_str).map(str::to_owned);
        let number = |name: &str| error.get(name).and_then(Value::as_u64);
        let detailed = |name: &str| first("details")?.get(name)?.as_str().map(str::to_owned);
        let codes = [
            text("code"),
            text("type"),
            text("status"),
            detailed("issue"),
        ];
        let codes = codes.into_iter().flatten();
        Self {
            codes: codes.map(|code| bare(&code).to_owned()).collect(),
            message: detailed("description")
                .or_else(|| text("message"))
                .or_else(|| text("detail")),
            retryable: error.get("retryable").and_then(Value::as_bool),
            retry_after: number("retryAfterMs")
                .map(Duration::from_millis)
                .or_else(|| number("retryAfter").map(Duration::from_secs)),
        }
    }

    /// Whether it says that the same operation still runs, whatever its status: that is a setting of
    /// the service.
    fn is_in_progress(&self) -> bool {
        let mut codes = self.codes.iter();
        codes.any(|code| SPOKEN.in_progress.contains(code.as_str()))
    }

    /// What it means, if it is a refusal that some profile words like this.
    fn refusal(&self, status: StatusCode) -> Option<Cause> {
        let mut found = self.codes.iter();
        let rows =
            found.find_map(|code| SPOKEN.refusals.get(code.as_str())?.get(&status.as_u16()))?;
        // Several reasons may share a code. Their words differ.
        let message = self.message.as_deref().unwrap_or_default();
        let told = rows
            .iter()
            .find(|row| message.starts_with(row.reason.explanation()));
        if let Some(row) = told {
            return Some(row.reason.into());
        }
        let causes: BTreeSet<Cause> = rows.iter().map(|row| row.reason.into()).collect();
        let vague = if causes.len() == 1 {
            *causes.first()?
        } else if causes.contains(&Cause::Conflict) && !rows.iter().any(|row| row.retryable) {
            Cause::Conflict
        } else if causes.contains(&Cause::InProgress) && status == StatusCode::CONFLICT {
            Cause::InProgress
        } else if rows.iter().any(|row| row.retryable) {
            Cause::Unavailable
        } else {
            // Such as a bare "invalid request": the status says the rest.
            return None;
        };
        Some(vague)
    }
}

/// A problem's type is a URI; ours end in the code.
fn bare(code: &str) -> &str {
    code.strip_prefix(URN).unwrap_or(code)
}

fn cut(message: &str) -> String {
    message
        .chars()
        .filter(|c| !c.is_control())
        .take(DETAIL_CHARS_MAX)
        .collect()
}

/// How services speak: the policies of all profiles, turned round.
static SPOKEN: LazyLock<Spoken> = LazyLock::new(Spoken::gather);

struct Spoken {
    refusals: BTreeMap<String, BTreeMap<u16, BTreeSet<Row>>>,
    /// Codes that mean "still running" and nothing else.
    in_progress: BTreeSet<String>,
    /// Headers and body members that mark a replay.
    flags: Vec<HeaderName>,
    fields: BTreeSet<String>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    reason: Reason,
    retryable: bool,
}

impl Spoken {
    fn gather() -> Self {
        let mut spoken = Self {
            refusals: BTreeMap::new(),
            in_progress: BTreeSet::new(),
            flags: Vec::new(),
            fields: BTreeSet::new(),
        };
        for http in profile::all().map(|profile| profile.policy().http) {
            for reason in Reason::ALL {
                let row = http.refusals.row(reason);
                let of_code = spoken.refusals.entry(row.code.clone()).or_default();
                let same = of_code.entry(row.status).or_default();
                same.insert(Row {
                    reason,
                    retryable: row.retryable,
                });
            }
            for mark in http.replay_marks {
                match mark {
                    Mark::Flag(name) if !spoken.flags.contains(&name) => spoken.flags.push(name),
                    Mark::Flag(_)
                    | Mark::Text(..)
                    | Mark::Key(_)
                    | Mark::Expires(_)
                    | Mark::OriginalTime(_) => {}
                }
            }
            spoken
                .fields
                .extend(http.body_marks.map(|marks| marks.flag));
        }
        let mean_in_progress = |rows: &BTreeMap<u16, BTreeSet<Row>>| {
            let mut rows = rows.values().flatten();
            rows.all(|row| Cause::from(row.reason) == Cause::InProgress)
        };
        let codes = spoken.refusals.iter();
        spoken.in_progress = codes
            .filter(|(_, rows)| mean_in_progress(rows))
            .map(|(code, _)| code.clone())
            .collect();
        spoken
    }
}

/// `Retry-After`, in seconds or as a date. A date counts from the service's own `Date`, so that it
/// does not matter how wrong our clock is.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(text).ok()?;
    let date = headers.get(DATE).and_then(|date| date.to_str().ok());
    let from = date
        .and_then(|date| httpdate::parse_http_date(date).ok())
        .unwrap_or(std::time::UNIX_EPOCH + Duration::from_millis(now.as_millis()));
    Some(until.duration_since(from).unwrap_or_default())
}
