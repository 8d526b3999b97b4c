//! Proposers and three acceptors, one of which may lose its disk and be admitted again.
//!
//! Each proposer takes calls for one key, one after the other: it claims, and completes what it was
//! granted. A question to a server may arrive there any number of times, or never, and its answer may be
//! heard or not; how many arrive after their proposer has asked another one is bounded. A step goes on
//! with the answers of any majority. A proposer that makes no further step has crashed. No time passes,
//! so no lease lapses: what is checked is that a majority decides once, and that what was decided is not
//! lost.
//!
//! Who an acceptor is and what it answers is [`ModelServer`], what a proposer makes of the answers is
//! [`Tries`], and what is written is decided by
//! [`SlotRegister`](onlyonce_quorum::SlotRegister).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::Claim;
use onlyonce_quorum::{
    Accept, Accepted, Ballot, Decision, Deed, EPOCH_FIRST, Fault, ModelServer, Pass, Prepare,
    Prepared, Tries, Turned, Votes,
};
use stateright::{Model, Property};

use self::bounds::{claims, name};
use self::keeper::Keeper;
use crate::rules::rules;

mod bounds;
mod keeper;
mod proposer;

pub use self::bounds::Bounds;

/// How many servers there are.
const SERVERS: usize = 3;
const MAJORITY: usize = SERVERS / 2 + 1;
/// The date on every server's clock.
const NOW: Duration = Duration::from_secs(1_700_000_000);

rules! { State {
    // What the store does.
    LiveLease = "a slot has at most one live lease",
    FinishedStays = "a finished record neither becomes pending nor goes before it expires",
    HolderCompletes = "the holder completes, and everyone else learns what is stored",
    LostNeverCompletes = "a lost lease never completes",
    // What callers hear.
    SentOnceStored = "an answer is sent only once it is stored, and equals what is stored",
    ReplayIsStored = "a replay equals what is stored",
} }

/// A bug to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A server votes on after it lost its disk.
    VotesAfterLoss,
    /// What was found at a single server is taken for decided, and not written back.
    NoWriteBack,
    /// A server that lost its disk is admitted in the epoch in which it lost it.
    EpochNotRaised,
    /// A proposer goes on in a new epoch with the promises and acceptances of the old one.
    FollowsEpoch,
    /// A server that lost its disk is admitted before what the others have is written to a majority.
    AdmittedAtOnce,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::VotesAfterLoss,
        Self::NoWriteBack,
        Self::EpochNotRaised,
        Self::FollowsEpoch,
        Self::AdmittedAtOnce,
    ];
}

/// The model.
#[derive(Clone, Debug)]
pub struct Quorum {
    bounds: Bounds,
    key: Arc<[u8]>,
    /// Of each proposer, one for each of its calls.
    claims: Vec<Vec<Claim>>,
    bug: Option<Bug>,
}

/// A state of it.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct State {
    servers: Vec<ModelServer>,
    keeper: Keeper,
    proposers: Vec<Proposer>,
    disks_lost: u8,
    late: u8,
    /// Whose answer a caller was given.
    known: Option<Run>,
    /// Who was told that the slot is his.
    granted: BTreeSet<Run>,
    /// The first rule that was broken: nothing happens after that.
    pub(crate) broken: Option<Rule>,
}

/// An execution: that of a proposer for one of its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run {
    proposer: u8,
    call: u8,
}

/// A proposer.
#[derive(Clone, Debug, PartialEq, Hash)]
struct Proposer {
    /// How many of its calls it has begun.
    calls: u8,
    /// How many ballots it has made.
    ballots: u8,
    /// The epoch that it has heard of.
    epoch: u64,
    /// What was known when its present call began.
    known: Option<Run>,
    verb: Verb,
    /// Everything it ever sent, in order.
    sent: Vec<Question>,
    tries: Tries<Said>,
    /// What it wrote last, and the promise that came with it.
    ahead: Option<(Ballot, u64, Bytes)>,
    phase: Phase,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Verb {
    Claim,
    Complete,
}

/// A question to the servers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Question {
    Prepare(Prepare),
    Accept(Accept),
}

impl Question {
    fn epoch(&self) -> u64 {
        match self {
            Self::Prepare(ask) => ask.epoch,
            Self::Accept(ask) => ask.epoch,
        }
    }
}

/// Servers have no names here: they are alike.
fn pass(epoch: u64) -> Pass {
    Pass {
        seat: String::new(),
        members: String::new(),
        epoch,
        until: None,
    }
}

/// Where a proposer's step stands: with the answers that it has heard.
#[derive(Clone, Debug, PartialEq, Hash)]
enum Phase {
    Idle,
    Preparing(BTreeMap<usize, Prepared>),
    Accepting(Decision<Said>, BTreeMap<usize, Accepted>),
    /// It has made all the ballots that the bounds allow.
    Stopped,
}

/// What a step is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Said {
    /// The slot is his.
    Granted,
    /// Somebody holds it.
    InProgress,
    /// This answer is stored.
    Finished(Run),
    /// His own answer was stored by this very step.
    Stored,
    /// Nothing is there.
    Absent,
}

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A proposer begins its next call.
    Begins(usize),
    /// A question of a proposer, by its number, arrives at a server; whether its answer is heard.
    Arrives {
        /// Whose question.
        of: usize,
        /// Which one.
        question: usize,
        /// Where.
        at: usize,
        /// Whether the answer is heard.
        is_heard: bool,
    },
    /// A proposer goes on with the answers that it has.
    GoesOn(usize),
    /// A proposer hears from too few, and begins its step anew.
    StartsOver(usize),
    /// A server loses its disk, and joins again.
    LosesDisk(usize),
    /// A server is told of the epoch that is raised for one that lost its disk.
    Raises(usize),
    /// What the others have is written to a majority of them.
    WritesBack,
    /// The server that lost its disk votes again.
    Admits(usize),
}

impl Quorum {
    /// The model within these bounds.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            claims: claims(&bounds),
            key: name(),
            bounds,
            bug: None,
        }
    }

    /// The same with a planted bug.
    #[must_use]
    pub fn with_bug(self, bug: Bug) -> Self {
        let bug = Some(bug);
        Self { bug, ..self }
    }

    fn arrives(&self, state: &mut State, of: usize, question: usize, at: usize, is_heard: bool) {
        let server = &mut state.servers[at];
        let proposer = &mut state.proposers[of];
        state.late += u8::from(question + 1 < proposer.sent.len());
        let question = &proposer.sent[question];
        let epoch = match self.bug {
            Some(Bug::FollowsEpoch) => server.epoch(),
            Some(_) | None => question.epoch(),
        };
        let acceptor = match server.vote(&pass(epoch), NOW) {
            Ok(acceptor) => acceptor,
            Err(Turned::Stranger(Fault::Raised(epoch))) if is_heard => {
                proposer.epoch = proposer.epoch.max(epoch);
                return;
            }
            Err(Turned::Stranger(_) | Turned::Late) => return,
        };
        match question {
            Question::Prepare(ask) => {
                let answer = acceptor.prepare(ask, NOW);
                if let (true, Phase::Preparing(heard)) = (is_heard, &mut proposer.phase) {
                    heard.insert(at, answer);
                }
            }
            Question::Accept(ask) => {
                let answer = acceptor.accept(ask, NOW);
                if let (true, Phase::Accepting(_, heard)) = (is_heard, &mut proposer.phase) {
                    heard.insert(at, answer);
                }
            }
        }
    }

    fn loses_disk(&self, state: &mut State, at: usize) {
        state.disks_lost += 1;
        // Its identity is gone too: docs/protocol.md#rule-39.
        state.servers[at] = match self.bug {
            Some(Bug::VotesAfterLoss) => ModelServer::founder("", ""),
            Some(_) | None => ModelServer::default(),
        };
        let epoch = EPOCH_FIRST;
        state.servers[at].identify("", "", &Deed::Join { epoch }, NOW);
    }

    fn steps_of(&self, id: usize, state: &State, steps: &mut Vec<Step>) {
        let proposer = &state.proposers[id];
        let heard = match &proposer.phase {
            Phase::Idle => {
                if usize::from(proposer.calls) < self.claims[id].len() {
                    steps.push(Step::Begins(id));
                }
                None
            }
            Phase::Preparing(heard) => Some(heard.keys().copied().collect::<BTreeSet<_>>()),
            Phase::Accepting(_, heard) => Some(heard.keys().copied().collect()),
            Phase::Stopped => None,
        };
        if let Some(heard) = &heard {
            steps.push(Step::StartsOver(id));
            if heard.len() >= MAJORITY {
                steps.push(Step::GoesOn(id));
            }
        }
        let last = proposer.sent.len().saturating_sub(1);
        let is_bounded = state.late == self.bounds.late_max;
        let first = if is_bounded { last } else { 0 };
        for question in first..proposer.sent.len() {
            for (at, server) in state.servers.iter().enumerate() {
                if server.votes() != Votes::Yes {
                    continue;
                }
                let is_new = heard.as_ref().is_some_and(|heard| !heard.contains(&at));
                for is_heard in [false, true] {
                    if !is_heard && !self.bounds.loses_answers {
                        continue;
                    }
                    if !is_heard || (question == last && is_new) {
                        steps.push(Step::Arrives {
                            of: id,
                            question,
                            at,
                            is_heard,
                        });
                    }
                }
            }
        }
    }
}

impl State {
    /// Servers differ in nothing but what happened to them: states that are equal up to their order are
    /// one.
    fn sort_servers(&mut self) {
        let mut order: Vec<usize> = (0..SERVERS).collect();
        order.sort_by_cached_key(|at| {
            let mut hasher = DefaultHasher::new();
            self.servers[*at].hash(&mut hasher);
            for proposer in &self.proposers {
                proposer.phase.heard_from(*at).hash(&mut hasher);
            }
            hasher.finish()
        });
        self.servers = order.iter().map(|at| self.servers[*at].clone()).collect();
        for proposer in &mut self.proposers {
            proposer.phase.reorder(&order);
        }
    }

    fn require(&mut self, holds: bool, rule: Rule) {
        if !holds {
            self.broken.get_or_insert(rule);
        }
    }
}

impl Phase {
    fn heard_from(&self, at: usize) -> (Option<&Prepared>, Option<&Accepted>) {
        match self {
            Self::Preparing(heard) => (heard.get(&at), None),
            Self::Accepting(_, heard) => (None, heard.get(&at)),
            Self::Idle | Self::Stopped => (None, None),
        }
    }

    fn reorder(&mut self, order: &[usize]) {
        match self {
            Self::Preparing(heard) => *heard = reordered(heard, order),
            Self::Accepting(_, heard) => *heard = reordered(heard, order),
            Self::Idle | Self::Stopped => {}
        }
    }
}

fn reordered<T: Clone>(heard: &BTreeMap<usize, T>, order: &[usize]) -> BTreeMap<usize, T> {
    let moved = order.iter().enumerate();
    let moved = moved.filter_map(|(to, from)| Some((to, heard.get(from)?.clone())));
    moved.collect()
}

impl Model for Quorum {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            servers: vec![ModelServer::founder("", ""); SERVERS],
            keeper: Keeper::default(),
            proposers: vec![Proposer::default(); self.claims.len()],
            disks_lost: 0,
            late: 0,
            known: None,
            granted: BTreeSet::new(),
            broken: None,
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if state.broken.is_some() {
            return;
        }
        for id in 0..state.proposers.len() {
            self.steps_of(id, state, steps);
        }
        if state.disks_lost < self.bounds.disks_lost_max {
            steps.extend((0..SERVERS).map(Step::LosesDisk));
        }
        if self.bounds.admits {
            self.steps_of_keeper(state, steps);
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        match step {
            Step::Begins(id) => self.begins(&mut next, id),
            Step::Arrives {
                of,
                question,
                at,
                is_heard,
            } => self.arrives(&mut next, of, question, at, is_heard),
            Step::GoesOn(id) => self.goes_on(&mut next, id),
            Step::StartsOver(id) => self.starts_over(&mut next, id),
            Step::LosesDisk(at) => self.loses_disk(&mut next, at),
            Step::Raises(at) => next.raises(at),
            Step::WritesBack => self.writes_back(&mut next),
            Step::Admits(at) => self.admits(&mut next, at),
        }
        next.sort_servers();
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = Rule::properties();
        properties.extend([
            Property::sometimes("ran", |_, state: &State| {
                state.granted.iter().any(|run| state.known == Some(*run))
            }),
            Property::sometimes("replayed", |_, state: &State| {
                let mut proposers = state.proposers.iter().enumerate();
                proposers.any(|(id, it)| {
                    let other = state.known.filter(|run| usize::from(run.proposer) != id);
                    other.is_some() && it.known == other && it.phase == Phase::Idle
                })
            }),
        ]);
        properties
    }
}
