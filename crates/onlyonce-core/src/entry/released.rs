//! Tokens that were released and must not come back: a late, duplicated claim cannot revive them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::BuildHasherDefault;
use std::time::Duration;

use crate::entry::Change;
use crate::record::Token;
use crate::slot::{Slot, SlotHasher};
use crate::store::{Lease, Release};

/// Released tokens and until when they are dead. For a store whose claims all come from its own
/// process, this may live in memory: a late claim dies with the process too.
#[derive(Clone, Debug, Default)]
pub struct ReleasedTokens {
    dead: HashMap<(Slot, Token), Duration, BuildHasherDefault<SlotHasher>>,
    due: BinaryHeap<Reverse<(Duration, Slot, Token)>>,
}

impl ReleasedTokens {
    /// Whether this token is dead at this moment.
    pub fn is_dead(&self, slot: &Slot, token: &Token, now: Duration) -> bool {
        // Nothing is dead most of the time: then nothing is hashed.
        !self.dead.is_empty()
            && self
                .dead
                .get(&(*slot, *token))
                .is_some_and(|until| *until > now)
    }

    /// Notes the token of a release that did `change` to its entry, for one lease. A claim that
    /// has not arrived yet can be given back too, but not as unknown.
    pub fn add(&mut self, lease: &Lease, why: Release, change: Change, now: Duration) {
        if why == Release::Unknown && change == Change::Nothing {
            return;
        }
        let until = now.saturating_add(lease.lease_for);
        self.dead.insert((lease.slot, lease.token), until);
        self.due.push(Reverse((until, lease.slot, lease.token)));
    }

    /// Every token that is remembered, in no order, and until when it is dead.
    pub fn iter(&self) -> impl Iterator<Item = (&Slot, &Token, Duration)> {
        let dead = self.dead.iter();
        dead.map(|((slot, token), until)| (slot, token, *until))
    }

    /// Forgets at most `tokens_max` tokens that have been dead long enough.
    pub fn tidy(&mut self, tokens_max: usize, now: Duration) {
        for _ in 0..tokens_max {
            let Some(Reverse((until, slot, token))) = self.due.peek().copied() else {
                break;
            };
            if until > now {
                break;
            }
            self.due.pop();
            // Released again meanwhile, it stays until its later deadline.
            let key = (slot, token);
            if self.dead.get(&key).is_some_and(|until| *until <= now) {
                self.dead.remove(&key);
            }
        }
    }
}
