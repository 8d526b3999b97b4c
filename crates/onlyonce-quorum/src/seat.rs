//! Who a server is: its place, the set of servers, the set's epoch, and whether it votes. It is written
//! into the server beside its registers, so that who lost these has lost that too.

use std::time::Duration;

use onlyonce_core::async_trait;

use crate::acceptor::Fault;

/// A server as one of a set.
#[async_trait]
pub trait Seat: Send + Sync {
    /// Its place in the set.
    fn name(&self) -> &str;

    /// Does it, if it applies, and says who the server is then. May be repeated.
    async fn identify(&self, members: &str, deed: &Deed) -> Result<Identity, Fault>;
}

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its own date and time, in time since 1970.
    pub now: Duration,
    /// Its place.
    pub seat: String,
    /// The set of servers.
    pub members: String,
    /// The epoch in which it votes.
    pub epoch: u64,
    /// Whether it votes.
    pub votes: Votes,
    /// Since when it has waited, by its own clock.
    pub joined: Duration,
    /// The longest time that it kept anything.
    pub longest: Duration,
    /// The highest round that it has promised for anything.
    pub round: u64,
    /// How often it has voted.
    pub cast: u64,
}

impl Identity {
    /// For how long it has waited.
    pub fn waited(&self) -> Duration {
        self.now.saturating_sub(self.joined)
    }
}

/// Whether a server votes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Votes {
    /// It has no identity: it is new, or has lost its data.
    #[default]
    Nothing,
    /// The set is being made.
    Founding,
    /// It joined a set that was there before, or was found to have lost something.
    Waiting,
    /// It does.
    Yes,
}

/// What is done to an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Nothing.
    Read,
    /// Begins a set, if this server was seen without an identity at this moment of its own.
    Found {
        /// The moment.
        seen_at: Duration,
    },
    /// Makes a founder a voter.
    Seat,
    /// Joins a set that is there.
    Join {
        /// Its epoch.
        epoch: u64,
    },
    /// Makes one that waits a voter, if it has lost nothing since.
    Admit {
        /// The epoch that was raised for it.
        epoch: u64,
        /// The highest round that the others have promised for anything.
        round: u64,
        /// Since when it has waited.
        joined: Duration,
    },
    /// Raises the epoch of a server of this set, or of one that becomes this set.
    Raise {
        /// The new one.
        epoch: u64,
        /// The set that it may belong to so far.
        was: String,
    },
    /// Makes a voter of this epoch wait.
    Demote {
        /// The epoch.
        epoch: u64,
    },
}
