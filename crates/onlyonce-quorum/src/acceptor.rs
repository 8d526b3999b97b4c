//! What the proposer asks of a server. One such server is [`Model`](crate::Model), a pure state
//! machine; the scripts of `onlyonce-redis` are the same steps in Lua.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::async_trait;
use thiserror::Error;

use crate::ballot::Ballot;

/// One server of the quorum. Every step is atomic, on disk before it is answered, and may be
/// repeated.
#[async_trait]
pub trait Acceptor: Send + Sync + 'static {
    /// Asks for a promise: nothing of a lower ballot is accepted from then on. Tells what was
    /// accepted so far.
    async fn prepare(&self, ask: &Prepare) -> Result<Prepared, Fault>;

    /// Asks to accept a value. Only a ballot whose promise this server gave and still has is
    /// accepted: a server that forgot a promise cannot break it.
    async fn accept(&self, ask: &Accept) -> Result<Accepted, Fault>;

    /// Tells what was accepted so far, and promises nothing.
    async fn look(&self, ask: &Look) -> Result<Seen, Fault>;

    /// Some of the registers that this server has, from a place that the last answer named. It is a
    /// vote: a server that lost some of them has none to tell.
    async fn names(&self, epoch: u64, from: Option<Cursor>) -> Result<Names, Fault>;

    /// Listens for changes of a register, where that can be had.
    async fn listen(&self, key: &Arc<[u8]>) -> Result<Box<dyn Bell>, Fault>;

    /// Whether the server answers and votes.
    async fn ping(&self) -> Result<(), Fault>;
}

/// Rings when a register changed, or may have.
#[async_trait]
pub trait Bell: Send {
    /// Returns once something changed since listening began, or may have been missed.
    async fn rung(&mut self);
}

/// Where a walk over a server's registers goes on.
pub type Cursor = Vec<u8>;

/// Some of a server's registers.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Their keys. One may come twice.
    pub keys: Vec<Vec<u8>>,
    /// Where to go on; nothing once all were told.
    pub next: Option<Cursor>,
}

/// Asks what was accepted so far.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Look {
    /// Of which register.
    pub key: Arc<[u8]>,
    /// In which epoch.
    pub epoch: u64,
}

/// Asks for a promise.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Prepare {
    /// Of which register.
    pub key: Arc<[u8]>,
    /// For which ballot.
    pub ballot: Ballot,
    /// In which epoch. A server that is in another one does not vote.
    pub epoch: u64,
    /// Promise only if nothing was accepted yet; otherwise only tell.
    pub only_if_new: bool,
    /// Whether the server may refuse because it is out of memory.
    pub may_be_full: bool,
}

/// Asks to accept a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Accept {
    /// For which register.
    pub key: Arc<[u8]>,
    /// In which ballot.
    pub ballot: Ballot,
    /// In which epoch: that of the promise.
    pub epoch: u64,
    /// The value.
    pub value: Bytes,
    /// How long the server keeps it; nothing for ever.
    pub keep_for: Option<Duration>,
    /// The ballot to promise with it, so that its proposer's next step needs no promise.
    pub next: Option<Ballot>,
    /// Whether those who listen are to be woken.
    pub wake: bool,
    /// Whether the server may refuse because it is out of memory.
    pub may_be_full: bool,
}

/// What a server has of a register.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// The server's own date and time, in time since 1970.
    pub wall: Duration,
    /// The highest ballot that it promised.
    pub promised: Option<Ballot>,
    /// What it accepted last.
    pub accepted: Option<Held>,
}

/// A value that a server has accepted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// In which ballot.
    pub ballot: Ballot,
    /// The value.
    pub value: Bytes,
    /// How long ago, by the server's own clock.
    pub elapsed: Duration,
}

/// A server's answer to [`Prepare`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Prepared {
    /// Promised.
    Promised(Seen),
    /// Not promised, because something is there.
    Told(Seen),
    /// Not promised: a higher ballot was.
    Refused(Ballot),
}

/// A server's answer to [`Accept`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Accepted {
    /// Accepted, by this call or an earlier one.
    Yes,
    /// Not accepted: the promise is gone, in favour of this ballot if there is one.
    No(Option<Ballot>),
}

/// Why a server did not vote.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// No answer; whether it acted is unknown.
    #[error("{0}")]
    Away(String),
    /// It has no room for a new register.
    #[error("the server is out of memory")]
    Full,
    /// It lost its data or is new: it votes once it was admitted.
    #[error("the server has lost its data or is new, and was not admitted yet")]
    NotAdmitted,
    /// A server was admitted, and the epoch raised to this one: no vote of before counts together with
    /// one of after.
    #[error("the epoch of the servers was raised")]
    Raised(u64),
    /// It was away when the epoch was raised, and is still in this one.
    #[error("the server is not up to date yet")]
    Behind(u64),
    /// It belongs to another set of servers, or to another place in this one.
    #[error("the server belongs to another set of servers: {0}")]
    OtherSet(String),
    /// Its settings make it unsafe to vote.
    #[error("{0}")]
    Unsafe(String),
}

impl Fault {
    /// What was asked was heard too late to count.
    pub fn late() -> Self {
        Self::Away("the server heard the question too late".to_owned())
    }
}
