//! Processes and one store, between them a network that loses, delays and repeats.
//!
//! Each process takes one call through its life: claim, run, complete or release, answer. What it
//! asks of the store stays on the wire for ever, and may arrive at any time, any number of times, or
//! never; so a message that is lost, late or repeated is one that does not arrive, arrives later or
//! again. A reply is heard at once, later, or never. Processes crash; time passes in leases; an operator
//! forgets. The store is [`Entry`](onlyonce_core::entry::Entry), what a process makes of a reply is
//! [`judge`](onlyonce_core::engine::judge), and what it asks is [`Call::claim`].

use std::collections::BTreeSet;

use onlyonce_core::{Call, OnLapse, Reason};
use stateright::{Model, Property};

mod arrival;
mod process;
mod protocol;
mod reply;
mod scenario;
mod shelf;

pub use self::process::{Ending, Heard};
pub use self::scenario::{Asked, Scenario};

use self::process::{Phase, Process};
use self::protocol::Cell;
use self::shelf::Shelf;
use crate::rules::rules;

/// Time, in leases.
pub type Tick = u32;

rules! { World {
    // What the store does.
    LiveLease = "a slot has at most one live lease",
    FinishedStays = "a finished record neither becomes pending nor goes before it expires",
    OtherMeaningWaits = "a different fingerprint never takes over",
    HoldWins = "when two sides differ, hold wins: what may have happened is not run again",
    DeadStays = "a released token stays dead for one lease: a late copy of its claim revives nothing",
    GrantedIff = "a claim is granted iff the slot is free, expired, its own, or lapsed for both sides",
    OnlyHolderKeeps = "only the holder keeps its lease",
    LostNeverCompletes = "a lost lease never completes",
    HolderCompletes = "the holder completes, and everyone else learns what is stored",
    ReleaseOwn = "a release ends its own claim and touches no other",
    ClaimChanges = "a claim changes the record as the protocol says, or not at all",
    RenewChanges = "a renewal that is acknowledged prolongs lease and record",
    CompleteChanges = "a completion that is acknowledged is stored, and its retention counts from it",
    ReleaseChanges = "a release ends the lease, and shortens no promise",
    OperatorChanges = "an operator changes what is there, and only what may be changed",
    // What processes do.
    StartsWithOwn = "a handler starts only with its own pending token in the store",
    SecondRun = "a second run only after a lapse that both sides re-run with equal fingerprints, or after the slot was given back, expired or forgotten; under hold never within lease and retention of the claim",
    GivenBack = "a claim is given back only if nothing ran or nothing is to be stored",
    OnlyRanCompletes = "only what ran is completed",
    // What callers hear.
    SentOnceStored = "an answer is sent only once it is stored, and equals what is stored",
    LeftUnstored = "an answer is left unstored only if it is not one to store, or its record is gone",
    ReplayIsStored = "a replay equals what is stored",
    OtherMeaningNoReplay = "a different fingerprint never replays",
    MismatchTrue = "a mismatch is told only of a fingerprint the store confirmed during the call",
    InProgressTrue = "in progress is told only of what is running",
    InDoubtTrue = "outcome unknown is told only of what is lapsed, released as unknown or abandoned",
    NotRunTrue = "not run is told only if nothing ran",
} }

/// A bug to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The store does not compare tokens: the last to come finishes.
    FencingOff,
    /// Released tokens are not remembered.
    ForgetsReleases,
    /// A handler starts however long its claim was under way.
    StaleStart,
    /// A completion that was not acknowledged counts as stored.
    AnswerBeforeStored,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::FencingOff,
        Self::ForgetsReleases,
        Self::StaleStart,
        Self::AnswerBeforeStored,
    ];
}

/// The model.
#[derive(Clone, Debug)]
pub struct Engines {
    scenario: Scenario,
    calls: Vec<Call>,
    bug: Option<Bug>,
}

/// A state of it.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct World {
    now: Tick,
    /// What the store keeps of each key.
    shelves: Vec<Shelf>,
    /// What the protocol says of it.
    cells: Vec<Cell>,
    processes: Vec<Process>,
    /// Everything that was ever sent.
    wire: BTreeSet<Message>,
    forgets: u32,
    /// Whose answers were stored at some time.
    stored: BTreeSet<usize>,
    /// The first rule that was broken: nothing happens after that.
    pub(crate) broken: Option<Rule>,
}

/// What a process asks of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Message {
    from: Attempt,
    verb: Verb,
}

/// One attempt of a process at its call: its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt {
    process: usize,
    token: u8,
}

/// What it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// For the slot.
    Claim,
    /// For a whole lease again.
    Renew,
    /// To store its answer.
    Complete,
    /// To release it: nothing ran.
    NotRun,
    /// To release it: something may have happened.
    Unknown,
}

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A process takes its call.
    Takes(usize),
    /// A message arrives; whether its reply will be heard.
    Arrives(Message, bool),
    /// A process hears the reply to what it asked.
    Hears(usize),
    /// A process hears no reply in time, or its caller hangs up, or it shuts down.
    GivesUp(usize),
    /// A duplicate has waited for as long as its policy says.
    Tires(usize),
    /// A handler ends.
    Ends(usize, Ending),
    /// A process stops for ever.
    Crashes(usize),
    /// One lease passes.
    Lapse,
    /// An operator forgets a key.
    Forgets(usize),
}

impl Engines {
    /// The model of a scenario.
    pub fn new(scenario: Scenario) -> Self {
        let calls = scenario.calls();
        let bug = None;
        Self {
            scenario,
            calls,
            bug,
        }
    }

    /// The same with a planted bug.
    #[must_use]
    pub fn with_bug(self, bug: Bug) -> Self {
        let bug = Some(bug);
        Self { bug, ..self }
    }

    fn asked(&self, process: usize) -> &Asked {
        &self.scenario.asked[process]
    }

    fn forget(&self, world: &mut World, key: usize) {
        world.forgets += 1;
        let actual = world.shelves[key].forget(world.now);
        let expected = world.cells[key].forget(world.now);
        if actual != expected {
            world.breaks(Rule::OperatorChanges);
        }
        self.compare(world, key, Rule::OperatorChanges);
    }
}

impl World {
    fn lapse(&mut self) {
        self.now += 1;
        self.shelves.iter_mut().for_each(|it| it.tidy(self.now));
        self.cells.iter_mut().for_each(|it| it.tidy(self.now));
    }

    fn breaks(&mut self, rule: Rule) {
        self.broken.get_or_insert(rule);
    }

    fn require(&mut self, holds: bool, rule: Rule) {
        if !holds {
            self.breaks(rule);
        }
    }

    fn ends_with(&self, wanted: impl Fn(&Heard) -> bool) -> bool {
        let mut phases = self.processes.iter().map(|it| &it.phase);
        phases.any(|phase| matches!(phase, Phase::Over(heard) if wanted(heard)))
    }
}

impl Model for Engines {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let keys = self.scenario.keys();
        vec![World {
            now: 0,
            shelves: vec![Shelf::default(); keys],
            cells: vec![Cell::default(); keys],
            processes: vec![Process::default(); self.calls.len()],
            wire: BTreeSet::new(),
            forgets: 0,
            stored: BTreeSet::new(),
            broken: None,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        if world.broken.is_some() {
            return;
        }
        for (id, process) in world.processes.iter().enumerate() {
            self.steps_of(id, process, steps);
        }
        for message in &world.wire {
            steps.push(Step::Arrives(*message, false));
            if world.processes[message.from.process].awaits(message) {
                steps.push(Step::Arrives(*message, true));
            }
        }
        if world.now < self.scenario.leases_max {
            steps.push(Step::Lapse);
        }
        if world.forgets < self.scenario.forgets_max {
            steps.extend((0..world.shelves.len()).map(Step::Forgets));
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        match step {
            Step::Takes(id) => self.ask(&mut next, id, Verb::Claim),
            Step::Arrives(message, is_heard) => self.arrives(&mut next, message, is_heard),
            Step::Hears(id) => self.hears(&mut next, id),
            Step::GivesUp(id) => self.gives_up(&mut next, id),
            Step::Tires(id) => {
                next.processes[id].phase = Phase::Over(Heard::Refused(Reason::InProgress));
            }
            Step::Ends(id, ending) => self.ends(&mut next, id, ending),
            Step::Crashes(id) => next.processes[id].phase = Phase::Crashed,
            Step::Lapse => next.lapse(),
            Step::Forgets(key) => self.forget(&mut next, key),
        }
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = Rule::properties();
        properties.extend(seen());
        properties
    }
}

/// What the exploration must come across, or it shows nothing: the simulator's names again.
fn seen() -> [Property<Engines>; 7] {
    [
        Property::sometimes("ran", |_, world: &World| {
            world.ends_with(|it| *it == Heard::Ran)
        }),
        Property::sometimes("replayed", |_, world: &World| {
            world.ends_with(|it| matches!(it, Heard::Replayed(_)))
        }),
        Property::sometimes("in progress", |_, world: &World| {
            world.ends_with(|it| *it == Heard::Refused(Reason::InProgress))
        }),
        Property::sometimes("not stored", |_, world: &World| {
            world.ends_with(|it| *it == Heard::Refused(Reason::NotStored))
        }),
        Property::sometimes("take-overs", |_, world: &World| {
            let mut runs = world.processes.iter().filter_map(|it| it.run.as_ref());
            runs.any(|run| run.number > 1)
        }),
        Property::sometimes("overtaken holders", |_, world: &World| {
            world
                .processes
                .iter()
                .any(|it| it.run.is_some() && matches!(it.phase, Phase::Over(Heard::Replayed(_))))
        }),
        Property::sometimes("held lapses", |engines: &Engines, world: &World| {
            let mut processes = world.processes.iter().enumerate();
            processes.any(|(id, it)| {
                let is_held = it.phase == Phase::Over(Heard::Refused(Reason::OutcomeUnknown));
                is_held && it.run.is_none() && engines.asked(id).on_lapse == OnLapse::Hold
            })
        }),
    ]
}
