//! The profile table of the requirements, cell by cell: what each document promises its callers,
//! written down here once more as data and held against the layer.

use onlyonce_core::Profile;
use serde_json::{Value, json};

use crate::support::Answer;

mod bodies;
mod conflicts;
mod failures;
mod keys;
mod methods;
mod replays;
mod running;
mod scopes;
mod stored;
mod table;
mod times;
mod ttl;

use self::table::CONTRACTS;

/// One column of the table.
struct Contract {
    profile: Profile,
    envelope: Envelope,
    /// Methods that replay under a key.
    covered: &'static [&'static str],
    /// Of these, the ones that are refused without a key.
    key_required: &'static [&'static str],
    /// The longest key; nothing where only UUIDs are taken.
    key_bytes_max: Option<usize>,
    charset: Charset,
    replay_status: ReplayStatus,
    replay_marks: &'static [Mark],
    first_marks: &'static [Mark],
    /// Statuses of the handler that are not stored.
    not_stored: &'static [u16],
    panics_stored: bool,
    /// The header that asks for another retention, and how many of its unit make a second.
    ttl: Option<(&'static str, u64)>,
    /// How long an answer is kept.
    kept_days: u32,
    route_in_scope: bool,
    /// Whether the segment after `intakes` addresses a record.
    intake_in_scope: bool,
    echoes_key_on_refusal: bool,
    /// Whether `Repeatability-Result` says that a refusal is one, and that a running duplicate is not.
    tells_result: bool,
    missing_key: Refused,
    bad_key: Refused,
    bad_ttl: Refused,
    mismatch: OtherPayload,
    /// Another method or path under a key of the same scope.
    other_operation: Refused,
    waits: bool,
    in_progress: Refused,
    too_many_waiters: Refused,
    outcome_unknown: Refused,
    store_down: StoreDown,
    request_too_large: Refused,
    response_too_large: Refused,
    panicked: Refused,
    timed_out: Refused,
}

/// The shape of an error's body.
#[derive(Clone, Copy)]
enum Envelope {
    Problem,
    OkError,
    SuccessError,
    CodeError,
    TypeError,
    FlatError,
    ErrorList,
    NamedError,
    StatusError,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Charset {
    UrlSafe,
    Visible,
    Text,
    UuidV4,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReplayStatus {
    AsStored,
    Ok,
}

#[derive(Clone, Copy)]
enum Mark {
    /// This header says `true`.
    Flag(&'static str),
    /// This header says this.
    Text(&'static str, &'static str),
    /// `Idempotency-Key` is the key as it was sent.
    Key,
    /// This header says when the record expires.
    Expires(&'static str),
    /// `X-Original-Request-Time` says when the first request came.
    OriginalTime,
}

#[derive(Clone, Copy)]
enum OtherPayload {
    Refused(Refused),
    Replayed,
}

#[derive(Clone, Copy)]
enum StoreDown {
    Refused(Refused),
    Runs,
}

/// A refusal as it looks.
#[derive(Clone, Copy)]
struct Refused {
    status: u16,
    code: &'static str,
    /// The kind of error, in the shapes that have one.
    kind: &'static str,
    retryable: bool,
    /// Seconds.
    retry_after: Option<u64>,
}

impl Refused {
    const fn no(status: u16, code: &'static str) -> Self {
        Self {
            status,
            code,
            kind: "",
            retryable: false,
            retry_after: None,
        }
    }

    const fn later(status: u16, code: &'static str) -> Self {
        Self {
            status,
            code,
            kind: "",
            retryable: true,
            retry_after: Some(5),
        }
    }

    const fn after(seconds: u64, status: u16, code: &'static str) -> Self {
        Self {
            status,
            code,
            kind: "",
            retryable: true,
            retry_after: Some(seconds),
        }
    }
}

impl Refused {
    const fn of(mut self, kind: &'static str) -> Self {
        self.kind = kind;
        self
    }
}

impl Contract {
    /// Asserts that `answer` is this refusal, and carries no marks but the key where the document
    /// says so.
    fn assert_refused(&self, answer: &Answer, expected: Refused) {
        let profile = self.profile;
        self.assert_worded(answer, expected);
        let mut marks = answer.marks();
        if self.echoes_key_on_refusal {
            marks.remove("idempotency-key");
        }
        if self.tells_result {
            let is_running = expected.code == self.in_progress.code;
            let told = if is_running { "accepted" } else { "rejected" };
            assert_eq!(marks.remove("repeatability-result").as_deref(), Some(told));
        }
        assert!(marks.is_empty(), "{profile}: {marks:?}");
    }

    /// Asserts that `answer` says this in the profile's envelope, and says nothing else.
    fn assert_worded(&self, answer: &Answer, expected: Refused) {
        let profile = self.profile;
        let Refused {
            status,
            code,
            kind,
            retryable,
            retry_after,
        } = expected;
        assert_eq!(answer.status, status, "{profile}: {}", answer.text());
        let seconds = retry_after.map(|seconds| seconds.to_string());
        assert_eq!(
            answer.header("retry-after"),
            seconds.as_deref(),
            "{profile}"
        );

        let body = answer.json();
        let (media_type, message, expected) = match self.envelope {
            Envelope::Problem => {
                assert!(body["title"].is_string(), "{profile}: {body}");
                let mut problem = json!({
                    "type": format!("urn:onlyonce:problem:{code}"),
                    "title": body["title"],
                    "status": status,
                    "detail": body["detail"],
                    "retryable": retryable,
                });
                if let Some(seconds) = retry_after {
                    problem["retryAfter"] = seconds.into();
                }
                ("application/problem+json", &body["detail"], problem)
            }
            Envelope::OkError => {
                let message = &body["error"]["message"];
                let mut error = json!({"type": code, "message": message, "retryable": retryable});
                if let Some(seconds) = retry_after {
                    error["retryAfterMs"] = (seconds * 1000).into();
                }
                (
                    "application/json",
                    message,
                    json!({"ok": false, "error": error}),
                )
            }
            Envelope::SuccessError => {
                let message = &body["error"]["message"];
                let error = json!({"code": code, "message": message, "retryable": retryable});
                let body = json!({"success": false, "error": error});
                ("application/json", message, body)
            }
            Envelope::CodeError => {
                let message = &body["error"]["message"];
                let body = json!({"error": {"code": code, "message": message}});
                ("application/json", message, body)
            }
            Envelope::TypeError => {
                let message = &body["error"]["message"];
                let body = json!({"error": {"type": code, "message": message}});
                ("application/json", message, body)
            }
            Envelope::FlatError => {
                let message = &body["message"];
                let body = json!({"type": kind, "code": code, "message": message});
                ("application/json", message, body)
            }
            Envelope::ErrorList => {
                let message = &body["errors"][0]["detail"];
                let error = json!({"category": kind, "code": code, "detail": message});
                ("application/json", message, json!({"errors": [error]}))
            }
            Envelope::NamedError => {
                let message = &body["details"][0]["description"];
                let details = json!([{"issue": code, "description": message}]);
                assert!(body["message"].is_string(), "{profile}: {body}");
                let body = json!({"name": kind, "message": body["message"], "details": details});
                ("application/json", message, body)
            }
            Envelope::StatusError => {
                let message = &body["error"]["message"];
                let error = json!({"code": status, "message": message, "status": code});
                ("application/json", message, json!({"error": error}))
            }
        };
        assert_eq!(answer.header("content-type"), Some(media_type), "{profile}");
        assert!(
            matches!(message, Value::String(text) if !text.is_empty()),
            "{profile}: {body}"
        );
        assert_eq!(body, expected, "{profile}");
    }
}

#[test]
fn the_table_has_every_profile_once() {
    let profiles = CONTRACTS.each_ref().map(|contract| contract.profile);

    assert_eq!(profiles, Profile::ALL);
}
