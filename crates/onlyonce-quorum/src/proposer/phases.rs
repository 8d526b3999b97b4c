//! The two phases of an attempt: promises, and what is then accepted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use onlyonce_core::StoreError;

use super::gather::{Need, gather};
use super::{Answered, Decision, Ended, Manner, Promise, Proposer, Tries};
use crate::acceptor::{Accept, Accepted, Acceptor, Prepare, Prepared, Seen};
use crate::finding::Found;

impl Proposer {
    /// What a majority said; nothing if another ballot is in the way.
    pub(super) async fn prepare<T: Clone>(
        &self,
        ask: &Prepare,
        tries: &mut Tries<T>,
    ) -> Result<Option<Answered>, StoreError> {
        let majority = self.majority();
        let send = |acceptor: Arc<dyn Acceptor>| {
            let ask = ask.clone();
            async move { acceptor.prepare(&ask).await }
        };
        let enough = |answers: &[Prepared]| need_to_promise(answers, majority);
        let gathered = gather(&self.acceptors, send, enough).await;
        let Some(answers) = self.enough(gathered)? else {
            return Ok(None);
        };
        for answer in &answers {
            if let Prepared::Refused(ballot) = answer {
                self.floor.fetch_max(ballot.round(), Ordering::Relaxed);
            }
        }
        Ok(tries.answered(answers, majority))
    }

    /// Has a majority accept what follows from what was found.
    pub(super) async fn write<T: Clone>(
        &self,
        key: &Arc<[u8]>,
        manner: Manner,
        promise: Promise,
        found: &Found,
        decision: Decision<T>,
        tries: &mut Tries<T>,
    ) -> Result<Ended<T>, StoreError> {
        let entropy = &*self.entropy;
        let Promise { ballot, epoch } = promise;
        let asked = tries.propose(key, manner, ballot, epoch, found, &decision, entropy);
        let Some(ask) = asked else {
            return Ok(Ended::Done(decision.answer));
        };
        if !self.accept(&ask, tries).await? {
            return Ok(Ended::Beaten);
        }
        if let Some(ballot) = ask.next {
            let promise = Promise { ballot, epoch };
            self.ahead.keep(key, promise, &ask.value, self.clock.now());
        }
        Ok(Ended::Done(decision.answer))
    }

    /// Whether a majority has accepted.
    async fn accept<T: Clone>(
        &self,
        ask: &Accept,
        tries: &mut Tries<T>,
    ) -> Result<bool, StoreError> {
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
        let gathered = gather(&self.acceptors, send, enough).await;
        let answers = self.enough(gathered)?;
        Ok(answers.is_some_and(|answers| tries.is_accepted(answers, majority)))
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
