//! A process and its one call, from the claim to the answer: what the engine does between two verbs,
//! by what `judge` says.

use std::sync::Arc;

use http::StatusCode;
use onlyonce_core::engine::judge::{fate, is_stale, release_of};
use onlyonce_core::{Lease, Reason, Release, Response};

use super::scenario::leases;
use super::{Attempt, Bug, Engines, Message, Rule, Step, Tick, Verb, World};

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Process {
    /// The number of its present token.
    token: u8,
    /// Which attempt at the operation it was told to be.
    number: u32,
    /// The execution of its handler.
    pub(super) run: Option<Run>,
    pub(super) phase: Phase,
}

/// An execution of a handler.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Run {
    pub(super) number: u32,
    pub(super) ended: Option<Ending>,
}

/// Where its call stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// Not taken yet.
    #[default]
    Idle,
    /// It has asked the store.
    Asking(Asking),
    /// Its handler runs.
    Running,
    /// Its caller has heard this.
    Over(Heard),
    /// It has made all the tokens that the scenario allows.
    Stopped,
    /// It does nothing more.
    Crashed,
}

/// A question to the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Asking {
    pub(super) verb: Verb,
    /// The reply that is on its way.
    pub(super) told: Option<Told>,
}

/// A reply: when the store gave it, and what it means.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Told {
    pub(super) at: Tick,
    pub(super) what: What,
}

/// What a reply means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum What {
    Granted(u32),
    Replay(usize),
    Refuse(Reason),
    /// It is held: to wait.
    Wait,
    /// It has lapsed, and may be taken over.
    ClaimAgain,
    Dead,
    Kept,
    Lost,
    Stored,
    /// The slot holds the answer of this very attempt.
    Ours,
    /// The slot holds the answer of the attempt that overtook it.
    Overtaken(usize),
    Absent,
    Released,
}

/// How a handler ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// With an answer that is stored.
    Answers,
    /// With an answer that is not: under `rerun` it gives the slot back, under `hold` it leaves doubt.
    Fails,
    /// Nothing happened.
    NotRun,
    /// Something may have happened.
    Unknown,
}

impl Ending {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Answers, Self::Fails, Self::NotRun, Self::Unknown];

    const fn status(self) -> StatusCode {
        match self {
            Self::Answers => StatusCode::OK,
            Self::Fails | Self::NotRun | Self::Unknown => StatusCode::BAD_GATEWAY,
        }
    }
}

/// What a caller hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Heard {
    /// Its own handler's answer, which is stored.
    Ran,
    /// Its own handler's answer, which is not.
    RanUnstored,
    /// The stored answer of this process.
    Replayed(usize),
    /// A refusal.
    Refused(Reason),
}

impl Process {
    /// Whether it would hear the reply to this message.
    pub(super) fn awaits(&self, message: &Message) -> bool {
        let Phase::Asking(asking) = &self.phase else {
            return false;
        };
        message.from.token == self.token && asking.verb == message.verb
    }

    fn told(&self) -> Option<&Told> {
        match &self.phase {
            Phase::Asking(asking) => asking.told.as_ref(),
            Phase::Idle | Phase::Running | Phase::Over(_) | Phase::Stopped | Phase::Crashed => None,
        }
    }
}

impl Engines {
    /// What a process may do next.
    pub(super) fn steps_of(&self, id: usize, process: &Process, steps: &mut Vec<Step>) {
        match &process.phase {
            Phase::Idle => steps.push(Step::Takes(id)),
            Phase::Asking(asking) => {
                if let Some(told) = &asking.told {
                    steps.push(Step::Hears(id));
                    if told.what == What::Wait {
                        steps.push(Step::Tires(id));
                    }
                }
                steps.extend([Step::GivesUp(id), Step::Crashes(id)]);
            }
            Phase::Running => {
                let endings = self.scenario.endings.iter();
                steps.extend(endings.map(|ending| Step::Ends(id, *ending)));
                steps.push(Step::Crashes(id));
            }
            Phase::Over(_) | Phase::Stopped | Phase::Crashed => {}
        }
    }

    /// Sends a message, and waits for its reply.
    pub(super) fn ask(&self, world: &mut World, id: usize, verb: Verb) {
        self.send(world, id, verb);
        world.processes[id].phase = Phase::Asking(Asking { verb, told: None });
    }

    fn send(&self, world: &mut World, id: usize, verb: Verb) {
        let from = Attempt {
            process: id,
            token: world.processes[id].token,
        };
        world.wire.insert(Message { from, verb });
    }

    /// The lease that a process has, or would have.
    fn lease(&self, world: &World, id: usize) -> Lease {
        let process = &world.processes[id];
        let from = Attempt {
            process: id,
            token: process.token,
        };
        Lease {
            attempt: process.number,
            ..self.calls[id].claim(from.token()).lease()
        }
    }

    /// A process hears the reply.
    pub(super) fn hears(&self, world: &mut World, id: usize) {
        let Some(told) = world.processes[id].told().cloned() else {
            return;
        };
        let passed = leases(world.now - told.at);
        match told.what {
            What::Granted(number) => {
                world.processes[id].number = number;
                self.granted(world, id, passed);
            }
            What::Kept => self.granted(world, id, passed),
            What::Lost | What::Dead => self.claims_anew(world, id),
            What::Wait | What::ClaimAgain => self.ask_again(world, id),
            What::Replay(run) | What::Overtaken(run) => {
                self.answer(world, id, Heard::Replayed(run));
            }
            What::Refuse(reason) => self.answer(world, id, Heard::Refused(reason)),
            What::Stored | What::Ours => self.answer(world, id, Heard::Ran),
            What::Absent => self.answer(world, id, Heard::RanUnstored),
            What::Released => self.released(world, id),
        }
    }

    fn ask_again(&self, world: &mut World, id: usize) {
        if let Phase::Asking(asking) = &mut world.processes[id].phase {
            asking.told = None;
        }
    }

    /// A claim whose reply was long under way is renewed first.
    fn granted(&self, world: &mut World, id: usize, passed: std::time::Duration) {
        let lease = self.lease(world, id);
        if is_stale(&lease, passed) && self.bug != Some(Bug::StaleStart) {
            return self.ask(world, id, Verb::Renew);
        }
        let (key, now) = (self.asked(id).key, world.now);
        let may_start = world.cells[key].may_start(Attempt::of(&lease.token), now);
        world.require(may_start, Rule::StartsWithOwn);
        let process = &mut world.processes[id];
        process.phase = Phase::Running;
        process.run = Some(Run {
            number: process.number,
            ended: None,
        });
        // From now on its lease is renewed, as often as messages arrive.
        self.send(world, id, Verb::Renew);
    }

    fn claims_anew(&self, world: &mut World, id: usize) {
        let process = &mut world.processes[id];
        if process.token + 1 == self.scenario.tokens_max {
            process.phase = Phase::Stopped;
            return;
        }
        process.token += 1;
        process.number = 0;
        self.ask(world, id, Verb::Claim);
    }

    /// The answer of a handler is stored, or its claim is released.
    pub(super) fn ends(&self, world: &mut World, id: usize, ending: Ending) {
        let lease = self.lease(world, id);
        if let Some(run) = &mut world.processes[id].run {
            run.ended = Some(ending);
        }
        let why = match ending {
            Ending::Answers | Ending::Fails => {
                release_of(fate(&self.calls[id], &answer(id, ending)), &lease)
            }
            Ending::NotRun => Some(lease.unused()),
            Ending::Unknown => Some(Release::Unknown),
        };
        match why {
            None => self.ask(world, id, Verb::Complete),
            Some(Release::NotRun) => self.ask(world, id, Verb::NotRun),
            Some(Release::Unknown) => self.ask(world, id, Verb::Unknown),
        }
    }

    /// Its claim is over without an answer.
    fn released(&self, world: &mut World, id: usize) {
        let ending = world.processes[id].run.as_ref().and_then(|it| it.ended);
        let heard = match ending {
            Some(Ending::Answers | Ending::Fails) => Heard::RanUnstored,
            Some(Ending::NotRun) | None => Heard::Refused(Reason::NotRun),
            Some(Ending::Unknown) => Heard::Refused(Reason::OutcomeUnknown),
        };
        self.answer(world, id, heard);
    }

    /// No reply in time, a hang-up or a shutdown. What was claimed is given back; what is to be stored
    /// goes on in the background.
    pub(super) fn gives_up(&self, world: &mut World, id: usize) {
        let Phase::Asking(Asking { verb, .. }) = world.processes[id].phase.clone() else {
            return;
        };
        match verb {
            Verb::Claim | Verb::Renew => {
                self.send(world, id, Verb::NotRun);
                self.answer(world, id, Heard::Refused(Reason::StoreDown));
            }
            Verb::Complete if self.bug == Some(Bug::AnswerBeforeStored) => {
                self.answer(world, id, Heard::Ran);
            }
            Verb::Complete => self.answer(world, id, Heard::Refused(Reason::NotStored)),
            Verb::NotRun | Verb::Unknown => self.released(world, id),
        }
    }

    /// A caller hears something: is it true?
    fn answer(&self, world: &mut World, id: usize, heard: Heard) {
        let (process, own) = (&world.processes[id], self.asked(id));
        let ending = process.run.as_ref().and_then(|it| it.ended);
        let is_absent = process.told().is_some_and(|it| it.what == What::Absent);
        match heard {
            Heard::Ran => {
                let is_stored = world.stored.contains(&id);
                world.require(is_stored, Rule::SentOnceStored);
            }
            Heard::RanUnstored => {
                let is_right = is_absent || ending == Some(Ending::Fails);
                world.require(is_right, Rule::LeftUnstored);
            }
            Heard::Replayed(run) => {
                let other = self.scenario.asked.get(run);
                let is_same =
                    other.is_some_and(|it| (it.key, it.meaning) == (own.key, own.meaning));
                world.require(world.stored.contains(&run), Rule::ReplayIsStored);
                world.require(is_same, Rule::OtherMeaningNoReplay);
            }
            Heard::Refused(Reason::NotRun) => {
                world.require(ending == Some(Ending::NotRun), Rule::NotRunTrue);
            }
            Heard::Refused(_) => {}
        }
        world.processes[id].phase = Phase::Over(heard);
    }
}

/// What a process answers: no two answer alike.
pub(super) fn answer(id: usize, ending: Ending) -> Arc<Response> {
    let body = vec![u8::try_from(id).expect("processes are few")];
    Arc::new(Response::new(ending.status(), body))
}
