//! The table itself, as the requirements have it.

use onlyonce_core::Profile;

use super::{Charset, Contract, Envelope, Mark, OtherPayload, Refused, ReplayStatus, StoreDown};

const IDEMPOTENT_REPLAYED: Mark = Mark::Flag("idempotent-replayed");

/// `standard`: our own choice where the documents are silent. Others start from it.
const STANDARD: Contract = Contract {
    profile: Profile::Standard,
    envelope: Envelope::Problem,
    covered: &["POST", "PUT", "PATCH", "DELETE"],
    key_required: &[],
    key_bytes_max: Some(255),
    charset: Charset::Visible,
    replay_status: ReplayStatus::AsStored,
    replay_marks: &[
        IDEMPOTENT_REPLAYED,
        Mark::Key,
        Mark::Expires("idempotency-expires"),
    ],
    first_marks: &[Mark::Key, Mark::Expires("idempotency-expires")],
    not_stored: &[401, 407, 408, 425, 429, 503],
    panics_stored: true,
    ttl: None,
    route_in_scope: false,
    intake_in_scope: false,
    echoes_key_on_refusal: false,
    missing_key: Refused::no(400, "missing-key"),
    bad_key: Refused::no(400, "bad-key"),
    bad_ttl: Refused::no(400, "bad-ttl"),
    mismatch: OtherPayload::Refused(Refused::no(422, "mismatch")),
    other_operation: Refused::no(422, "mismatch"),
    waits: true,
    in_progress: Refused::later(409, "in-progress"),
    too_many_waiters: Refused::later(429, "too-many-waiters"),
    outcome_unknown: Refused::no(409, "outcome-unknown"),
    store_down: StoreDown::Refused(Refused::later(503, "store-down")),
    request_too_large: Refused::no(413, "request-too-large"),
    response_too_large: Refused::no(507, "response-too-large"),
    panicked: Refused::no(500, "panicked"),
    timed_out: Refused::later(504, "timed-out"),
};

/// Intake submissions. Below 500 is stored, but for the answers from before the work (docs/protocol.md#rule-21).
const FORMBRIDGE: Contract = Contract {
    profile: Profile::Formbridge,
    intake_in_scope: true,
    envelope: Envelope::OkError,
    covered: &["POST", "PUT", "PATCH"],
    charset: Charset::UrlSafe,
    replay_status: ReplayStatus::Ok,
    replay_marks: &[IDEMPOTENT_REPLAYED, Mark::OriginalTime],
    first_marks: &[],
    not_stored: &[401, 407, 408, 425, 429, 500, 501, 502, 503, 504, 507, 599],
    panics_stored: false,
    ttl: Some(("x-idempotency-ttl", 1000)),
    missing_key: Refused::no(400, "invalid_request"),
    bad_key: Refused::no(400, "invalid_request"),
    bad_ttl: Refused::no(400, "invalid_request"),
    mismatch: OtherPayload::Refused(Refused::no(409, "conflict")),
    other_operation: Refused::no(409, "conflict"),
    in_progress: Refused::later(503, "service_unavailable"),
    too_many_waiters: Refused::later(503, "service_unavailable"),
    outcome_unknown: Refused::no(409, "conflict"),
    store_down: StoreDown::Refused(Refused::later(503, "service_unavailable")),
    request_too_large: Refused::no(413, "invalid_request"),
    response_too_large: Refused::no(507, "response_too_large"),
    panicked: Refused::no(500, "internal_error"),
    timed_out: Refused::later(504, "timeout"),
    ..STANDARD
};

/// The same service's earlier contract.
const FORMBRIDGE_008: Contract = Contract {
    profile: Profile::Formbridge008,
    key_required: &["POST"],
    key_bytes_max: Some(256),
    charset: Charset::Text,
    echoes_key_on_refusal: true,
    replay_marks: &[
        Mark::Key,
        Mark::Flag("x-idempotent-replayed"),
        Mark::Expires("x-idempotent-expires"),
    ],
    first_marks: &[Mark::Key, Mark::Expires("x-idempotent-expires")],
    not_stored: &[],
    panics_stored: true,
    ttl: None,
    mismatch: OtherPayload::Refused(Refused::no(422, "conflict")),
    other_operation: Refused::no(422, "conflict"),
    in_progress: Refused::later(409, "in_progress"),
    store_down: StoreDown::Runs,
    ..FORMBRIDGE
};

/// Form submissions; only success is stored.
const BROKER: Contract = Contract {
    profile: Profile::Broker,
    route_in_scope: true,
    envelope: Envelope::SuccessError,
    covered: &["POST"],
    charset: Charset::Text,
    replay_status: ReplayStatus::Ok,
    replay_marks: &[],
    first_marks: &[],
    not_stored: &[
        301, 302, 304, 400, 401, 403, 404, 407, 408, 409, 410, 422, 425, 429, 500, 501, 502, 503,
        504, 507, 599,
    ],
    panics_stored: false,
    mismatch: OtherPayload::Replayed,
    too_many_waiters: Refused::later(503, "too-many-waiters"),
    ..STANDARD
};

/// Sync operations of an offline client.
const GUARDIAN: Contract = Contract {
    profile: Profile::Guardian,
    envelope: Envelope::CodeError,
    covered: &["POST", "PUT", "PATCH", "DELETE", "CONNECT", "BREW"],
    key_required: &["POST", "PUT", "PATCH", "DELETE", "CONNECT", "BREW"],
    key_bytes_max: None,
    charset: Charset::UuidV4,
    replay_marks: &[],
    first_marks: &[],
    not_stored: &[],
    missing_key: Refused::no(400, "MISSING_IDEMPOTENCY_KEY"),
    bad_key: Refused::no(400, "INVALID_IDEMPOTENCY_KEY"),
    mismatch: OtherPayload::Replayed,
    other_operation: Refused::no(422, "IDEMPOTENCY_KEY_REUSED"),
    waits: false,
    in_progress: Refused::after(2, 409, "CONCURRENT_REQUEST"),
    too_many_waiters: Refused::after(2, 409, "CONCURRENT_REQUEST"),
    outcome_unknown: Refused::no(409, "OUTCOME_UNKNOWN"),
    store_down: StoreDown::Refused(Refused::later(503, "SERVICE_UNAVAILABLE")),
    request_too_large: Refused::no(413, "PAYLOAD_TOO_LARGE"),
    response_too_large: Refused::no(507, "RESPONSE_TOO_LARGE"),
    panicked: Refused::no(500, "INTERNAL_ERROR"),
    timed_out: Refused::later(504, "TIMEOUT"),
    ..STANDARD
};

/// A general middleware: everything is stored.
const MIDDLEWARE: Contract = Contract {
    profile: Profile::Middleware,
    route_in_scope: true,
    key_bytes_max: Some(200),
    charset: Charset::Text,
    replay_marks: &[Mark::Flag("idempotent-replay"), Mark::Key],
    first_marks: &[Mark::Key],
    not_stored: &[],
    ttl: Some(("idempotency-ttl", 1)),
    bad_key: Refused::no(422, "bad-key"),
    mismatch: OtherPayload::Refused(Refused::no(409, "mismatch")),
    other_operation: Refused::no(409, "mismatch"),
    ..STANDARD
};

/// The IETF draft.
const IETF: Contract = Contract {
    profile: Profile::Ietf,
    route_in_scope: true,
    covered: &["POST", "PATCH"],
    key_required: &["POST", "PATCH"],
    charset: Charset::Text,
    replay_marks: &[],
    first_marks: &[],
    waits: false,
    ..STANDARD
};

/// As Stripe does it. What is from before the work (docs/protocol.md#rule-21) is no 4xx after it began.
const STRIPE: Contract = Contract {
    profile: Profile::Stripe,
    envelope: Envelope::TypeError,
    covered: &["POST"],
    charset: Charset::Text,
    replay_marks: &[IDEMPOTENT_REPLAYED],
    first_marks: &[Mark::Key],
    not_stored: &[400, 401, 407, 408, 409, 425, 429],
    missing_key: Refused::no(400, "invalid_request_error"),
    bad_key: Refused::no(400, "invalid_request_error"),
    mismatch: OtherPayload::Refused(Refused::no(400, "idempotency_error")),
    other_operation: Refused::no(400, "idempotency_error"),
    waits: false,
    in_progress: Refused::later(409, "idempotency_error"),
    too_many_waiters: Refused::later(429, "rate_limit_error"),
    outcome_unknown: Refused::no(409, "idempotency_error"),
    store_down: StoreDown::Refused(Refused::later(503, "api_error")),
    request_too_large: Refused::no(413, "invalid_request_error"),
    response_too_large: Refused::no(507, "api_error"),
    panicked: Refused::no(500, "api_error"),
    timed_out: Refused::later(504, "api_error"),
    ..STANDARD
};

/// All of it, in the order of [`Profile::ALL`].
pub(super) static CONTRACTS: [Contract; 8] = [
    STANDARD,
    FORMBRIDGE,
    FORMBRIDGE_008,
    BROKER,
    GUARDIAN,
    MIDDLEWARE,
    IETF,
    STRIPE,
];
