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
    kept_days: 1,
    route_in_scope: false,
    intake_in_scope: false,
    echoes_key_on_refusal: false,
    tells_result: false,
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

/// What is no success in the tests.
const FAILURES: &[u16] = &[
    301, 302, 304, 400, 401, 403, 404, 407, 408, 409, 410, 422, 425, 429, 500, 501, 502, 503, 504,
    507, 599,
];
const BEFORE_AND_5XX: &[u16] = &[401, 407, 408, 425, 429, 500, 501, 502, 503, 504, 507, 599];
const UNSAFE: &[&str] = &["POST", "PUT", "PATCH", "DELETE", "CONNECT", "BREW"];

/// As version 2 of Stripe's API does it.
const STRIPE_V2: Contract = Contract {
    profile: Profile::StripeV2,
    covered: &["POST", "DELETE"],
    kept_days: 30,
    route_in_scope: true,
    not_stored: FAILURES,
    panics_stored: false,
    ..STRIPE
};

/// OASIS Repeatable Requests, as Azure answers them.
const REPEATABLE_REQUESTS: Contract = Contract {
    profile: Profile::RepeatableRequests,
    envelope: Envelope::CodeError,
    covered: UNSAFE,
    replay_marks: &[Mark::Text("repeatability-result", "accepted")],
    first_marks: &[Mark::Text("repeatability-result", "accepted")],
    tells_result: true,
    not_stored: BEFORE_AND_5XX,
    panics_stored: false,
    bad_key: Refused::no(400, "InvalidRepeatabilityHeader"),
    mismatch: OtherPayload::Refused(Refused::no(400, "RepeatabilityRequestIdReused")),
    other_operation: Refused::no(400, "RepeatabilityRequestIdReused"),
    waits: false,
    in_progress: Refused::later(409, "RequestInProgress"),
    too_many_waiters: Refused::later(409, "RequestInProgress"),
    outcome_unknown: Refused::no(409, "OutcomeUnknown"),
    store_down: StoreDown::Refused(Refused::later(503, "ServiceUnavailable")),
    request_too_large: Refused::no(413, "RequestBodyTooLarge"),
    response_too_large: Refused::no(507, "ResponseTooLarge"),
    panicked: Refused::no(500, "InternalServerError"),
    timed_out: Refused::later(504, "OperationTimedOut"),
    ..STANDARD
};

/// Google's AIP-155.
const AIP_155: Contract = Contract {
    profile: Profile::Aip155,
    envelope: Envelope::StatusError,
    key_bytes_max: Some(36),
    replay_marks: &[],
    first_marks: &[],
    route_in_scope: true,
    not_stored: FAILURES,
    panics_stored: false,
    bad_key: Refused::no(400, "INVALID_ARGUMENT"),
    mismatch: OtherPayload::Refused(Refused::no(400, "FAILED_PRECONDITION")),
    other_operation: Refused::no(400, "FAILED_PRECONDITION"),
    waits: false,
    in_progress: Refused::later(409, "ABORTED"),
    too_many_waiters: Refused::later(409, "ABORTED"),
    outcome_unknown: Refused::no(500, "UNKNOWN"),
    store_down: StoreDown::Refused(Refused::later(503, "UNAVAILABLE")),
    request_too_large: Refused::no(413, "INVALID_ARGUMENT"),
    response_too_large: Refused::no(507, "DATA_LOSS"),
    panicked: Refused::no(500, "INTERNAL"),
    timed_out: Refused::later(504, "DEADLINE_EXCEEDED"),
    ..STANDARD
};

/// As PayPal does it.
const PAYPAL: Contract = Contract {
    profile: Profile::Paypal,
    envelope: Envelope::NamedError,
    covered: &["POST"],
    key_bytes_max: Some(108),
    kept_days: 45,
    replay_marks: &[],
    first_marks: &[],
    not_stored: BEFORE_AND_5XX,
    panics_stored: false,
    bad_key: Refused::no(400, "PAYPAL_REQUEST_ID_INVALID").of("INVALID_REQUEST"),
    mismatch: OtherPayload::Refused(
        Refused::no(422, "PAYPAL_REQUEST_ID_PREVIOUSLY_USED").of("UNPROCESSABLE_ENTITY"),
    ),
    other_operation: Refused::no(422, "PAYPAL_REQUEST_ID_PREVIOUSLY_USED")
        .of("UNPROCESSABLE_ENTITY"),
    waits: false,
    in_progress: Refused::later(409, "PREVIOUS_REQUEST_IN_PROGRESS").of("RESOURCE_CONFLICT"),
    too_many_waiters: Refused::later(409, "PREVIOUS_REQUEST_IN_PROGRESS").of("RESOURCE_CONFLICT"),
    outcome_unknown: Refused::no(409, "OUTCOME_UNKNOWN").of("RESOURCE_CONFLICT"),
    store_down: StoreDown::Refused(
        Refused::later(503, "STORE_UNAVAILABLE").of("SERVICE_UNAVAILABLE"),
    ),
    request_too_large: Refused::no(413, "REQUEST_TOO_LARGE").of("INVALID_REQUEST"),
    response_too_large: Refused::no(507, "RESPONSE_TOO_LARGE").of("INTERNAL_SERVER_ERROR"),
    panicked: Refused::no(500, "OPERATION_FAILED").of("INTERNAL_SERVER_ERROR"),
    timed_out: Refused::later(504, "TIMED_OUT").of("SERVICE_UNAVAILABLE"),
    ..STANDARD
};

/// As Square does it.
const SQUARE: Contract = Contract {
    profile: Profile::Square,
    envelope: Envelope::ErrorList,
    covered: &["POST", "PUT"],
    charset: Charset::Text,
    replay_marks: &[],
    first_marks: &[],
    not_stored: FAILURES,
    panics_stored: false,
    bad_key: Refused::no(400, "INVALID_VALUE").of("INVALID_REQUEST_ERROR"),
    mismatch: OtherPayload::Refused(
        Refused::no(400, "IDEMPOTENCY_KEY_REUSED").of("INVALID_REQUEST_ERROR"),
    ),
    other_operation: Refused::no(400, "IDEMPOTENCY_KEY_REUSED").of("INVALID_REQUEST_ERROR"),
    waits: false,
    in_progress: Refused::later(409, "CONFLICT").of("API_ERROR"),
    too_many_waiters: Refused::later(409, "CONFLICT").of("API_ERROR"),
    outcome_unknown: Refused::no(409, "OUTCOME_UNKNOWN").of("API_ERROR"),
    store_down: StoreDown::Refused(Refused::later(503, "SERVICE_UNAVAILABLE").of("API_ERROR")),
    request_too_large: Refused::no(413, "REQUEST_ENTITY_TOO_LARGE").of("INVALID_REQUEST_ERROR"),
    response_too_large: Refused::no(507, "RESPONSE_TOO_LARGE").of("API_ERROR"),
    panicked: Refused::no(500, "INTERNAL_SERVER_ERROR").of("API_ERROR"),
    timed_out: Refused::later(504, "GATEWAY_TIMEOUT").of("API_ERROR"),
    ..STANDARD
};

/// The Agentic Commerce Protocol.
const ACP: Contract = Contract {
    profile: Profile::Acp,
    envelope: Envelope::FlatError,
    covered: &["POST"],
    key_required: &["POST"],
    charset: Charset::Text,
    replay_marks: &[IDEMPOTENT_REPLAYED, Mark::Key],
    first_marks: &[Mark::Key],
    echoes_key_on_refusal: true,
    route_in_scope: true,
    not_stored: BEFORE_AND_5XX,
    panics_stored: false,
    missing_key: Refused::no(400, "idempotency_key_required").of("invalid_request"),
    bad_key: Refused::no(400, "idempotency_key_invalid").of("invalid_request"),
    mismatch: OtherPayload::Refused(Refused::no(422, "idempotency_conflict").of("invalid_request")),
    other_operation: Refused::no(422, "idempotency_conflict").of("invalid_request"),
    waits: false,
    in_progress: Refused::later(409, "idempotency_in_flight").of("invalid_request"),
    too_many_waiters: Refused::later(409, "idempotency_in_flight").of("invalid_request"),
    outcome_unknown: Refused::no(409, "outcome_unknown").of("processing_error"),
    store_down: StoreDown::Refused(
        Refused::later(503, "store_unavailable").of("service_unavailable"),
    ),
    request_too_large: Refused::no(413, "request_too_large").of("invalid_request"),
    response_too_large: Refused::no(507, "response_too_large").of("processing_error"),
    panicked: Refused::no(500, "operation_failed").of("processing_error"),
    timed_out: Refused::later(504, "timed_out").of("processing_error"),
    ..STANDARD
};

/// All of it, in the order of [`Profile::ALL`].
pub(super) static CONTRACTS: [Contract; 14] = [
    STANDARD,
    FORMBRIDGE,
    FORMBRIDGE_008,
    BROKER,
    GUARDIAN,
    MIDDLEWARE,
    IETF,
    STRIPE,
    STRIPE_V2,
    REPEATABLE_REQUESTS,
    AIP_155,
    PAYPAL,
    SQUARE,
    ACP,
];
