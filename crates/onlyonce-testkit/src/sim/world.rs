//! What all parts of a run share: virtual time, the dice, the ledger, the store beneath the
//! witness, and who is alive.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onlyonce_core::event::Verb;
use onlyonce_core::{About, Engine, Event, Key, Policy, Scope, Store, Subscriber, Token};
use tokio::sync::Notify;

use super::bug::Bug;
use super::clock::{Ms, StoreClock};
use super::dice::Dice;
use super::history::{Entry, What};
use super::kinds::{Fault, Seen};
use super::ledger::{Ledger, Trouble};
use super::model::Window;
use super::process::Process;
use super::report::{Checked, Report, Violation};
use super::rotation::Rotation;
use super::{Around, Plan};

pub(super) struct World {
    pub(super) clock: Arc<StoreClock>,
    /// The store, with or without a planted bug.
    pub(super) store: Arc<dyn Store>,
    /// Rings once when a rule is broken.
    pub(super) alarm: Notify,
    /// A caller's hang-up cancels its handler: a planted bug.
    pub(super) hangup_cancels: bool,
    /// A process that has both slot secrets uses only the new one: a planted bug.
    pub(super) former_ignored: bool,
    /// What stands between every engine and its store.
    pub(super) around: Option<Around>,
    pub(super) rotation: Option<Rotation>,
    /// What policies have in common.
    pub(super) base: Policy,
    pub(super) scope: Scope,
    pub(super) keys: Vec<Key>,
    pub(super) operation: Arc<str>,
    seed: u64,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) dice: Dice,
    pub(super) ledger: Ledger,
    pub(super) report: Report,
    pub(super) weather: Weather,
    pub(super) violation: Option<Violation>,
    /// Clients that have not finished.
    pub(super) clients: usize,
    /// Verbs, and copies of them, that the store does not have yet.
    pub(super) under_way: usize,
    /// Processes that are about to open.
    pub(super) opening: usize,
    /// Who serves each node, if anyone.
    pub(super) nodes: Vec<Option<Running>>,
    /// Engines that were told to shut down and replaced: what they run goes on.
    pub(super) retired: Vec<Running>,
    /// The run is over: what is dropped now is dropped by its end.
    pub(super) over: bool,
}

/// An engine and the process it lives in.
#[derive(Clone)]
pub(super) struct Running {
    pub(super) process: Arc<Process>,
    pub(super) engine: Engine,
}

/// How bad it gets, in faults per thousand.
#[derive(Clone, Copy, Default)]
pub(super) struct Weather {
    pub(super) faults_permille: u64,
    pub(super) copies_permille: u64,
    pub(super) crashes_permille: u64,
    pub(super) healed: bool,
}

impl World {
    pub(super) fn new(
        seed: u64,
        clock: Arc<StoreClock>,
        store: Arc<dyn Store>,
        base: Policy,
        plan: &Plan,
    ) -> Self {
        let key = |number| {
            let name = format!("key-{number}");
            Key::new(&name, &base.key).expect("a short plain name is a key")
        };
        let keys = (0..*plan.keys.end()).map(key).collect();
        Self {
            clock,
            store,
            alarm: Notify::new(),
            around: plan.around,
            rotation: plan.rotation.then(|| Rotation::of(seed)),
            hangup_cancels: plan.bug == Some(Bug::HangupCancels),
            former_ignored: plan.bug == Some(Bug::FormerIgnored),
            base,
            scope: Scope::new("").with("route", "simulated"),
            keys,
            operation: "simulated".into(),
            seed,
            state: Mutex::new(State {
                dice: Dice::new(seed),
                ledger: Ledger::new(plan.around),
                report: Report::default(),
                weather: Weather::default(),
                violation: None,
                clients: 0,
                under_way: 0,
                opening: 0,
                nodes: Vec::new(),
                retired: Vec::new(),
                over: false,
            }),
        }
    }

    pub(super) fn now(&self) -> Ms {
        self.clock.ms()
    }

    /// One step of the world: nothing else happens meanwhile.
    pub(super) fn step<T>(&self, step: impl FnOnce(&mut State, Ms) -> T) -> T {
        let now = self.now();
        step(&mut self.state(), now)
    }

    /// A step that may break a rule. Only the first that does counts.
    pub(super) fn check(&self, step: impl FnOnce(&mut State, Ms) -> Checked) {
        let now = self.now();
        let mut state = self.state();
        let held = step(&mut state, now);
        if let Err(broken) = held
            && state.violation.is_none()
            && !state.over
        {
            let history = state.report.history.clone();
            state.violation = Some(Violation {
                seed: self.seed,
                rule: broken.rule,
                detail: broken.detail,
                history,
                at: now,
            });
            self.alarm.notify_one();
        }
    }

    /// Whether the store answers nobody at this moment.
    pub(super) fn is_out(&self) -> bool {
        self.step(|state, now| {
            let mut outages = state.ledger.outages.iter();
            outages.any(|outage| outage.from <= now && now < outage.to)
        })
    }

    /// Ends the run: breaks the ring of world, engines and links, so that all of it is freed.
    pub(super) fn end(&self) -> (Report, Option<Violation>) {
        let (engines, result) = self.step(|state, _| {
            state.over = true;
            let nodes = std::mem::take(&mut state.nodes);
            let retired = std::mem::take(&mut state.retired);
            let report = std::mem::take(&mut state.report);
            ((nodes, retired), (report, state.violation.take()))
        });
        drop(engines);
        result
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    pub(super) fn note(&mut self, at: Ms, process: Option<usize>, what: What) {
        let process = process.map(short);
        self.report.history.0.push(Entry { at, process, what });
    }

    /// Something goes wrong with a process, or with one verb that it sends.
    pub(super) fn fault(
        &mut self,
        fault: Fault,
        verb: Option<(Verb, Token)>,
        process: usize,
        window: Window,
    ) {
        self.report.count_fault(fault);
        let what = What::Fault {
            fault,
            verb: verb.map(|(verb, _)| verb),
            ms: window.to - window.from,
        };
        self.note(window.from, Some(process), what);
        self.trouble(process, verb, window);
    }

    /// The same without a fault of its own: it is the excuse for what follows.
    pub(super) fn trouble(&mut self, process: usize, verb: Option<(Verb, Token)>, window: Window) {
        let troubles = &mut self.ledger.lives[process].troubles;
        troubles.push(Trouble { window, verb });
    }

    /// Everyone who is still alive.
    pub(super) fn living(&self) -> impl Iterator<Item = &Running> {
        let all = self.nodes.iter().flatten().chain(&self.retired);
        all.filter(|it| !it.process.gate.is_crashed())
    }
}

/// Numbers of calls, runs and processes fit in the history's small ones.
pub(super) fn short<T: TryFrom<usize>>(number: usize) -> T {
    T::try_from(number)
        .ok()
        .expect("a run is small: its numbers fit")
}

/// Counts what engines report.
pub(super) struct Ear(pub(super) Arc<World>);

impl Subscriber for Ear {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "most events are checked where they show, not counted"
    )]
    fn on_event(&self, _: &About<'_>, event: &Event) {
        let seen = match event {
            Event::Panicked => Seen::Panicked,
            Event::TimedOut { .. } => Seen::TimedOut,
            Event::TookOver { .. } => Seen::TookOver,
            Event::Overtaken => Seen::Overtaken,
            Event::Attached { .. } => Seen::Attached,
            Event::Waiting { .. } => Seen::Waited,
            Event::Renewed => Seen::Renewed,
            Event::LeaseLost => Seen::LeaseLost,
            Event::Stalled => Seen::Stalled,
            Event::Abandoned => Seen::Abandoned,
            _ => return,
        };
        self.0.step(|state, _| state.report.count_seen(seen));
    }
}
