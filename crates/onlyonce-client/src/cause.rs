//! Why an operation is not done yet, or never will be: one word for what eight kinds of services
//! say in their own ways, and what follows from it.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use onlyonce_core::Reason;

use crate::reply::Reply;

/// Why an attempt did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The key was used for another request. A retry would get the same answer.
    Conflict,
    /// The same operation is running right now.
    InProgress,
    /// The service does not know whether it ran: somebody must find out.
    OutcomeUnknown,
    /// It may have run, so long ago that the service may have forgotten the key: a retry could run
    /// it again.
    Expired,
    /// The service does not take a body of this size.
    RequestTooLarge,
    /// It ran, and its answer was too large to be kept for a retry.
    ResponseTooLarge,
    /// The service cannot reach the store that guards it: this attempt did not run.
    StoreDown,
    /// The service says that this attempt did not run, and to try again.
    NotRun,
    /// It ran, but its answer is not stored yet: a retry gets it.
    NotStored,
    /// Overloaded, or a proxy that has no answer.
    Unavailable,
    /// The caller's proof of identity is missing or too old.
    Unauthorised,
    /// The service said no.
    Rejected,
    /// The service failed, and might not the next time.
    Failed,
    /// The service failed, and keeps that as its answer.
    FailedForGood,
    /// No connection: nothing of this attempt was sent.
    Unreachable,
    /// No answer, or a broken one: it may have run.
    Interrupted,
    /// What answered is not the service, as far as can be told: a redirect, a login page, a network
    /// that wants a sign-in. What became of the operation is unknown.
    NotTheService,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Conflict,
        Self::InProgress,
        Self::OutcomeUnknown,
        Self::Expired,
        Self::RequestTooLarge,
        Self::ResponseTooLarge,
        Self::StoreDown,
        Self::NotRun,
        Self::NotStored,
        Self::Unavailable,
        Self::Unauthorised,
        Self::Rejected,
        Self::Failed,
        Self::FailedForGood,
        Self::Unreachable,
        Self::Interrupted,
        Self::NotTheService,
    ];

    /// Its name, in metrics and on disk.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::InProgress => "in-progress",
            Self::OutcomeUnknown => "outcome-unknown",
            Self::Expired => "expired",
            Self::RequestTooLarge => "request-too-large",
            Self::ResponseTooLarge => "response-too-large",
            Self::StoreDown => "store-down",
            Self::NotRun => "not-run",
            Self::NotStored => "not-stored",
            Self::Unavailable => "unavailable",
            Self::Unauthorised => "unauthorised",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
            Self::FailedForGood => "failed-for-good",
            Self::Unreachable => "unreachable",
            Self::Interrupted => "interrupted",
            Self::NotTheService => "not-the-service",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.name() == name)
    }

    /// Whether the same request under the same key can succeed later.
    pub const fn is_retryable(self) -> bool {
        match self {
            Self::InProgress
            | Self::StoreDown
            | Self::NotRun
            | Self::NotStored
            | Self::Unavailable
            | Self::Failed
            | Self::Unreachable
            | Self::Interrupted
            | Self::NotTheService => true,
            Self::Conflict
            | Self::OutcomeUnknown
            | Self::Expired
            | Self::RequestTooLarge
            | Self::ResponseTooLarge
            | Self::Unauthorised
            | Self::Rejected
            | Self::FailedForGood => false,
        }
    }

    /// Whether the operation may be running at this moment, so that it is worth asking before it is sent
    /// again.
    pub(crate) const fn may_still_run(self) -> bool {
        match self {
            Self::InProgress | Self::Interrupted => true,
            Self::Conflict
            | Self::OutcomeUnknown
            | Self::Expired
            | Self::RequestTooLarge
            | Self::ResponseTooLarge
            | Self::StoreDown
            | Self::NotRun
            | Self::NotStored
            | Self::Unavailable
            | Self::Unauthorised
            | Self::Rejected
            | Self::Failed
            | Self::FailedForGood
            | Self::Unreachable
            | Self::NotTheService => false,
        }
    }

    /// Whether the attempt that ended like this may have taken effect. Of attempts before it,
    /// [`Failure::may_have_run`] knows.
    pub const fn may_have_run(self) -> bool {
        match self {
            Self::InProgress
            | Self::OutcomeUnknown
            | Self::Expired
            | Self::ResponseTooLarge
            | Self::NotStored
            | Self::Unavailable
            | Self::Failed
            | Self::FailedForGood
            | Self::Interrupted
            | Self::NotTheService => true,
            Self::Conflict
            | Self::RequestTooLarge
            | Self::StoreDown
            | Self::NotRun
            | Self::Unauthorised
            | Self::Rejected
            | Self::Unreachable => false,
        }
    }
}

impl From<Reason> for Cause {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::MissingKey
            | Reason::BadKey
            | Reason::BadTtl
            | Reason::Unscoped
            | Reason::RequestEncoded => Self::Rejected,
            Reason::Unverified => Self::Unauthorised,
            Reason::RequestTooLarge => Self::RequestTooLarge,
            Reason::Mismatch | Reason::OtherCredential => Self::Conflict,
            Reason::InProgress | Reason::TooManyWaiters => Self::InProgress,
            // It was not run now; whether it was before, nobody keeps any more.
            Reason::KeyOutOfTime | Reason::OutcomeUnknown => Self::OutcomeUnknown,
            Reason::TimedOut => Self::Interrupted,
            Reason::RequestUnreadable
            | Reason::NotRun
            | Reason::ShuttingDown
            | Reason::TooManyRunning
            | Reason::TooMuchBuffered
            | Reason::OverQuota
            | Reason::TooManyBadRequests => Self::NotRun,
            Reason::NotStored => Self::NotStored,
            Reason::StoreDown => Self::StoreDown,
            Reason::Panicked => Self::FailedForGood,
            Reason::ResponseTooLarge => Self::ResponseTooLarge,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Conflict => "the key was already used for another request: use a new one",
            Self::InProgress => "the same operation is still running: retry with the same key",
            Self::OutcomeUnknown => {
                "the service does not know whether the operation ran: find out before sending it again"
            }
            Self::Expired => {
                "the operation may have run so long ago that the service has forgotten its key: find out before sending it again"
            }
            Self::RequestTooLarge => "the service does not take a body of this size",
            Self::ResponseTooLarge => "the operation ran, but its answer could not be kept",
            Self::StoreDown => "the service cannot guard its operations now: retry with the same key",
            Self::NotRun => "this attempt did not run: retry with the same key",
            Self::NotStored => "the operation ran: retry with the same key to hear its answer",
            Self::Unavailable => "the service is not available now: retry with the same key",
            Self::Unauthorised => "the service does not accept the credential: renew it",
            Self::Rejected => "the service rejected the operation",
            Self::Failed => "the service failed: retry with the same key",
            Self::FailedForGood => "the service failed and keeps that as its answer",
            Self::Unreachable => "the service cannot be reached: retry with the same key",
            Self::Interrupted => "no whole answer came: retry with the same key",
            Self::NotTheService => {
                "what answered is not the service: sign in to the network or correct the address, then retry with the same key"
            }
        })
    }
}

/// An attempt, or several, that did not succeed.
#[derive(Debug)]
#[non_exhaustive]
pub struct Failure {
    /// Why.
    pub cause: Cause,
    /// What the service or the network said, cut short.
    pub detail: String,
    /// How long the service asks to be left alone.
    pub retry_after: Option<Duration>,
    /// How often it was tried.
    pub attempts: u32,
    /// The service's answer, if there was one.
    pub reply: Option<Box<Reply>>,
    /// Whether an attempt before this one may have taken effect, as far as is known.
    pub(crate) is_earlier_open: bool,
    pub(crate) source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    pub(crate) fn new(cause: Cause, detail: impl Into<String>) -> Self {
        Self {
            cause,
            detail: detail.into(),
            retry_after: None,
            attempts: 0,
            reply: None,
            is_earlier_open: false,
            source: None,
        }
    }

    /// Whether the operation may have taken effect: in this attempt, in one before it of the same
    /// [`send`](crate::Sender::send), or in one that the service speaks of.
    pub fn may_have_run(&self) -> bool {
        self.cause.may_have_run() || self.is_earlier_open
    }

    /// The same after other attempts. An answer that the service had kept is the answer to them too.
    pub(crate) fn after(self, may_have_run: bool) -> Self {
        let is_kept = self.reply.as_ref().is_some_and(|reply| reply.is_replayed());
        Self {
            is_earlier_open: self.is_earlier_open || (may_have_run && !is_kept),
            ..self
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.cause, f)?;
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        if self.is_earlier_open && !self.cause.may_have_run() {
            f.write_str("; an earlier attempt may have taken effect")?;
        }
        Ok(())
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}
