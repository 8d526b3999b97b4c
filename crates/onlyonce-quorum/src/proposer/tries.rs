//! What one step has tried, and what follows from the answers it got: everything that a proposer
//! decides, without servers, time or waiting. The proposer does what it says, and so does the model
//! that is explored exhaustively (`docs/model.md`).

use std::sync::Arc;

use onlyonce_core::Entropy;

use super::{Decision, Manner};
use crate::acceptor::{Accept, Accepted, Prepared};
use crate::ballot::Ballot;
use crate::finding::Found;

/// What a step on one register has tried so far.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tries<T> {
    /// A ballot that a server has, or has promised.
    highest: Option<Ballot>,
    /// What was sent to be accepted, and may have been.
    sent: Vec<(Ballot, Decision<T>)>,
}

/// What a majority of the servers said to a prepare.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answered {
    /// What they have.
    pub found: Found,
    /// Whether all of them promised.
    pub is_promised: bool,
}

/// What to do about what was found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Next<T> {
    /// It rests on a decided value: this is the answer.
    Done(T),
    /// Ask again: in a higher round, or for promises.
    Again,
    /// Have it accepted: then the decision's answer is the answer.
    Write(Decision<T>),
}

impl<T> Default for Tries<T> {
    fn default() -> Self {
        Self {
            highest: None,
            sent: Vec::new(),
        }
    }
}

impl<T: Clone> Tries<T> {
    /// A ballot for the next attempt, above everything seen and above this floor.
    pub fn next_ballot(&self, floor: u64, entropy: &dyn Entropy) -> Ballot {
        match self.highest {
            Some(_) => Ballot::after(self.highest, entropy),
            None => Ballot::above(floor, entropy),
        }
    }

    /// What the answers to a prepare mean together; nothing if another ballot is in the way.
    pub fn answered(&mut self, answers: Vec<Prepared>, majority: usize) -> Option<Answered> {
        let (mut promised, mut told) = (Vec::new(), Vec::new());
        for answer in answers {
            match answer {
                Prepared::Promised(seen) => promised.push(seen),
                Prepared::Told(seen) => told.push(seen),
                Prepared::Refused(ballot) => self.note(ballot),
            }
        }
        for seen in promised.iter().chain(&told) {
            let ballots = [seen.promised, seen.accepted.as_ref().map(|it| it.ballot)];
            ballots.into_iter().flatten().for_each(|it| self.note(it));
        }
        if promised.len() >= majority {
            let found = Found::of(&promised, majority);
            let is_promised = true;
            return Some(Answered { found, is_promised });
        }
        let found = Found::of(&told, majority);
        let is_agreed = told.len() >= majority && found.is_decided;
        let is_promised = false;
        is_agreed.then_some(Answered { found, is_promised })
    }

    /// What to do about what was found. `step` decides on it, unless an earlier attempt of this step
    /// was accepted after all.
    pub fn decide<E>(
        &self,
        answered: &Answered,
        step: impl FnOnce(&Found) -> Result<Decision<T>, E>,
    ) -> Result<Next<T>, E> {
        let Answered { found, is_promised } = answered;
        let mine = self.sent.iter().find(|(it, _)| found.ballot == Some(*it));
        let decision = match mine {
            // It is what happened.
            Some((_, decision)) => Decision {
                value: None,
                ..decision.clone()
            },
            None => step(found)?,
        };
        Ok(match (&decision.value, is_promised) {
            (None, _) if found.is_decided => Next::Done(decision.answer),
            (_, false) => Next::Again,
            (_, true) => Next::Write(decision),
        })
    }

    /// What the servers are asked to accept: what was decided, or else what was found, so that it can
    /// no longer be lost. Nothing if there is neither.
    pub fn propose(
        &mut self,
        key: &Arc<[u8]>,
        manner: Manner,
        ballot: Ballot,
        epoch: u64,
        found: &Found,
        decision: &Decision<T>,
        entropy: &dyn Entropy,
    ) -> Option<Accept> {
        let value = decision.value.clone().or_else(|| found.value.clone())?;
        let next = Ballot::after(Some(ballot), entropy);
        self.sent.push((ballot, decision.clone()));
        Some(Accept {
            key: Arc::clone(key),
            ballot,
            epoch,
            value,
            keep_for: decision.keep_for,
            next: matches!(manner, Manner::Claim | Manner::Holder).then_some(next),
            wake: decision.wake,
            may_be_full: manner == Manner::Claim,
        })
    }

    /// Whether a majority has accepted.
    pub fn is_accepted(&mut self, answers: Vec<Accepted>, majority: usize) -> bool {
        let mut yes = 0;
        for answer in answers {
            match answer {
                Accepted::Yes => yes += 1,
                Accepted::No(Some(ballot)) => self.note(ballot),
                Accepted::No(None) => {}
            }
        }
        yes >= majority
    }

    /// How often something was sent to be accepted.
    pub(super) fn sent(&self) -> usize {
        self.sent.len()
    }

    fn note(&mut self, ballot: Ballot) {
        self.highest = self.highest.max(Some(ballot));
    }
}
