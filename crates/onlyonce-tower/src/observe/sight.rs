//! What can be seen of a request that passes: what enforcing would have made of it, and what it and
//! its answer were like.

use onlyonce_core::Reason;

/// What was seen of a request. Every covered request is seen as exactly one of the kinds that are a
/// [verdict](Self::is_verdict); the others come besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Sight {
    /// No key, and none needed: it would have passed too.
    Unkeyed,
    /// A key that was not seen before: it would have run.
    First,
    /// A repeat: it would have got the stored answer.
    Replay,
    /// A repeat while its first request ran: it would have waited for that one's answer.
    Attached,
    /// A repeat of a request whose answer is not one to store: it would have run again.
    Rerun,
    /// It would have been refused.
    Refused(Reason),
    /// It could not be looked at: there was no room for its body, or nobody read it to its end.
    Unseen,
    /// Its key looks easy to guess.
    WeakKey,
    /// Its answer was too large to store: a repeat would have been told that it ran, without it.
    AnswerTooLarge,
    /// It went to the service although enforcing would have kept it from that: a repeat under the same
    /// key that ran.
    RanAgain,
}

impl Sight {
    /// What it is called in metrics, logs and the admin API: one word that does not change.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unkeyed => "unkeyed",
            Self::First => "first",
            Self::Replay => "replay",
            Self::Attached => "attached",
            Self::Rerun => "rerun",
            Self::Refused(reason) => reason.name(),
            Self::Unseen => "unseen",
            Self::WeakKey => "weak-key",
            Self::AnswerTooLarge => "answer-too-large",
            Self::RanAgain => "ran-again",
        }
    }

    /// Whether it says what would have become of the request, rather than what it was like.
    pub const fn is_verdict(self) -> bool {
        match self {
            Self::Unkeyed
            | Self::First
            | Self::Replay
            | Self::Attached
            | Self::Rerun
            | Self::Refused(_)
            | Self::Unseen => true,
            Self::WeakKey | Self::AnswerTooLarge | Self::RanAgain => false,
        }
    }

    /// Whether it is said of a request with a key, good or bad, that could be looked at.
    pub const fn has_key(self) -> bool {
        !matches!(
            self,
            Self::Unkeyed
                | Self::Unseen
                | Self::Refused(
                    Reason::MissingKey | Reason::RequestUnreadable | Reason::RequestEncoded
                )
        )
    }

    /// Whether it is out of the ordinary, so that an example of it helps.
    pub(super) const fn has_examples(self) -> bool {
        !matches!(self, Self::Unkeyed | Self::First)
    }

    /// Whether enforcing would have kept a good repeat from running, so that running it is once too
    /// often.
    pub(super) const fn is_kept_from_running(self) -> bool {
        match self {
            Self::Replay
            | Self::Attached
            | Self::Refused(
                Reason::InProgress | Reason::OutcomeUnknown | Reason::ResponseTooLarge,
            ) => true,
            Self::Unkeyed
            | Self::First
            | Self::Rerun
            | Self::Refused(_)
            | Self::Unseen
            | Self::WeakKey
            | Self::AnswerTooLarge
            | Self::RanAgain => false,
        }
    }
}
