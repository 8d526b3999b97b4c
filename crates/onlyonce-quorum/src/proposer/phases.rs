//! The two phases of an attempt: promises, and what is then accepted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use onlyonce_core::StoreError;

use super::gather::{Need, gather};
use super::{Decision, Ended, Manner, Proposer, Tries};
use crate::acceptor::{Accept, Accepted, Acceptor, Prepare, Prepared, Seen};
use crate::ballot::Ballot;
use crate::finding::Found;

impl Proposer {
    /// What a majority has, and whether all of it promised; nothing if another ballot is in the way.
    pub(super) async fn prepare<T>(
        &self,
        ask: &Prepare,
        tries: &mut Tries<T>,
    ) -> Result<Option<(Found, bool)>, StoreError> {
        let majority = self.majority();
        let send = |acceptor: Arc<dyn Acceptor>| {
            let ask = ask.clone();
            async move { acceptor.prepare(&ask).await }
        };
        let enough = |answers: &[Prepared]| need_to_promise(answers, majority);
        let answers = self.enough(gather(&self.acceptors, send, enough).await)?;
        let (mut promised, mut told) = (Vec::new(), Vec::new());
        for answer in answers {
            match answer {
                Prepared::Promised(seen) => promised.push(seen),
                Prepared::Told(seen) => told.push(seen),
                Prepared::Refused(ballot) => {
                    tries.note(ballot);
                    self.floor.fetch_max(ballot.round(), Ordering::Relaxed);
                }
            }
        }
        for seen in promised.iter().chain(&told) {
            let ballots = [seen.promised, seen.accepted.as_ref().map(|it| it.ballot)];
            ballots.into_iter().flatten().for_each(|it| tries.note(it));
        }
        if promised.len() >= majority {
            return Ok(Some((Found::of(&promised, majority), true)));
        }
        let found = Found::of(&told, majority);
        let is_agreed = told.len() >= majority && found.is_decided;
        Ok(is_agreed.then_some((found, false)))
    }

    /// Has a majority accept what follows from what was found.
    pub(super) async fn write<T: Clone>(
        &self,
        key: &Arc<[u8]>,
        manner: Manner,
        ballot: Ballot,
        found: &Found,
        decision: Decision<T>,
        tries: &mut Tries<T>,
    ) -> Result<Ended<T>, StoreError> {
        let Some(value) = decision.value.clone().or_else(|| found.value.clone()) else {
            return Ok(Ended::Done(decision.answer));
        };
        let next = Ballot::after(Some(ballot), &*self.entropy);
        let ask = Accept {
            key: Arc::clone(key),
            ballot,
            value,
            keep_for: decision.keep_for,
            next: matches!(manner, Manner::Claim | Manner::Holder).then_some(next),
            wake: decision.wake,
            may_be_full: manner == Manner::Claim,
        };
        tries.sent.push((ballot, decision.clone()));
        let is_accepted = self.accept(&ask, tries).await?;
        if !is_accepted {
            return Ok(Ended::Beaten);
        }
        if ask.next.is_some() {
            self.ahead.keep(key, next, &ask.value, self.clock.now());
        }
        Ok(Ended::Done(decision.answer))
    }

    /// Whether a majority has accepted.
    async fn accept<T>(&self, ask: &Accept, tries: &mut Tries<T>) -> Result<bool, StoreError> {
        let majority = self.majority();
        let servers = self.acceptors.len();
        let send = |acceptor: Arc<dyn Acceptor>| {
            let ask = ask.clone();
            async move { acceptor.accept(&ask).await }
        };
        let enough = |answers: &[Accepted]| {
            let yes = answers.iter().filter(|it| **it == Accepted::Yes).count();
            let no = answers.len() - yes;
            Need::more_unless(yes >= majority || no > servers - majority)
        };
        let answers = self.enough(gather(&self.acceptors, send, enough).await)?;
        let mut yes = 0;
        for answer in answers {
            match answer {
                Accepted::Yes => yes += 1,
                Accepted::No(Some(ballot)) => tries.note(ballot),
                Accepted::No(None) => {}
            }
        }
        Ok(yes >= majority)
    }
}

/// A majority that agrees is enough; one that does not may yet.
pub(super) fn need_to_agree(seen: &[Seen], majority: usize) -> Need {
    if seen.len() < majority {
        return Need::More;
    }
    match Found::of(seen, majority).is_decided {
        true => Need::Nothing,
        false => Need::Patience,
    }
}

fn need_to_promise(answers: &[Prepared], majority: usize) -> Need {
    let (mut refused, mut promised, mut told) = (0, Vec::new(), Vec::new());
    for answer in answers {
        match answer {
            Prepared::Promised(seen) => promised.push(seen.clone()),
            Prepared::Told(seen) => told.push(seen.clone()),
            Prepared::Refused(_) => refused += 1,
        }
    }
    if promised.len() >= majority {
        return need_to_agree(&promised, majority);
    }
    if refused >= majority {
        return Need::Nothing;
    }
    match answers.len() < majority {
        true => Need::More,
        false if told.len() >= majority => need_to_agree(&told, majority),
        false => Need::Patience,
    }
}
