//! How an operation ended, as a label with few values.

use onlyonce_core::operate::{Resolved, Stats, Swept};
use onlyonce_core::{
    Claimed, Completed, Record, Released, Renewed, Slot, StoreError, StoreErrorKind,
};

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// A claim got the slot.
    Granted,
    /// A claim found the slot taken.
    Taken,
    /// A claim came with a token that had been released.
    Dead,
    /// A lease goes on.
    Kept,
    /// A lease is no longer ours.
    Lost,
    /// A renewal found the record in a transaction's hands.
    Busy,
    /// An answer was stored.
    Stored,
    /// Something was there: what was asked for, or what was in the way.
    Found,
    /// Nothing was there.
    Absent,
    /// A claim is over.
    Ended,
    /// It was done.
    Ok,
    /// The caller went away before the answer: a timeout outside, or a client that hung up.
    Dropped,
    /// The store could not be reached, or did not answer.
    Unavailable,
    /// The store is at its bound.
    Full,
    /// The answer is larger than the store takes.
    TooLarge,
    /// What is stored cannot be read.
    Corrupt,
    /// Something that every promise rests on has changed.
    Unsafe,
    /// Another error.
    Failed,
}

impl Outcome {
    /// Every outcome, in the order of their numbers.
    pub const ALL: [Self; 18] = [
        Self::Granted,
        Self::Taken,
        Self::Dead,
        Self::Kept,
        Self::Lost,
        Self::Busy,
        Self::Stored,
        Self::Found,
        Self::Absent,
        Self::Ended,
        Self::Ok,
        Self::Dropped,
        Self::Unavailable,
        Self::Full,
        Self::TooLarge,
        Self::Corrupt,
        Self::Unsafe,
        Self::Failed,
    ];

    /// Its name, as a metric's label has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Taken => "taken",
            Self::Dead => "dead",
            Self::Kept => "kept",
            Self::Lost => "lost",
            Self::Busy => "busy",
            Self::Stored => "stored",
            Self::Found => "found",
            Self::Absent => "absent",
            Self::Ended => "ended",
            Self::Ok => "ok",
            Self::Dropped => "dropped",
            Self::Unavailable => "unavailable",
            Self::Full => "full",
            Self::TooLarge => "too_large",
            Self::Corrupt => "corrupt",
            Self::Unsafe => "unsafe",
            Self::Failed => "failed",
        }
    }

    /// Whether the store failed. Losing a race, and a caller that went away, are no failures.
    pub const fn is_error(self) -> bool {
        match self {
            Self::Unavailable
            | Self::Full
            | Self::TooLarge
            | Self::Corrupt
            | Self::Unsafe
            | Self::Failed => true,
            Self::Granted
            | Self::Taken
            | Self::Dead
            | Self::Kept
            | Self::Lost
            | Self::Busy
            | Self::Stored
            | Self::Found
            | Self::Absent
            | Self::Ended
            | Self::Ok
            | Self::Dropped => false,
        }
    }

    pub(super) fn of<T: Tells>(answer: &Result<T, StoreError>) -> Self {
        match answer {
            Ok(answer) => answer.outcome(),
            Err(error) => match error.kind {
                StoreErrorKind::Unavailable => Self::Unavailable,
                StoreErrorKind::Full => Self::Full,
                StoreErrorKind::TooLarge => Self::TooLarge,
                StoreErrorKind::Corrupt => Self::Corrupt,
                StoreErrorKind::Unsafe => Self::Unsafe,
                _ => Self::Failed,
            },
        }
    }
}

/// An answer of a store that tells how the operation ended.
pub(super) trait Tells {
    fn outcome(&self) -> Outcome;
}

impl Tells for Claimed {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Granted { .. } => Outcome::Granted,
            Self::Taken(_) => Outcome::Taken,
            Self::Dead => Outcome::Dead,
        }
    }
}

impl Tells for Renewed {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Kept => Outcome::Kept,
            Self::Lost => Outcome::Lost,
            Self::Busy => Outcome::Busy,
        }
    }
}

impl Tells for Completed {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Stored(_) => Outcome::Stored,
            Self::Found(_) => Outcome::Found,
            Self::Absent => Outcome::Absent,
        }
    }
}

impl Tells for Released {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Ended => Outcome::Ended,
            Self::Found(_) => Outcome::Found,
        }
    }
}

impl Tells for Resolved {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Stored => Outcome::Stored,
            Self::Found(_) => Outcome::Found,
            Self::Absent => Outcome::Absent,
        }
    }
}

impl Tells for Option<Record> {
    fn outcome(&self) -> Outcome {
        self.is_some().outcome()
    }
}

impl Tells for Option<Vec<u8>> {
    fn outcome(&self) -> Outcome {
        self.is_some().outcome()
    }
}

/// Whether there was a record to forget or to extend.
impl Tells for bool {
    fn outcome(&self) -> Outcome {
        if *self {
            Outcome::Found
        } else {
            Outcome::Absent
        }
    }
}

macro_rules! tells_ok {
    ($($answer:ty),+) => {$(
        impl Tells for $answer {
            fn outcome(&self) -> Outcome {
                Outcome::Ok
            }
        }
    )+};
}

tells_ok!(
    (),
    usize,
    Stats,
    Swept,
    Vec<u8>,
    Vec<(Slot, Record)>,
    Vec<(Slot, u64)>
);
