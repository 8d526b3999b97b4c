//! A polite no, with its reason. How it looks over HTTP is the policy's table; one module of the
//! layer renders it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::fingerprint::Fingerprint;
use crate::record::OnLapse;

#[cfg(test)]
mod tests;

/// What every text says of an attempt that may have done its work. Clients know it by that, also where the
/// reason is about another attempt.
pub const MAY_HAVE_TAKEN_EFFECT: &str = "may have taken effect";

const MAY_RUN_AGAIN: &str = "a retry with the same key may run it again";
const FOUND_OUT_FIRST: &str =
    "a retry with the same key finds that out first, and runs it only if it did not happen";

/// Why an operation was not run, and what the caller can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub reason: Reason,
    /// What was wrong, where, and what to do. Never holds a key, a token or a body.
    pub detail: Cow<'static, str>,
    /// When to try again, if trying again makes sense.
    pub retry_after: Option<Duration>,
    /// Whether repeating the request can help, where that is known better than by the reason alone.
    pub retryable: Option<bool>,
    /// The operation in its way, for logs and audits; its caller is told nothing of it.
    pub(crate) original: Option<Box<Original>>,
}

/// An operation that has the key for something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Original {
    /// Who asked, where that is known and no secret.
    pub actor: Option<Arc<str>>,
    /// The instance that holds or held the claim.
    pub holder: Arc<str>,
    /// Its trace.
    pub trace: Option<Arc<str>>,
    /// What it means.
    pub fingerprint: Fingerprint,
    /// When it came, on the store's clock; nothing while it runs in this process.
    pub at: Option<Timestamp>,
}

/// The reasons there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// No key where the policy needs one.
    MissingKey,
    /// A key the policy does not take.
    BadKey,
    /// The time that the key carries is too long ago, or not yet.
    KeyOutOfTime,
    /// A time-to-live header that is no number.
    BadTtl,
    /// The caller cannot be told apart from others.
    Unscoped,
    /// The caller's token does not verify.
    Unverified,
    /// The request's body is over the bound.
    RequestTooLarge,
    /// The request's body broke off.
    RequestUnreadable,
    /// The request's body has a content coding, and members of it say which key or whose request it is.
    RequestEncoded,
    /// The key was used for something else.
    Mismatch,
    /// The key was used with another credential, and neither is verified.
    OtherCredential,
    /// The operation is still running.
    InProgress,
    /// Too many wait for it already.
    TooManyWaiters,
    /// As much runs in this process as may at a time.
    TooManyRunning,
    /// As many bytes of request bodies are held in this process as may be at a time.
    TooMuchBuffered,
    /// The caller keeps as much in the store as it may.
    OverQuota,
    /// The caller sent too many bad requests.
    TooManyBadRequests,
    /// Nobody knows whether it happened.
    OutcomeUnknown,
    /// The handler did not finish in its time.
    TimedOut,
    /// The attempt this one was attached to did not run.
    NotRun,
    /// It ran, but its result could not be stored yet.
    NotStored,
    /// The store does not answer.
    StoreDown,
    /// This process is shutting down.
    ShuttingDown,
    /// The handler panicked.
    Panicked,
    /// The handler's answer was too large to store.
    ResponseTooLarge,
}

impl Reason {
    /// Every reason, in the order of the tables.
    pub const ALL: [Self; 25] = [
        Self::MissingKey,
        Self::BadKey,
        Self::KeyOutOfTime,
        Self::BadTtl,
        Self::Unscoped,
        Self::Unverified,
        Self::RequestTooLarge,
        Self::RequestUnreadable,
        Self::RequestEncoded,
        Self::Mismatch,
        Self::OtherCredential,
        Self::InProgress,
        Self::TooManyWaiters,
        Self::TooManyRunning,
        Self::TooMuchBuffered,
        Self::OverQuota,
        Self::TooManyBadRequests,
        Self::OutcomeUnknown,
        Self::TimedOut,
        Self::NotRun,
        Self::NotStored,
        Self::StoreDown,
        Self::ShuttingDown,
        Self::Panicked,
        Self::ResponseTooLarge,
    ];

    /// Its name in problem types, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MissingKey => "missing-key",
            Self::BadKey => "bad-key",
            Self::KeyOutOfTime => "key-out-of-time",
            Self::BadTtl => "bad-ttl",
            Self::Unscoped => "unscoped",
            Self::Unverified => "unverified",
            Self::RequestTooLarge => "request-too-large",
            Self::RequestUnreadable => "request-unreadable",
            Self::RequestEncoded => "request-encoded",
            Self::Mismatch => "mismatch",
            Self::OtherCredential => "other-credential",
            Self::InProgress => "in-progress",
            Self::TooManyWaiters => "too-many-waiters",
            Self::TooManyRunning => "too-many-running",
            Self::TooMuchBuffered => "too-much-buffered",
            Self::OverQuota => "over-quota",
            Self::TooManyBadRequests => "too-many-bad-requests",
            Self::OutcomeUnknown => "outcome-unknown",
            Self::TimedOut => "timed-out",
            Self::NotRun => "not-run",
            Self::NotStored => "not-stored",
            Self::StoreDown => "store-down",
            Self::ShuttingDown => "shutting-down",
            Self::Panicked => "panicked",
            Self::ResponseTooLarge => "response-too-large",
        }
    }

    /// The reason called `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }

    /// What it means and what to do, for whoever reads the answer.
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::MissingKey => "this operation needs an idempotency key: send a new random one",
            Self::BadKey => "the idempotency key is not valid",
            Self::KeyOutOfTime => {
                "the time that the idempotency key carries is outside the time for which answers are kept, so this request was not run"
            }
            Self::BadTtl => "the time to live is not valid",
            Self::Unscoped => "the caller cannot be told apart from others",
            Self::Unverified => {
                "the token does not verify, so this request was not run: get a new token and repeat the request with the same key"
            }
            Self::RequestTooLarge => "the request body is larger than keyed requests may be here",
            Self::RequestUnreadable => "the request body could not be read to its end",
            Self::RequestEncoded => {
                "the request body is encoded, as its Content-Encoding says, but what it holds decides which key counts or whose request it is, so this request was not run: repeat it with the same key and without Content-Encoding"
            }
            Self::Mismatch => {
                "this idempotency key was already used for a different request: use a new key"
            }
            Self::OtherCredential => {
                "this idempotency key was already used with another credential: repeat the request with the original one, or use a new key"
            }
            Self::InProgress => {
                "a request with this idempotency key is still running: retry later with the same key"
            }
            Self::TooManyWaiters => {
                "too many requests wait for this idempotency key: retry later with the same key"
            }
            Self::TooManyRunning => {
                "this server runs as many keyed requests as it may at a time, so this request was not run: retry later with the same key"
            }
            Self::TooMuchBuffered => {
                "this server holds as many request bodies in memory as it may at a time, so this request was not run: retry later with the same key"
            }
            Self::OverQuota => {
                "this caller keeps as many idempotency keys or bytes as it may, so this request was not run: retry later with the same key"
            }
            Self::TooManyBadRequests => {
                "this caller sent too many requests with bad or reused idempotency keys, so this request was not run: retry later with the same key"
            }
            Self::OutcomeUnknown => "it is not known whether the original request took effect",
            Self::TimedOut => "the operation did not finish in time and may have taken effect",
            Self::NotRun => "the operation could not be started",
            Self::NotStored => {
                "the operation ran, but its result is not stored yet: retry with the same key"
            }
            Self::StoreDown => {
                "idempotency cannot be guaranteed right now, so this request was not run: retry with the same key"
            }
            Self::ShuttingDown => {
                "this server is shutting down and did not run this request: retry with the same key"
            }
            Self::Panicked => "the operation failed unexpectedly",
            Self::ResponseTooLarge => {
                "the operation ran, but its response was too large to store for replay"
            }
        }
    }
}

impl Refusal {
    /// A refusal in the reason's own words.
    pub const fn new(reason: Reason) -> Self {
        Self {
            reason,
            detail: Cow::Borrowed(reason.explanation()),
            retry_after: None,
            retryable: None,
            original: None,
        }
    }

    /// An operation that may have taken effect, under a policy that says what follows: `reason` is
    /// [`OutcomeUnknown`](Reason::OutcomeUnknown) or [`TimedOut`](Reason::TimedOut).
    pub(crate) fn in_doubt(reason: Reason, on_lapse: OnLapse) -> Self {
        let mut refusal = Self::new(reason).because(match on_lapse {
            OnLapse::Rerun => MAY_RUN_AGAIN,
            OnLapse::Hold => {
                "it is not run again under this key; do not repeat it under a new one: an operator must find out and resolve it"
            }
        });
        refusal.retryable = Some(on_lapse == OnLapse::Rerun);
        refusal
    }

    /// An operation that may have taken effect, of which the next attempt finds out first whether it
    /// did.
    pub(crate) fn to_be_reconciled(reason: Reason) -> Self {
        let mut refusal = Self::new(reason).because(FOUND_OUT_FIRST);
        refusal.retryable = Some(true);
        refusal
    }

    /// The `attempt`th one under a key, which did not start. Those before it may have taken effect: then
    /// what follows is what follows for them.
    pub(crate) fn not_started(attempt: u32, on_lapse: OnLapse, is_reconciled: bool) -> Self {
        let not_run = Self::new(Reason::NotRun);
        let earlier =
            |then| format!("an earlier attempt under this key {MAY_HAVE_TAKEN_EFFECT}, and {then}");
        match (attempt, on_lapse) {
            (0..=1, _) => not_run.because("this request was not run: retry with the same key"),
            _ if is_reconciled => not_run.because(earlier(FOUND_OUT_FIRST)),
            (_, OnLapse::Rerun) => not_run.because(earlier(MAY_RUN_AGAIN)),
            // It is not run again: as in doubt as before.
            (_, OnLapse::Hold) => Self::in_doubt(Reason::OutcomeUnknown, on_lapse),
        }
    }

    /// The same with more to say: what was wrong and where.
    #[must_use]
    pub fn because(mut self, why: impl fmt::Display) -> Self {
        self.detail = format!("{}: {why}", self.reason.explanation()).into();
        self
    }

    /// The same with a time to try again.
    #[must_use]
    pub const fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Refusal {}
