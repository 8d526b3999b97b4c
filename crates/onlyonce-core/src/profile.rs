//! The named presets: each document's contract as one row of data. This is the only file that
//! knows profiles; everything else sees the resolved [`Policy`].

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http::{HeaderName, Method};

use crate::fingerprint::{BodyRule, FingerprintRule};
use crate::key::{Charset, KeyRule};
use crate::policy::{
    BodyMarks, DeriveRule, Duplicate, Envelope, HttpRules, KeyNeed, Limits, Mark, Methods, Policy,
    RefusalTable, ReplayStatus, ScopeName, StoreDown, StoredRule, TtlRule, TtlUnit,
};
use crate::record::OnLapse;

use self::rows::{
    broker_row, formbridge_008_row, formbridge_row, guardian_row, middleware_row, problem_row,
    stripe_row,
};

mod rows;
#[cfg(test)]
mod tests;

/// A named preset of a [`Policy`].
///
/// ```
/// use onlyonce_core::{Policy, Profile};
///
/// let policy: Policy = "stripe".parse::<Profile>().unwrap().policy();
/// assert_eq!(policy, Profile::Stripe.policy());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Our own choice, and the default.
    Standard,
    /// Intake submissions with an event stream.
    Formbridge,
    /// The same service's earlier contract: a key is required on POST.
    Formbridge008,
    /// Form submissions with derived keys and marks in the body.
    Broker,
    /// Sync operations of an offline client: UUIDv4 keys, no waiting.
    Guardian,
    /// A general middleware: everything is stored, 5xx too.
    Middleware,
    /// The IETF draft on the `Idempotency-Key` header.
    Ietf,
    /// As Stripe's API does it.
    Stripe,
}

/// All profiles, to list them.
pub fn all() -> [Profile; 8] {
    Profile::ALL
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Standard,
        Self::Formbridge,
        Self::Formbridge008,
        Self::Broker,
        Self::Guardian,
        Self::Middleware,
        Self::Ietf,
        Self::Stripe,
    ];

    /// Its name in config and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Formbridge => "formbridge",
            Self::Formbridge008 => "formbridge-008",
            Self::Broker => "broker",
            Self::Guardian => "guardian",
            Self::Middleware => "middleware",
            Self::Ietf => "ietf",
            Self::Stripe => "stripe",
        }
    }

    /// The rules it stands for.
    pub fn policy(self) -> Policy {
        match self {
            Self::Standard => standard(),
            Self::Formbridge => formbridge(),
            Self::Formbridge008 => formbridge_008(),
            Self::Broker => broker(),
            Self::Guardian => guardian(),
            Self::Middleware => middleware(),
            Self::Ietf => ietf(),
            Self::Stripe => stripe(),
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        standard()
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no profile's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown profile {name:?}; there are: {}", Profile::ALL.map(Profile::name).join(", "))]
pub struct UnknownProfile {
    name: String,
}

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(name: &str) -> Result<Self, UnknownProfile> {
        Self::ALL
            .into_iter()
            .find(|profile| profile.name() == name)
            .ok_or_else(|| UnknownProfile { name: name.into() })
    }
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const TTL_MIN: Duration = Duration::from_secs(1);
const TTL_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const MEBIBYTE: usize = 1024 * 1024;
/// Answers from before the work began: pinning one for a day would lock its caller out.
const BEFORE_THE_WORK: [u16; 6] = [401, 407, 408, 425, 429, 503];

/// What a service says of a request that it did not carry out. A conflict (409) is not among them:
/// it may be with what the request itself did before.
const NOT_CARRIED_OUT: [u16; 22] = [
    400, 401, 403, 404, 405, 406, 407, 408, 410, 411, 412, 413, 414, 415, 417, 422, 425, 426, 428,
    429, 431, 503,
];

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const IDEMPOTENCY_EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");
const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const IDEMPOTENT_REPLAY: HeaderName = HeaderName::from_static("idempotent-replay");
const X_IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("x-idempotent-replayed");
const X_IDEMPOTENT_EXPIRES: HeaderName = HeaderName::from_static("x-idempotent-expires");
const X_ORIGINAL_REQUEST_TIME: HeaderName = HeaderName::from_static("x-original-request-time");

fn standard() -> Policy {
    Policy {
        key: KeyRule::default(),
        fingerprint: FingerprintRule::default(),
        lease_for: Duration::from_secs(30),
        keep_for: DAY,
        ttl: None,
        on_lapse: OnLapse::Rerun,
        duplicate: Duplicate::Wait(Duration::from_secs(30)),
        waiters_max: 10,
        local_waiters_max: 1000,
        execution_max: Duration::from_secs(30),
        store_down: StoreDown::Closed,
        retry_after: Duration::from_secs(5),
        stored: StoredRule::all().except(&BEFORE_THE_WORK),
        limits: Limits {
            request_bytes_max: MEBIBYTE,
            response_bytes_max: MEBIBYTE,
            header_bytes_max: 64 * 1024,
        },
        http: HttpRules {
            key_header: IDEMPOTENCY_KEY,
            key_field: None,
            methods: optional(&[Method::POST, Method::PUT, Method::PATCH, Method::DELETE]),
            derive: None,
            replay_status: ReplayStatus::AsStored,
            replay_marks: vec![
                Mark::Flag(IDEMPOTENT_REPLAYED),
                Mark::Key(IDEMPOTENCY_KEY),
                Mark::Expires(IDEMPOTENCY_EXPIRES),
            ],
            first_marks: vec![
                Mark::Key(IDEMPOTENCY_KEY),
                Mark::Expires(IDEMPOTENCY_EXPIRES),
            ],
            body_marks: None,
            drop_headers: vec![http::header::SET_COOKIE],
            opt_out_header: HeaderName::from_static("idempotency-store"),
            refusals: RefusalTable::new(problem_row),
            envelope: Envelope::Problem,
            scope: vec![ScopeName::Caller],
        },
    }
}

fn formbridge() -> Policy {
    let base = standard();
    Policy {
        key: KeyRule {
            charset: Charset::UrlSafe,
            ..base.key
        },
        ttl: Some(ttl_rule("x-idempotency-ttl", TtlUnit::Milliseconds)),
        stored: base.stored.below(500),
        http: HttpRules {
            methods: optional(&[Method::POST, Method::PUT, Method::PATCH]),
            replay_status: ReplayStatus::Ok,
            replay_marks: vec![
                Mark::Flag(IDEMPOTENT_REPLAYED),
                Mark::OriginalTime(X_ORIGINAL_REQUEST_TIME),
            ],
            first_marks: vec![],
            refusals: RefusalTable::new(formbridge_row),
            envelope: Envelope::OkError,
            scope: resource_and_caller(),
            ..base.http
        },
        ..base
    }
}

fn formbridge_008() -> Policy {
    let base = formbridge();
    Policy {
        key: KeyRule {
            bytes_max: 256,
            charset: Charset::Visible,
            ..base.key
        },
        ttl: None,
        stored: StoredRule::all(),
        store_down: StoreDown::Open,
        http: HttpRules {
            methods: Methods::Only(vec![
                (Method::POST, KeyNeed::Required),
                (Method::PUT, KeyNeed::Optional),
                (Method::PATCH, KeyNeed::Optional),
            ]),
            replay_marks: vec![
                Mark::Key(IDEMPOTENCY_KEY),
                Mark::Flag(X_IDEMPOTENT_REPLAYED),
                Mark::Expires(X_IDEMPOTENT_EXPIRES),
            ],
            first_marks: vec![
                Mark::Key(IDEMPOTENCY_KEY),
                Mark::Expires(X_IDEMPOTENT_EXPIRES),
            ],
            refusals: RefusalTable::new(formbridge_008_row),
            ..base.http
        },
        ..base
    }
}

fn broker() -> Policy {
    let base = standard();
    Policy {
        key: KeyRule {
            charset: Charset::Text,
            ..base.key
        },
        // A custom key replays whatever the body says, but never across routes.
        fingerprint: FingerprintRule {
            body: BodyRule::Ignore,
            ..base.fingerprint
        },
        stored: StoredRule::success().except(&NOT_CARRIED_OUT),
        http: HttpRules {
            methods: optional(&[Method::POST]),
            derive: Some(DeriveRule {
                context_field: "contextId".into(),
                data_field: "formData".into(),
                trim: false,
            }),
            replay_status: ReplayStatus::Ok,
            replay_marks: vec![],
            first_marks: vec![],
            body_marks: Some(BodyMarks {
                flag: "idempotent".into(),
                submitted_at: "originalSubmittedAt".into(),
                message: "message".into(),
                message_text: "This submission was already processed. Returning original response."
                    .into(),
            }),
            refusals: RefusalTable::new(broker_row),
            envelope: Envelope::SuccessError,
            scope: vec![
                ScopeName::Route,
                ScopeName::Caller,
                ScopeName::Body("contextId".into()),
            ],
            ..base.http
        },
        ..base
    }
}

fn guardian() -> Policy {
    let base = standard();
    Policy {
        key: KeyRule {
            charset: Charset::UuidV4,
            random: true,
            ..base.key
        },
        duplicate: Duplicate::Refuse,
        stored: StoredRule::all(),
        http: HttpRules {
            methods: Methods::Unsafe(KeyNeed::Required),
            replay_marks: vec![],
            first_marks: vec![],
            refusals: RefusalTable::new(guardian_row),
            envelope: Envelope::CodeError,
            ..base.http
        },
        ..base
    }
}

fn middleware() -> Policy {
    let base = standard();
    Policy {
        key: KeyRule {
            bytes_max: 200,
            charset: Charset::Text,
            random: true,
        },
        ttl: Some(ttl_rule("idempotency-ttl", TtlUnit::Seconds)),
        stored: StoredRule::all(),
        http: HttpRules {
            replay_marks: vec![Mark::Flag(IDEMPOTENT_REPLAY), Mark::Key(IDEMPOTENCY_KEY)],
            first_marks: vec![Mark::Key(IDEMPOTENCY_KEY)],
            refusals: RefusalTable::new(middleware_row),
            scope: resource_and_caller(),
            ..base.http
        },
        ..base
    }
}

fn ietf() -> Policy {
    let base = standard();
    Policy {
        key: KeyRule {
            charset: Charset::Text,
            ..base.key
        },
        duplicate: Duplicate::Refuse,
        http: HttpRules {
            methods: optional(&[Method::POST, Method::PATCH]).all_need(KeyNeed::Required),
            replay_marks: vec![],
            first_marks: vec![],
            scope: resource_and_caller(),
            ..base.http
        },
        ..base
    }
}

fn stripe() -> Policy {
    let base = standard();
    Policy {
        key: KeyRule {
            charset: Charset::Text,
            ..base.key
        },
        duplicate: Duplicate::Refuse,
        stored: StoredRule::all().except(&[400, 401, 407, 408, 409, 425, 429]),
        http: HttpRules {
            methods: optional(&[Method::POST]),
            replay_marks: vec![Mark::Flag(IDEMPOTENT_REPLAYED)],
            first_marks: vec![Mark::Key(IDEMPOTENCY_KEY)],
            refusals: RefusalTable::new(stripe_row),
            envelope: Envelope::TypeError,
            ..base.http
        },
        ..base
    }
}

/// One key for two resources is two operations.
fn resource_and_caller() -> Vec<ScopeName> {
    vec![ScopeName::Route, ScopeName::Caller]
}

fn optional(methods: &[Method]) -> Methods {
    Methods::Only(
        methods
            .iter()
            .map(|method| (method.clone(), KeyNeed::Optional))
            .collect(),
    )
}

fn ttl_rule(header: &'static str, unit: TtlUnit) -> TtlRule {
    TtlRule {
        header: HeaderName::from_static(header),
        unit,
        min: TTL_MIN,
        max: TTL_MAX,
    }
}
