//! What the store replied, as far as the protocol says what it must be.

use onlyonce_core::{Claimed, Completed, Record, Released, Renewed, State};

use super::scenario::ticks;
use super::{Attempt, Tick};

/// A reply, without what people read in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Granted(u32),
    Taken,
    Dead,
    Kept,
    Lost,
    Stored,
    Found,
    Absent,
    Ended,
}

impl Reply {
    pub(super) fn of_claim(claimed: &Claimed) -> Self {
        match claimed {
            Claimed::Granted { lease, .. } => Self::Granted(lease.attempt),
            Claimed::Taken(_) => Self::Taken,
            Claimed::Dead => Self::Dead,
        }
    }

    pub(super) fn of_renewal(renewed: &Renewed) -> Self {
        match renewed {
            Renewed::Kept => Self::Kept,
            Renewed::Lost | Renewed::Busy => Self::Lost,
        }
    }

    pub(super) fn of_completion(completed: &Completed) -> Self {
        match completed {
            Completed::Stored(_) => Self::Stored,
            Completed::Found(_) => Self::Found,
            Completed::Absent => Self::Absent,
        }
    }

    pub(super) fn of_release(released: &Released) -> Self {
        match released {
            Released::Ended => Self::Ended,
            Released::Found(_) => Self::Found,
        }
    }
}

/// A live record, as the protocol knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub(super) who: Attempt,
    pub(super) number: u32,
    pub(super) keep_left: Tick,
    pub(super) stands: Stands,
}

/// Where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stands {
    Pending {
        lease_left: Tick,
    },
    /// Finished with the answer of this process.
    Finished(usize),
    Unknown,
}

impl View {
    pub(super) fn of(record: &Record) -> Self {
        Self {
            who: Attempt::of(&record.token),
            number: record.attempt,
            keep_left: ticks(record.keep_left),
            stands: match &record.state {
                State::Pending { lease_left } => Stands::Pending {
                    lease_left: ticks(*lease_left),
                },
                State::Done(response) | State::Failed(response) => {
                    Stands::Finished(whose(&response.body))
                }
                State::Unknown => Stands::Unknown,
            },
        }
    }
}

/// Whose answer has this body: each process answers with its own number.
pub(super) fn whose(body: &[u8]) -> usize {
    body.first().copied().map_or(usize::MAX, usize::from)
}
