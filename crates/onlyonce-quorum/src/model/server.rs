//! A whole server as a pure state machine: who it is, whether it votes, and its registers.

use std::time::Duration;

use super::Model;
use crate::acceptor::Fault;
use crate::epoch::EPOCH_FIRST;
use crate::seat::{Deed, Identity, Votes};

/// A set is founded so soon after its servers were seen without an identity.
const FOUND_WITHIN: Duration = Duration::from_secs(30);

/// One server of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ModelServer {
    seat: String,
    members: String,
    epoch: u64,
    votes: Votes,
    joined: Duration,
    registers: Model,
}

/// Whom a vote is asked of, in which epoch, and until when by the server's own clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pass {
    /// The server's place.
    pub seat: String,
    /// The set of servers.
    pub members: String,
    /// The epoch.
    pub epoch: u64,
    /// When it is too late: what was asked so long ago belongs to records that may be over.
    pub until: Option<Duration>,
}

/// Why a server did not vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turned {
    /// It is not the one that was asked, or has no vote.
    Stranger(Fault),
    /// It was asked too long ago.
    Late,
}

impl ModelServer {
    /// A founder of a set, which votes.
    pub fn founder(seat: &str, members: &str) -> Self {
        Self {
            seat: seat.to_owned(),
            members: members.to_owned(),
            epoch: EPOCH_FIRST,
            votes: Votes::Yes,
            ..Self::default()
        }
    }

    /// Whether it votes.
    pub fn votes(&self) -> Votes {
        self.votes
    }

    /// The epoch that it is in.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Its registers if it may vote, at the moment `now` of its clock.
    pub fn vote(&mut self, pass: &Pass, now: Duration) -> Result<&mut Model, Turned> {
        if let Some(fault) = self.stranger(pass) {
            return Err(Turned::Stranger(fault));
        }
        match pass.until.is_some_and(|until| now > until) {
            true => Err(Turned::Late),
            false => Ok(&mut self.registers),
        }
    }

    fn stranger(&self, pass: &Pass) -> Option<Fault> {
        if self.votes == Votes::Nothing {
            return Some(Fault::NotAdmitted);
        }
        if self.seat != pass.seat || self.members != pass.members {
            return Some(Fault::OtherSet(self.members.clone()));
        }
        if self.votes != Votes::Yes {
            return Some(Fault::NotAdmitted);
        }
        match self.epoch.cmp(&pass.epoch) {
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => Some(Fault::Raised(self.epoch)),
            std::cmp::Ordering::Less => Some(Fault::Behind(self.epoch)),
        }
    }

    /// [`Seat::identify`](crate::Seat::identify) at the moment `now` of this server's clock.
    pub fn identify(&mut self, seat: &str, members: &str, deed: &Deed, now: Duration) -> Identity {
        let is_ours = self.seat == seat && self.members == members;
        match deed {
            Deed::Read => {}
            Deed::Found { seen_at } => {
                if self.votes == Votes::Nothing && now.abs_diff(*seen_at) <= FOUND_WITHIN {
                    self.join(seat, members, EPOCH_FIRST, now);
                    self.votes = Votes::Founding;
                }
            }
            Deed::Seat => {
                if is_ours && self.votes == Votes::Founding {
                    self.votes = Votes::Yes;
                }
            }
            Deed::Join { epoch } => {
                if self.votes == Votes::Nothing {
                    self.join(seat, members, *epoch, now);
                }
            }
            Deed::Admit {
                epoch,
                round,
                joined,
            } => {
                let is_same = self.epoch == *epoch && self.joined == *joined;
                if is_ours && is_same && self.votes == Votes::Waiting {
                    self.votes = Votes::Yes;
                    self.registers.raise_floor(*round, now);
                }
            }
            Deed::Raise { epoch, was } => {
                let is_known = self.members == *was || self.members == members;
                let is_voter = self.votes != Votes::Nothing;
                if self.seat == seat && is_known && is_voter && self.epoch < *epoch {
                    members.clone_into(&mut self.members);
                    self.epoch = *epoch;
                }
            }
            Deed::Demote { epoch } => {
                if is_ours && self.epoch == *epoch && self.votes == Votes::Yes {
                    self.votes = Votes::Waiting;
                    self.joined = now;
                }
            }
        }
        self.identity(now)
    }

    fn join(&mut self, seat: &str, members: &str, epoch: u64, now: Duration) {
        seat.clone_into(&mut self.seat);
        members.clone_into(&mut self.members);
        self.epoch = epoch;
        self.votes = Votes::Waiting;
        self.joined = now;
    }

    fn identity(&self, now: Duration) -> Identity {
        Identity {
            now,
            seat: self.seat.clone(),
            members: self.members.clone(),
            epoch: self.epoch,
            votes: self.votes,
            joined: self.joined,
            longest: self.registers.longest,
            round: self.registers.round_max,
            cast: self.registers.cast.0,
        }
    }
}
