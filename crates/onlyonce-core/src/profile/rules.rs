//! The schema of a contract: what a profile's file may say, and a gateway's `[rules]` too. Every
//! value is optional here, because a contract says only how it differs from its base.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::units::{
    Body, Charset, ErrorBody, FirstIn, Header, KeyNeeds, Lapse, Maybe, MethodList, NumbersAs,
    ReasonName, ReplayAs, StatusCode, StatusPath, StoreIs, Unit, written_as_text,
};
use crate::bounds::{Count, DAY, GIBIBYTE, SECOND, Span};
use crate::policy::{ActorType, KeyTime, Mark, Pointer, ScopePart};

/// How long an answer may be kept.
pub type Retention = Span<SECOND, { 3650 * DAY }>;
/// How long something may be waited for.
pub type Timeout = Span<10, DAY>;

/// Rules of a contract. What is not given is as in its base.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// The profile whose rules hold where this one says nothing. Default `standard`. Only for a
    /// profile.
    pub base: Option<String>,
    /// What the contract is for, in one line. Only for a profile.
    pub about: Option<String>,
    /// Covered methods: `unsafe` for all that are not safe, or a list like `["POST", "GET"]`. All
    /// others pass through.
    pub methods: Option<MethodList>,
    /// Whether covered requests need a key: `optional`, `required`, or a list of the methods that
    /// need one. Without one they pass through, unprotected.
    pub key: Option<KeyNeeds>,
    /// The header that carries the key.
    pub key_header: Option<Header>,
    /// Where else the key may be: a place in a JSON body, as a JSON Pointer like `/order/key` or the
    /// name of a top-level member. A body that may hold the key is refused (415) if it has a
    /// `Content-Encoding`.
    pub key_member: Option<Maybe<Pointer>>,
    /// Which key counts if one is in the header and another one in the body: `header` or `body`.
    pub key_first: Option<FirstIn>,
    /// How keys say when they were made, as in `{ from = "uuid-v7", ahead_max = "5m" }`. One that is
    /// older than `ttl` less `ahead_max` is refused instead of run again, and so is one from the future
    /// by more than `ahead_max`. It cannot go with a `ttl_header`.
    pub key_time: Option<Maybe<KeyTimes>>,
    /// The longest key, in bytes.
    pub key_bytes_max: Option<Count<1, 65_536>>,
    /// What a key may be made of.
    pub key_charset: Option<Charset>,
    /// Whether keys should be random: one that looks like less than 120 bits is reported.
    pub key_random: Option<bool>,
    /// What replaces a missing key: a digest of a JSON body's context and data.
    pub derive: Option<Maybe<Derive>>,
    /// Where a client asks what has become of its key: with `"/status"`, `GET /status/orders` and the
    /// same key, host and credentials say `running`, `done`, `in-doubt` or `unknown` of an operation
    /// at `/orders`, and run nothing. `Prefer: wait=N` waits while it runs, at most `wait`. Where routes
    /// differ by method alone, each of them is asked.
    pub status_path: Option<Maybe<StatusPath>>,
    /// Whose record it is: `route`, `caller`, `path:NAME`, `path-after:SEGMENT`, `header:NAME`,
    /// `trusted-header:NAME`, `user-header:NAME`, `cookie:NAME`, `body:MEMBER`, `jwt:CLAIM`; and always the host.
    pub scope: Option<Vec<ScopePart>>,
    /// What type of actor a caller is in log and audit: one of `agent`, `human`, `user`, `service`,
    /// `system` and `anonymous` for all, `header:NAME` for a header that something in front sets, or
    /// `jwt:CLAIM` for a claim of a verified token. With `none` an actor's name may begin with its type
    /// and a colon.
    pub actor_type: Option<Maybe<ActorType>>,
    /// How long an answer is kept.
    pub ttl: Option<Retention>,
    /// A header by which a request may ask for another retention.
    pub ttl_header: Option<Maybe<TtlHeader>>,
    /// How long a claim outlives a process that died. Renewed while it lives.
    pub lease: Option<Span<100, DAY>>,
    /// How long the handler may take: the upstream, in a gateway.
    pub execution_max: Option<Timeout>,
    /// How long a duplicate waits for the original; `0s` refuses it at once.
    pub wait: Option<Span<0, DAY>>,
    /// When to tell a caller to try again.
    pub retry_after: Option<Span<SECOND, DAY>>,
    /// What follows when a process dies, or loses its upstream, in the middle of a request.
    pub on_lapse: Option<Lapse>,
    /// What happens when the store does not answer.
    pub store_down: Option<StoreIs>,
    /// Duplicates that may wait for a key held by another process.
    pub waiters_max: Option<Count<0, 1_000_000>>,
    /// Duplicates that may wait for a key held by this process.
    pub local_waiters_max: Option<Count<0, 1_000_000>>,
    /// The largest keyed request body, in bytes.
    pub request_bytes_max: Option<Count<1, GIBIBYTE>>,
    /// The largest response body that is stored, in bytes.
    pub response_bytes_max: Option<Count<1, GIBIBYTE>>,
    /// The most headers and trailers of a response that are stored, in bytes.
    pub header_bytes_max: Option<Count<1, GIBIBYTE>>,
    /// The status of a replay: `as-stored`, or `ok` for 200 in place of any 2xx but 204.
    pub replay_status: Option<ReplayAs>,
    /// Headers of a replay, like `"idempotent-replayed: true"`; a value may be `{key}`, `{expires}`
    /// or `{original-time}`.
    pub replay_marks: Option<Vec<Mark>>,
    /// Headers of the first answer, written in the same way.
    pub first_marks: Option<Vec<Mark>>,
    /// Headers of a refusal, written in the same way.
    pub refusal_marks: Option<Vec<Mark>>,
    /// JSON members put into a replayed JSON object.
    pub body_marks: Option<Maybe<BodyMembers>>,
    /// Response headers that are not stored, besides those that never are (`Date`, `Connection`, …).
    pub drop_headers: Option<Vec<Header>>,
    /// A response header by which the handler keeps its answer from being stored.
    pub opt_out_header: Option<Header>,
    /// The body of a refusal.
    pub error_body: Option<ErrorBody>,
    /// What makes two requests the same.
    #[serde(default)]
    pub fingerprint: Fingerprint,
    /// Which answers are stored.
    #[serde(default)]
    pub stored: Stored,
    /// How each refusal is answered, by its name: `[rules.refusals]` with
    /// `in-progress = { status = 202 }`.
    #[serde(default)]
    pub refusals: BTreeMap<ReasonName, Refused>,
}

/// What makes two requests the same: another one under the same key is refused.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    /// Whether the method counts.
    pub method: Option<bool>,
    /// Whether the path counts.
    pub path: Option<bool>,
    /// Whether the query counts, in whatever order.
    pub query: Option<bool>,
    /// Whether `Content-Type` counts, and `Content-Encoding` other than `identity`.
    pub content_type: Option<bool>,
    /// Headers of which every line counts.
    pub headers: Option<Vec<Header>>,
    /// How the body counts: by meaning for JSON, forms and multipart, by bytes, or not at all. One with a
    /// `Content-Encoding` counts by its bytes, as sent, all of them.
    pub body: Option<Body>,
    /// What of a JSON body counts, as JSON Pointers; all of it if there are none. Goes with
    /// `canonical`.
    pub only: Option<Vec<Pointer>>,
    /// What of a JSON body does not count, in the same way.
    pub except: Option<Vec<Pointer>>,
    /// How the numbers of a JSON body count: `digits`, by which `1.0` is not `1`, or `value`, by which
    /// it is.
    pub numbers: Option<NumbersAs>,
}

/// Which answers are stored. What is not stored runs again, unless `on_lapse` is `hold` and it is
/// not in `except`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Stored {
    /// The lowest status stored.
    pub from: Option<Count<100, 999>>,
    /// The first status above those stored.
    pub below: Option<Count<101, 1000>>,
    /// Statuses between them that are not stored: those from before the handler began.
    pub except: Option<Vec<StatusCode>>,
}

/// How one refusal is answered.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Refused {
    /// Its status: from 400 to 599, and 202 for `in-progress`.
    pub status: Option<Count<202, 599>>,
    /// Its type or code in the error's body.
    pub code: Option<String>,
    /// The kind of error that it is, in the bodies that tell the two apart.
    pub kind: Option<String>,
    /// Its headers, where they differ from `refusal_marks`.
    pub marks: Option<Vec<Mark>>,
    /// Whether repeating the same request can help.
    pub retryable: Option<bool>,
    /// When to try again, where that differs from the contract's.
    pub retry_after: Option<Span<SECOND, DAY>>,
}

/// A header by which a request may ask for another retention.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TtlHeader {
    /// The header.
    pub name: Header,
    /// The unit of its number.
    pub unit: Unit,
    /// Less is raised to this.
    pub min: Retention,
    /// More is cut to this.
    pub max: Retention,
}

/// How keys say when they were made.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct KeyTimes {
    /// Where the time is: `uuid-v7` for a key that is such a UUID, or `header:NAME` for an HTTP date
    /// beside the key.
    pub from: KeyTime,
    /// How far a client's clock may be ahead.
    pub ahead_max: Span<0, DAY>,
}

/// A key made from a JSON body: a digest of a context value and the form's data.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Derive {
    /// The member that names the session.
    pub context: String,
    /// The member that holds the data.
    pub data: String,
    /// Whether white space around text values is ignored.
    pub trim: bool,
}

/// JSON members put into a replayed JSON object.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BodyMembers {
    /// The member that becomes `true`.
    pub flag: String,
    /// The member that becomes the time of the original submission.
    pub submitted_at: String,
    /// The member that becomes `text`.
    pub message: String,
    /// What it says.
    pub text: String,
}

written_as_text! {
    ActorType: "type of actor"
    KeyTime: "place of a key's time"
    Mark: "mark"
    Pointer: "JSON Pointer"
    ScopePart: "scope part"
}

impl Rules {
    /// These rules, and those of `base` where these say nothing. A table is merged member by member,
    /// a list is replaced.
    #[must_use]
    pub fn over(self, base: Self) -> Self {
        macro_rules! merged {
            ($($field:ident)+; $($whole:ident = $value:expr),+) => {
                Self { $($field: self.$field.or(base.$field),)+ $($whole: $value,)+ }
            };
        }
        merged! {
            base about methods key key_header key_member key_first key_time key_bytes_max key_charset key_random derive status_path
            scope actor_type ttl ttl_header lease execution_max wait retry_after on_lapse store_down
            waiters_max local_waiters_max request_bytes_max response_bytes_max header_bytes_max
            replay_status replay_marks first_marks refusal_marks body_marks drop_headers
            opt_out_header error_body;
            fingerprint = self.fingerprint.over(base.fingerprint),
            stored = self.stored.over(base.stored),
            refusals = refusals_over(self.refusals, base.refusals)
        }
    }
}

impl Fingerprint {
    fn over(self, base: Self) -> Self {
        Self {
            method: self.method.or(base.method),
            path: self.path.or(base.path),
            query: self.query.or(base.query),
            content_type: self.content_type.or(base.content_type),
            headers: self.headers.or(base.headers),
            body: self.body.or(base.body),
            only: self.only.or(base.only),
            except: self.except.or(base.except),
            numbers: self.numbers.or(base.numbers),
        }
    }
}

impl Stored {
    fn over(self, base: Self) -> Self {
        Self {
            from: self.from.or(base.from),
            below: self.below.or(base.below),
            except: self.except.or(base.except),
        }
    }
}

impl Refused {
    fn over(self, base: Self) -> Self {
        Self {
            status: self.status.or(base.status),
            code: self.code.or(base.code),
            kind: self.kind.or(base.kind),
            marks: self.marks.or(base.marks),
            retryable: self.retryable.or(base.retryable),
            retry_after: self.retry_after.or(base.retry_after),
        }
    }
}

fn refusals_over(
    rows: BTreeMap<ReasonName, Refused>,
    mut base: BTreeMap<ReasonName, Refused>,
) -> BTreeMap<ReasonName, Refused> {
    for (reason, row) in rows {
        let below = base.remove(&reason).unwrap_or_default();
        base.insert(reason, row.over(below));
    }
    base
}
