//! One step on one register: ask a majority for a promise, decide on what they have, and have a
//! majority accept what follows. An answer is given only when it rests on a decided value.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::{Clock, Entropy, StoreError, Token};

use crate::NAME;
use crate::acceptor::{Acceptor, Fault, Look, Prepare, Seen};
use crate::ballot::Ballot;
use crate::epoch::SharedEpoch;
use crate::finding::Found;
use crate::trouble::{Contended, Shortage};

use self::ahead::{Ahead, AheadPromises};
use self::gather::{Gathered, gather};
use self::phases::need_to_agree;

pub use self::tries::{Answered, Next, Tries};

mod ahead;
mod gather;
mod phases;
mod tries;

/// How long a step is tried against other proposers.
const CONTEND_MAX: Duration = Duration::from_secs(10);
/// The pause before another try, doubled each time.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// What a step wants done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decision<T> {
    /// What is said once it is decided.
    pub answer: T,
    /// What to write, if anything changes.
    pub value: Option<Bytes>,
    /// How long servers keep the value, changed or not; nothing for ever.
    pub keep_for: Option<Duration>,
    /// Whether those who wait are woken.
    pub wake: bool,
}

/// How a step goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Manner {
    /// As a claim: most find nothing, or something that they do not change. Promises are asked for
    /// only where nothing is, and a server that is out of memory may refuse.
    Claim,
    /// As one who holds a claim: what this process wrote last is probably still there, and its
    /// promise came with it.
    Holder,
    /// As anybody else.
    Plain,
}

/// Runs steps on registers.
pub struct Proposer {
    acceptors: Vec<Arc<dyn Acceptor>>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    /// The highest floor that a server has named: new registers begin above it.
    floor: AtomicU64,
    epoch: Arc<SharedEpoch>,
    ahead: AheadPromises,
}

/// What a majority has promised: to accept this ballot, in this epoch. One of another epoch may have been
/// given by a server that has lost it since.
#[derive(Clone, Copy)]
struct Promise {
    ballot: Ballot,
    epoch: u64,
}

/// How an attempt ended.
enum Ended<T> {
    Done(T),
    /// Another proposer was in the way, or the epoch was raised.
    Beaten,
}

impl Proposer {
    /// A proposer to these servers, which are all there are.
    pub fn new(
        acceptors: Vec<Arc<dyn Acceptor>>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        epoch: Arc<SharedEpoch>,
    ) -> Self {
        Self {
            acceptors,
            clock,
            entropy,
            floor: AtomicU64::new(0),
            epoch,
            ahead: AheadPromises::default(),
        }
    }

    /// How many servers are a majority.
    pub fn majority(&self) -> usize {
        self.acceptors.len() / 2 + 1
    }

    /// The epoch to ask in.
    pub fn epoch(&self) -> u64 {
        self.epoch.get()
    }

    /// A token that nobody else has.
    pub(crate) fn token(&self) -> Token {
        Token::generate(&*self.entropy)
    }

    /// The servers.
    pub fn acceptors(&self) -> &[Arc<dyn Acceptor>] {
        &self.acceptors
    }

    /// Takes a step: `step` is called with what is there, perhaps several times, and what it decides
    /// last is what happened.
    pub async fn run<T: Clone>(
        &self,
        key: &Arc<[u8]>,
        manner: Manner,
        mut step: impl FnMut(&Found) -> Result<Decision<T>, StoreError>,
    ) -> Result<T, StoreError> {
        let began = self.clock.now();
        let mut tries = Tries::default();
        if manner == Manner::Holder
            && let Some(ahead) = self.ahead.take(key)
            && let Some(answer) = self.run_ahead(key, ahead, &mut tries, &mut step).await?
        {
            return Ok(answer);
        }
        let mut only_if_new = manner == Manner::Claim;
        let mut pause = PAUSE_MIN;
        loop {
            let ended = self
                .attempt(key, manner, only_if_new, &mut tries, &mut step)
                .await?;
            if let Ended::Done(answer) = ended {
                return Ok(answer);
            }
            if self.clock.now().saturating_sub(began) > CONTEND_MAX {
                return Err(Contended.into());
            }
            // The first time at once: it is only to ask in full, or in a higher round.
            if !only_if_new || tries.sent() > 1 {
                tokio::time::sleep(self.jittered(pause)).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
            only_if_new = false;
        }
    }

    /// What is there, if a majority agrees on it.
    pub async fn look(&self, key: &Arc<[u8]>) -> Result<Option<Found>, StoreError> {
        let majority = self.majority();
        let look = Look {
            key: Arc::clone(key),
            epoch: self.epoch.get(),
        };
        let ask = |acceptor: Arc<dyn Acceptor>| {
            let look = look.clone();
            async move { acceptor.look(&look).await }
        };
        let gathered = gather(&self.acceptors, ask, |seen: &[Seen]| {
            need_to_agree(seen, majority)
        });
        let Some(seen) = self.enough(gathered.await)? else {
            return Ok(None);
        };
        let found = Found::of(&seen, majority);
        Ok(found.is_decided.then_some(found))
    }

    async fn attempt<T: Clone>(
        &self,
        key: &Arc<[u8]>,
        manner: Manner,
        only_if_new: bool,
        tries: &mut Tries<T>,
        step: &mut impl FnMut(&Found) -> Result<Decision<T>, StoreError>,
    ) -> Result<Ended<T>, StoreError> {
        let ask = Prepare {
            key: Arc::clone(key),
            ballot: tries.next_ballot(self.floor.load(Ordering::Relaxed), &*self.entropy),
            epoch: self.epoch.get(),
            only_if_new,
            may_be_full: manner == Manner::Claim,
        };
        let Some(answered) = self.prepare(&ask, tries).await? else {
            return Ok(Ended::Beaten);
        };
        let decision = match tries.decide(&answered, step)? {
            Next::Done(answer) => return Ok(Ended::Done(answer)),
            Next::Again => return Ok(Ended::Beaten),
            Next::Write(decision) => decision,
        };
        let promise = Promise {
            ballot: ask.ballot,
            epoch: ask.epoch,
        };
        let found = &answered.found;
        self.write(key, manner, promise, found, decision, tries)
            .await
    }

    /// A step on what this process wrote last, with the promise that came with it. Nothing if it
    /// takes the ordinary way.
    async fn run_ahead<T: Clone>(
        &self,
        key: &Arc<[u8]>,
        ahead: Ahead,
        tries: &mut Tries<T>,
        step: &mut impl FnMut(&Found) -> Result<Decision<T>, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        if ahead.promise.epoch != self.epoch.get() {
            return Ok(None);
        }
        let found = Found::own(ahead.value, self.clock.now().saturating_sub(ahead.since));
        let decision = step(&found)?;
        if decision.value.is_none() {
            return Ok(None);
        }
        let written = self.write(key, Manner::Holder, ahead.promise, &found, decision, tries);
        match written.await? {
            Ended::Done(answer) => Ok(Some(answer)),
            Ended::Beaten => Ok(None),
        }
    }

    /// Whether a majority is left if servers have these faults.
    pub(crate) fn is_enough(&self, faults: Vec<Fault>) -> Result<(), StoreError> {
        self.hear(&faults);
        if self.acceptors.len() - faults.len() >= self.majority() {
            return Ok(());
        }
        Err(Shortage::new(self.acceptors.len(), self.majority(), faults).into())
    }

    /// The answers, if there are enough of them; nothing if the epoch was raised meanwhile.
    fn enough<R>(&self, gathered: Gathered<R>) -> Result<Option<Vec<R>>, StoreError> {
        let is_raised = self.hear(&gathered.faults);
        if gathered.answers.len() >= self.majority() {
            return Ok(Some(gathered.answers));
        }
        if is_raised {
            return Ok(None);
        }
        let shortage = Shortage::new(self.acceptors.len(), self.majority(), gathered.faults);
        Err(shortage.into())
    }

    /// Whether the epoch was raised: the next question is asked in the new one.
    fn hear(&self, faults: &[Fault]) -> bool {
        let raised = faults.iter().filter_map(|fault| match fault {
            Fault::Raised(epoch) => Some(*epoch),
            Fault::Away(_)
            | Fault::Behind(_)
            | Fault::Full
            | Fault::NotAdmitted
            | Fault::OtherSet(_)
            | Fault::Unsafe(_) => None,
        });
        let raised = raised.max();
        if let Some(epoch) = raised {
            self.epoch.heard(epoch);
        }
        raised.is_some()
    }

    /// Between half of it and all of it, so that two proposers do not meet again.
    pub(crate) fn jittered(&self, pause: Duration) -> Duration {
        let mut byte = [0];
        self.entropy.fill(&mut byte);
        pause / 2 + pause / 2 * u32::from(byte[0]) / 255
    }
}

impl std::fmt::Debug for Proposer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct(NAME)
            .field("servers", &self.acceptors.len())
            .finish_non_exhaustive()
    }
}
