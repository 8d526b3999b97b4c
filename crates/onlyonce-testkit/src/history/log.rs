//! What a process writes down: one line an event, one `write` a line, before the event can have
//! an effect outside. What others can have seen of a killed process is therefore in its log.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::clock::Micros;

mod words;
mod writer;

pub(crate) use self::writer::LogWriter;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When, by CLOCK_MONOTONIC: before the event's effect for what is begun, after it for what
    /// is heard.
    pub at: Micros,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// A worker is there.
    Opened {
        /// Its place.
        node: u16,
        /// How many were there before it.
        life: u16,
        /// The milliseconds since 1970, as its own clock says.
        wall: u64,
    },
    /// A caller asks.
    Called {
        /// Its number.
        call: CallId,
        /// For this key.
        key: u32,
        /// Meaning this.
        payload: u8,
        /// Under these rules.
        terms: Terms,
        /// It runs the work itself, between `begin` and `finish`.
        by_hand: bool,
        /// It belongs to the last round, when all is well again.
        sweep: bool,
    },
    /// A verb is about to be sent to the store.
    Sent {
        /// Its number in this process.
        verb: u64,
        /// Whose.
        token: Short,
        /// What it asks.
        ask: Ask,
    },
    /// The store's reply arrived.
    Replied {
        /// To this verb.
        verb: u64,
        /// What it says.
        reply: Reply,
    },
    /// A handler starts for this call.
    Started {
        /// The call; it starts at most one.
        call: CallId,
        /// Under this claim; nothing if it runs without protection.
        token: Option<Short>,
        /// Which attempt it is told it is.
        attempt: u32,
    },
    /// The handler ended; nobody knows of it yet.
    Ended {
        /// Whose.
        call: CallId,
        /// How.
        ending: Ending,
    },
    /// The handler was dropped before its end.
    Dropped {
        /// Whose.
        call: CallId,
    },
    /// A caller heard an answer.
    Heard {
        /// Which.
        call: CallId,
        /// What.
        heard: Heard,
    },
    /// A caller went away without an answer.
    HungUp {
        /// Which.
        call: CallId,
    },
    /// The process could not do anything for a while: starved, stopped or blocked.
    Late {
        /// Since then.
        since: Micros,
    },
    /// A worker is about to end; whatever still runs in it is dropped.
    Closed,
    /// Something goes wrong on purpose: told by the driver.
    Fault(Fault),
}

/// A call, among those of all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct CallId {
    /// The worker's place.
    pub node: u16,
    /// Its life.
    pub life: u16,
    /// The call's number in it.
    pub number: u32,
}

/// The start of a token: enough to tell those of one history apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Short(pub u64);

/// The rules of a call that the checker must know, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// How long its lease lasts.
    pub lease: u64,
    /// How long its answer is kept.
    pub keep: u64,
    /// What may have run is not run again.
    pub hold: bool,
    /// How long it waits for another's run.
    pub patience: u64,
    /// How long its handler may run.
    pub execution: u64,
}

/// What a verb asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// For the slot of this call.
    Claim {
        /// The call it is for.
        call: CallId,
    },
    /// For more time.
    Renew,
    /// To store an answer.
    Complete {
        /// The answer.
        said: String,
        /// For so many milliseconds.
        keep: u64,
    },
    /// To end the claim: nothing ran.
    GiveBack,
    /// To end the claim: nobody knows.
    Doubt,
}

/// What the store replied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The slot is ours.
    Granted {
        /// 1, or more after a lapse.
        attempt: u32,
        /// Whose lapsed claim it took over.
        overtook: Option<CallId>,
    },
    /// To a claim: it is not ours.
    Taken(Seen),
    /// To a claim: the token is dead.
    Dead,
    /// The lease goes on.
    Kept,
    /// The lease is lost.
    Lost,
    /// To a renewal: nothing was changed, a transaction has the record.
    Busy,
    /// The answer is stored.
    Stored,
    /// To a completion or release: nothing was changed, this is there.
    Found(Seen),
    /// To a completion: nothing is there.
    Absent,
    /// The claim is over.
    Over,
    /// The store failed: whether it acted is unknown.
    Failed,
}

/// A record as a reply showed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Whose it is.
    pub token: Short,
    /// What it means.
    pub payload: u8,
    /// The call it was claimed for.
    pub call: Option<CallId>,
    /// Where it stands.
    pub state: SeenState,
}

/// Where a record stood.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SeenState {
    /// Claimed, with so many milliseconds of its lease left.
    Pending(u64),
    /// Finished with this answer.
    Finished(String),
    /// Nobody knows.
    Unknown,
}

/// How a handler ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// With this answer, which is or is not one to store.
    Finished {
        /// What it says; no two runs say the same.
        said: String,
        /// Whether it is to be stored.
        storable: bool,
    },
    /// By a panic, whose stand-in is or is not one to store.
    Panicked {
        /// Whether it is to be stored.
        storable: bool,
    },
    /// Nothing was done.
    NotRun,
    /// Something may have been done.
    Unknown,
}

/// What a caller heard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Heard {
    /// Its own handler ran.
    Ran {
        /// The answer.
        said: String,
        /// Whether it is told to be stored.
        stored: bool,
    },
    /// Another's answer.
    Replayed {
        /// The answer.
        said: String,
        /// Whose, as the answer tells.
        original: Option<CallId>,
        /// Whether it is told to be stored.
        stored: bool,
    },
    /// A polite no: the reason's name.
    Refused(String),
}

/// What the driver does to a worker or the store. Each is told before it is done; what ends it,
/// after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// A worker is killed.
    Kill {
        /// Its place.
        node: u16,
        /// Its life.
        life: u16,
    },
    /// It is dead.
    Killed {
        /// Its place.
        node: u16,
        /// Its life.
        life: u16,
    },
    /// A worker is stopped, or cut off from the store.
    Stop {
        /// Its place.
        node: u16,
        /// Its life.
        life: u16,
    },
    /// It goes on.
    Continued {
        /// Its place.
        node: u16,
        /// Its life.
        life: u16,
    },
    /// The store is disturbed.
    Store,
    /// It is as before; what was done.
    StoreOver(String),
    /// No more faults from here.
    Healed,
}

/// What a stand-in for a panicked handler says in a log.
pub(crate) const PANICKED: &str = "panicked";

impl fmt::Debug for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}", self.0 >> 48)
    }
}
