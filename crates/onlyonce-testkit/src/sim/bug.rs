//! Bugs that others shipped, planted to show that the checker finds them.

use std::fmt;
use std::str::FromStr;

/// A planted bug. None is in the engine or the memory store: each is a flawed store beneath the
/// witness, or a flawed caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The store does not compare tokens: whoever comes last finishes.
    FencingOff,
    /// A claim is a read, then a write.
    SplitClaim,
    /// A renewal is acknowledged, but the lease is not prolonged.
    NoRenewal,
    /// Retention counts from the claim instead of from the completion.
    RetentionFromClaim,
    /// A completion is accepted while somebody else holds the slot.
    LateCompleteAfterTakeover,
    /// A caller that hangs up cancels its handler.
    HangupCancels,
    /// A completion is acknowledged before it is stored.
    AnswerBeforeStored,
    /// A process that has both slot secrets uses only the new one.
    FormerIgnored,
}

impl Bug {
    /// Every bug there is to plant.
    pub const ALL: [Self; 8] = [
        Self::FencingOff,
        Self::SplitClaim,
        Self::NoRenewal,
        Self::RetentionFromClaim,
        Self::LateCompleteAfterTakeover,
        Self::HangupCancels,
        Self::AnswerBeforeStored,
        Self::FormerIgnored,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FencingOff => "fencing-off",
            Self::SplitClaim => "split-claim",
            Self::NoRenewal => "no-renewal",
            Self::RetentionFromClaim => "retention-from-claim",
            Self::LateCompleteAfterTakeover => "late-complete-after-takeover",
            Self::HangupCancels => "hangup-cancels",
            Self::AnswerBeforeStored => "answer-before-stored",
            Self::FormerIgnored => "former-ignored",
        }
    }
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no bug's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownBug {
    name: String,
}

impl fmt::Display for UnknownBug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Bug::ALL.map(Bug::name).join(", ");
        write!(f, "unknown bug {:?}; there are: {names}", self.name)
    }
}

impl std::error::Error for UnknownBug {}

impl FromStr for Bug {
    type Err = UnknownBug;

    fn from_str(name: &str) -> Result<Self, UnknownBug> {
        Self::ALL
            .into_iter()
            .find(|bug| bug.name() == name)
            .ok_or_else(|| UnknownBug { name: name.into() })
    }
}
