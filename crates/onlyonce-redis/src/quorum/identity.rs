//! Who a server is: its place, the set of servers, the set's epoch, and whether it votes. It is
//! written into the server beside its registers, so that who lost these has lost that too.

use std::time::Duration;

use ::redis::Value;
use onlyonce_quorum::Fault;

use super::member::{Member, bytes};

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    /// Its own time, in milliseconds since 1970.
    pub(super) now: u64,
    pub(super) seat: String,
    pub(super) members: String,
    pub(super) epoch: u64,
    pub(super) votes: Votes,
    joined: u64,
    longest: u64,
    /// The highest round that it has promised for anything.
    pub(super) round: u64,
}

/// Whether a server votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Votes {
    /// It has no identity: it is new, or has lost its data.
    Nothing,
    /// The set is being made.
    Founding,
    /// It joined a set that was there before.
    Waiting,
    Yes,
}

impl Identity {
    pub(super) fn waited(&self) -> Duration {
        Duration::from_millis(self.now.saturating_sub(self.joined))
    }

    /// The longest time that anything was kept here.
    pub(super) fn longest(&self) -> Duration {
        Duration::from_millis(self.longest)
    }
}

/// What is done to an identity.
pub(super) enum Deed<'a> {
    Read,
    /// Begins a set, if this server was seen without an identity at this moment of its own.
    Found {
        seen_at: u64,
    },
    /// Makes a founder a voter.
    Seat,
    /// Joins a set that is there.
    Join {
        epoch: u64,
    },
    /// Makes one that joined a voter.
    Admit {
        epoch: u64,
        round: u64,
    },
    /// Raises the epoch of a server of this set, or of one that becomes this set.
    Raise {
        epoch: u64,
        was: &'a str,
    },
}

impl Member {
    /// Does it, if it applies, and says who the server is then.
    pub(super) async fn identify(&self, members: &str, deed: Deed<'_>) -> Result<Identity, Fault> {
        let (verb, number, more) = match deed {
            Deed::Read => ("read", 0, String::new()),
            Deed::Found { seen_at } => ("found", seen_at, String::new()),
            Deed::Seat => ("seat", 0, String::new()),
            Deed::Join { epoch } => ("join", epoch, String::new()),
            Deed::Admit { epoch, round } => ("admit", epoch, round.to_string()),
            Deed::Raise { epoch, was } => ("raise", epoch, was.to_owned()),
        };
        let number = number.to_string();
        let args: [&[u8]; 5] = [
            verb.as_bytes(),
            self.seat.as_bytes(),
            members.as_bytes(),
            number.as_bytes(),
            more.as_bytes(),
        ];
        let keys: [&[u8]; 1] = [&self.identity];
        let told = self.run(&self.scripts.identity, &keys, &args);
        read(&told.await?).ok_or_else(|| Fault::Away("its identity is not understood".to_owned()))
    }
}

fn read(told: &[Value]) -> Option<Identity> {
    let text = |at: usize| str::from_utf8(bytes(told.get(at)?)?).ok();
    let number = |at: usize| text(at)?.parse::<u64>().ok();
    let Value::Int(now) = told.first()? else {
        return None;
    };
    Some(Identity {
        now: u64::try_from(*now).ok()?,
        seat: text(1)?.to_owned(),
        members: text(2)?.to_owned(),
        epoch: number(3)?,
        votes: match text(4)? {
            "" => Votes::Nothing,
            "founding" => Votes::Founding,
            "waiting" => Votes::Waiting,
            "yes" => Votes::Yes,
            _ => return None,
        },
        joined: number(5)?,
        longest: number(6)?,
        round: number(7)?,
    })
}
