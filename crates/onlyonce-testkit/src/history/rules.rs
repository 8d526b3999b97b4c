//! The rules that a recorded history must keep, in words. Each is decided only by what replies
//! and real-time intervals prove: where they leave it open, the rule is held to be kept.

pub(crate) mod answers;
pub(crate) mod availability;
pub(crate) mod health;
pub(crate) mod reads;
pub(crate) mod refusals;
pub(crate) mod runs;
pub(crate) mod tenancy;

/// Every rule, in words.
pub const RULES: &[&str] = &[
    tenancy::ONE_LEASE,
    tenancy::OVERLAP,
    tenancy::SECOND_RUN,
    tenancy::FINISHED_STAYS,
    tenancy::LOST_LEASE,
    tenancy::HOLD,
    tenancy::FINGERPRINT,
    tenancy::ATTEMPTS,
    tenancy::DEAD,
    reads::CLAIMED,
    reads::COMPLETED,
    reads::STALE,
    reads::EXPIRED,
    answers::MADE,
    answers::PAYLOAD,
    answers::ACKNOWLEDGED,
    answers::SAME,
    answers::LOST,
    answers::UNSTORED,
    answers::SHARED,
    runs::OWN_CLAIM,
    runs::ONE_ATTEMPT,
    runs::LIVE_LEASE,
    runs::TO_ITS_END,
    runs::AS_ANSWERED,
    runs::GIVEN_BACK,
    refusals::MISMATCH,
    refusals::STORE_DOWN,
    refusals::NOT_STORED,
    health::HEALTHY,
    availability::ANSWERED,
];
