//! The rules, as data. A [`Profile`](crate::Profile) resolves to a policy once; from then on
//! nothing knows which profile it was. Behaviour that differs is a value here, never an `if`.

use std::time::Duration;

use http::{HeaderMap, HeaderName, Method};

use crate::fingerprint::FingerprintRule;
use crate::key::KeyRule;
use crate::record::OnLapse;
use crate::refusal::Reason;

mod actor;
mod bounds;
mod heard;
mod key_time;
mod mark;
pub(crate) mod pointer;
mod scope;
#[cfg(test)]
mod tests;

pub use self::actor::ActorType;
pub use self::key_time::{KeyTime, KeyTimeRule};
pub use self::mark::Mark;
pub use self::pointer::Pointer;
pub use self::scope::ScopePart;

/// Everything that can be decided differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What a key may look like.
    pub key: KeyRule,
    /// What makes two requests the same.
    pub fingerprint: FingerprintRule,
    /// How long a lease lasts; it is renewed at a third of this.
    pub lease_for: Duration,
    /// How long an answer is kept after it was stored.
    pub keep_for: Duration,
    /// How a request may ask for another retention.
    pub ttl: Option<TtlRule>,
    /// What follows when a lease lapses.
    pub on_lapse: OnLapse,
    /// What a duplicate gets while the original runs.
    pub duplicate: Duplicate,
    /// Callers that may wait for a key held by another process.
    pub waiters_max: usize,
    /// Callers that may wait for a key held by this process.
    pub local_waiters_max: usize,
    /// How long a handler may run.
    pub execution_max: Duration,
    /// What happens when the store does not answer.
    pub store_down: StoreDown,
    /// When to tell a caller to try again.
    pub retry_after: Duration,
    /// Which outcomes are stored.
    pub stored: StoredRule,
    /// Bounds on what is read and kept.
    pub limits: Limits,
    /// How all of this looks over HTTP.
    pub http: HttpRules,
}

/// What a duplicate gets while the original runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicate {
    /// It waits for the answer, but no longer than this.
    Wait(Duration),
    /// It is told at once.
    Refuse,
}

impl Duplicate {
    /// How long a duplicate waits.
    pub const fn patience(self) -> Duration {
        match self {
            Self::Wait(at_most) => at_most,
            Self::Refuse => Duration::ZERO,
        }
    }
}

/// What happens when the store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreDown {
    /// Nothing runs.
    Closed,
    /// The operation runs without protection; reported each time.
    Open,
}

/// How a request may ask for another retention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TtlRule {
    /// The header.
    pub header: HeaderName,
    /// The unit of its number.
    pub unit: TtlUnit,
    /// Less is raised to this.
    pub min: Duration,
    /// More is cut to this.
    pub max: Duration,
}

/// The unit of a time-to-live header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TtlUnit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
}

impl TtlRule {
    /// Reads the header's value and clamps it; anything but a whole number is an error.
    pub fn parse(&self, value: &[u8]) -> Result<Duration, TtlError> {
        let digits = value.trim_ascii();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err(TtlError {
                header: self.header.clone(),
                unit: self.unit,
            });
        }
        // Only digits are left, so the one possible failure is a number beyond 64 bits.
        let number = std::str::from_utf8(digits)
            .ok()
            .and_then(|digits| digits.parse().ok())
            .unwrap_or(u64::MAX);
        let asked = match self.unit {
            TtlUnit::Seconds => Duration::from_secs(number),
            TtlUnit::Milliseconds => Duration::from_millis(number),
        };
        Ok(asked.clamp(self.min, self.max))
    }
}

/// A time-to-live header that is not a whole number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{header} must be a whole number of {}", match unit { TtlUnit::Seconds => "seconds", TtlUnit::Milliseconds => "milliseconds" })]
pub struct TtlError {
    header: HeaderName,
    unit: TtlUnit,
}

/// Which outcomes are stored, by status. What becomes of a key whose answer is not stored is its
/// [`fate`](Self::fate).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRule {
    /// The lowest status stored.
    pub from: u16,
    /// The first status above those stored.
    pub below: u16,
    /// Statuses that are not, because they are given before the work begins: the operation has not
    /// happened, and may run again under any policy.
    pub except: Vec<u16>,
}

/// What becomes of a key when its operation was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The answer is stored.
    Stored,
    /// The slot is given back: the next request with the key runs.
    Released,
    /// It may have happened, and is not run again: the outcome is in doubt until it is resolved.
    InDoubt,
}

impl StoredRule {
    /// Everything.
    pub const fn all() -> Self {
        Self {
            from: 100,
            below: 1000,
            except: Vec::new(),
        }
    }

    /// Only 2xx.
    pub const fn success() -> Self {
        Self {
            from: 200,
            below: 300,
            except: Vec::new(),
        }
    }

    /// The same without `statuses`.
    #[must_use]
    pub fn except(mut self, statuses: &[u16]) -> Self {
        self.except.extend_from_slice(statuses);
        self
    }

    /// The same, but nothing from `status` up.
    #[must_use]
    pub const fn below(mut self, status: u16) -> Self {
        self.below = status;
        self
    }

    /// What becomes of a key whose operation was answered with this status. Under
    /// [`Hold`](OnLapse::Hold) an operation runs again only if its answer says that it had not
    /// begun; an answer that is neither stored nor says so leaves it in doubt.
    pub fn fate(&self, status: u16, on_lapse: OnLapse) -> Fate {
        if self.stores(status) {
            return Fate::Stored;
        }
        match on_lapse {
            OnLapse::Hold if !self.except.contains(&status) => Fate::InDoubt,
            OnLapse::Hold | OnLapse::Rerun => Fate::Released,
        }
    }

    /// Whether an answer with this status is stored.
    pub fn stores(&self, status: u16) -> bool {
        (self.from..self.below).contains(&status) && !self.except.contains(&status)
    }
}

/// Bounds on what is read and kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A keyed request's body.
    pub request_bytes_max: usize,
    /// A stored response's body.
    pub response_bytes_max: usize,
    /// A stored response's headers and trailers together.
    pub header_bytes_max: usize,
}

/// How a policy looks over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRules {
    /// The header that carries the key.
    pub key_header: HeaderName,
    /// Where else the key may be: a place in a JSON body.
    pub key_member: Option<Pointer>,
    /// Which key counts if there are two.
    pub key_first: KeyFirst,
    /// How a key says when it was made, where it does.
    pub key_time: Option<KeyTimeRule>,
    /// Which methods are covered, and whether each needs a key.
    pub methods: Methods,
    /// What replaces a missing key.
    pub derive: Option<DeriveRule>,
    /// The path before that of an operation, where its client asks what has become of its key.
    pub status_path: Option<String>,
    /// What a stored success replays as.
    pub replay_status: ReplayStatus,
    /// What a replay carries to be known as one.
    pub replay_marks: Vec<Mark>,
    /// What the first answer carries.
    pub first_marks: Vec<Mark>,
    /// What a refusal carries, as far as it is known.
    pub refusal_marks: Vec<Mark>,
    /// JSON members put into a replayed JSON object.
    pub body_marks: Option<BodyMarks>,
    /// Response headers that are not stored, besides what is never stored.
    pub drop_headers: Vec<HeaderName>,
    /// A response header by which a handler or upstream keeps its answer from being stored
    /// (any value but `yes`); it never reaches the client.
    pub opt_out_header: HeaderName,
    /// How a refusal is answered.
    pub refusals: RefusalTable,
    /// The shape of an error's body.
    pub envelope: Envelope,
    /// What besides the key addresses a record, in words: which callers a profile keeps apart.
    pub scope: Vec<ScopePart>,
    /// What says the type of an actor, where its name does not.
    pub actor_type: Option<ActorType>,
}

impl HttpRules {
    /// Whether a request with this head has a key, or may have one in its body.
    pub fn is_keyed(&self, method: &Method, headers: &HeaderMap) -> bool {
        self.methods.need(method).is_some()
            && (headers.contains_key(&self.key_header) || self.may_be_in_body())
    }

    /// Whether a body may have the key, or what one is derived from.
    pub fn may_be_in_body(&self) -> bool {
        self.key_member.is_some() || self.derive.is_some()
    }
}

/// Which key counts if one is in the header and another one in the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFirst {
    /// The one in the header.
    Header,
    /// The one in the body.
    Body,
}

/// Which methods are covered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Methods {
    /// Every method that is not safe, each needing a key or not.
    Unsafe(KeyNeed),
    /// These.
    Only(Vec<(Method, KeyNeed)>),
}

impl Methods {
    /// Whether `method` is covered, and if so, whether it needs a key.
    pub fn need(&self, method: &Method) -> Option<KeyNeed> {
        match self {
            Self::Unsafe(need) => (!method.is_safe()).then_some(*need),
            Self::Only(list) => list
                .iter()
                .find_map(|(covered, need)| (covered == method).then_some(*need)),
        }
    }

    /// The same methods, each with this need.
    #[must_use]
    pub fn all_need(self, need: KeyNeed) -> Self {
        match self {
            Self::Unsafe(_) => Self::Unsafe(need),
            Self::Only(list) => {
                Self::Only(list.into_iter().map(|(method, _)| (method, need)).collect())
            }
        }
    }
}

/// Whether a covered method needs a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyNeed {
    /// Without a key it passes through, untouched.
    Optional,
    /// Without a key it is refused.
    Required,
}

/// A key made from a JSON body: a digest of a context value and the form's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeriveRule {
    /// The member that names the session.
    pub context_field: String,
    /// The member that holds the data.
    pub data_field: String,
    /// Whether white space around text values is ignored.
    pub trim: bool,
}

/// What a stored success replays as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayStatus {
    /// As it was.
    AsStored,
    /// A stored 2xx other than 204 as 200, everything else as it was.
    Ok,
}

/// JSON members put into a replayed JSON object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyMarks {
    /// Becomes `true`.
    pub flag: String,
    /// Becomes the time of the original submission.
    pub submitted_at: String,
    /// Becomes `message_text`.
    pub message: String,
    /// What to tell.
    pub message_text: String,
}

/// How each refusal is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalTable {
    rows: Vec<RefusalRow>,
}

/// How one refusal is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalRow {
    /// Which.
    pub reason: Reason,
    /// Its status.
    pub status: u16,
    /// Its type or code in the error's body.
    pub code: String,
    /// The kind of error that it is, in the bodies that tell the two apart; its code where it is not
    /// given.
    pub kind: Option<String>,
    /// What it carries, where that differs from the policy's `refusal_marks`.
    pub marks: Option<Vec<Mark>>,
    /// Whether repeating the same request can help.
    pub retryable: bool,
    /// When to try again, where that differs from the policy's `retry_after`.
    pub retry_after: Option<Duration>,
}

impl RefusalTable {
    /// A table of these rows: one for every reason.
    pub(crate) fn of(rows: Vec<RefusalRow>) -> Self {
        Self { rows }
    }

    /// How `reason` is answered.
    pub fn row(&self, reason: Reason) -> &RefusalRow {
        self.rows
            .iter()
            .find(|row| row.reason == reason)
            .expect("a table is made with a row for every reason")
    }

    /// Answers `reason` with another status.
    pub fn set_status(&mut self, reason: Reason, status: u16) {
        for row in self.rows.iter_mut().filter(|row| row.reason == reason) {
            row.status = status;
        }
    }
}

/// The shape of an error's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Envelope {
    /// RFC 9457 `application/problem+json`.
    Problem,
    /// `{"ok":false,"error":{type,message,retryable,retryAfterMs}}`.
    OkError,
    /// `{"success":false,"error":{code,message,retryable}}`.
    SuccessError,
    /// `{"error":{code,message}}`.
    CodeError,
    /// `{"error":{type,message}}`.
    TypeError,
    /// `{type,code,message}`, its type being the kind.
    FlatError,
    /// `{"errors":[{category,code,detail}]}`, its category being the kind.
    ErrorList,
    /// `{name,message,details:[{issue,description}]}`, its name being the kind and its issue the code.
    NamedError,
    /// `{"error":{code,message,status}}`: the number of the HTTP status as code, the code as status.
    StatusError,
}
