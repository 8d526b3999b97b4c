//! What the checker knows: the model of every slot, every call, every run of a handler, every
//! process, and when each was disturbed. Rules are asked of it; it decides nothing itself.

use onlyonce_core::event::Verb;
use onlyonce_core::{Fingerprint, Meta, Slot, Token};

use super::Around;
use super::clock::{JUMP_MAX, Ms, in_millis};
use super::history::Ending;
use super::model::{Cell, Tenure, Window};
use super::rotation::Secrets;
use super::terms::Terms;

/// How old a read may be on which an undisturbed process answers: a few ordinary latencies.
pub(super) const READ_AGE_MAX: Ms = 30;

/// How long a completion may wait for its next try in the background, and a little more.
pub(super) const STALL_MAX: Ms = 1500;

#[derive(Default)]
pub(super) struct Ledger {
    /// One for each key; in a rotation, then another one for each, under the new secret.
    pub(super) cells: Vec<Cell>,
    pub(super) keys: usize,
    /// In a rotation, the half of the cells that every process finds.
    pub(super) common_half: Option<usize>,
    pub(super) calls: Vec<Call>,
    pub(super) runs: Vec<Run>,
    pub(super) lives: Vec<Life>,
    /// When the store answered nobody.
    pub(super) outages: Vec<Window>,
    /// How long what was true may still be told.
    lag: Ms,
    /// How long a failure may still show.
    sulk: Ms,
}

/// One caller's request to one process.
pub(super) struct Call {
    pub(super) process: usize,
    pub(super) key: usize,
    pub(super) fingerprint: Fingerprint,
    pub(super) credential: Option<[u8; 32]>,
    pub(super) terms: Terms,
    /// How long it wants its answer kept.
    pub(super) keep: Ms,
    pub(super) by_hand: bool,
    pub(super) started: Ms,
    pub(super) left: Option<Ms>,
    /// It left without an answer.
    pub(super) hung_up: bool,
    /// Its flight may go on without it: it hung up, or was told to come back.
    pub(super) flies_on: bool,
}

impl Call {
    /// Whether it, or the flight it left behind, was there in `window`.
    fn is_there(&self, window: Window) -> bool {
        let stays = |left: Ms| left >= window.from;
        self.started <= window.to && (self.flies_on || self.left.is_none_or(stays))
    }
}

/// One execution of a handler.
pub(super) struct Run {
    pub(super) call: usize,
    pub(super) token: Option<Token>,
    /// Which attempt it was told it is.
    pub(super) attempt: u32,
    pub(super) started: Ms,
    pub(super) ended: Option<(Ms, Ending)>,
    /// How long the handler wants its answer kept.
    pub(super) keep: Ms,
    /// When its process last heard from the store about its completion or release.
    pub(super) landed: Ms,
    /// When its process was told that its lease is lost.
    pub(super) lost: Option<Ms>,
    /// When its completion first failed.
    pub(super) failing: Option<Ms>,
    /// Its release was answered with another holder's stored answer of the same meaning.
    pub(super) told_of_another: bool,
    /// Its release failed once, and is tried on in the background.
    pub(super) releases_on: bool,
    /// Its completion was answered with "nothing is there".
    pub(super) told_absent: bool,
}

/// One process, from its start to its crash or the end of the run.
#[derive(Default)]
pub(super) struct Life {
    pub(super) secrets: Secrets,
    pub(super) troubles: Vec<Trouble>,
    /// When the store failed for it.
    pub(super) errors: Vec<Ms>,
    /// When its clock jumped.
    pub(super) jumps: Vec<Ms>,
    pub(super) closing: Option<Ms>,
    pub(super) crashed: bool,
}

/// Something went wrong with a process, or with one verb that it sent.
pub(super) struct Trouble {
    pub(super) window: Window,
    pub(super) verb: Option<(Verb, Token)>,
}

impl Trouble {
    /// Whether it can cost the lease of `token`: completions and waits do not keep it alive, and
    /// what goes wrong with another's verbs does not touch it.
    fn endangers(&self, token: &Token) -> bool {
        match self.verb {
            None => true,
            Some((Verb::Claim | Verb::Renew | Verb::Release, it)) => it == *token,
            Some(_) => false,
        }
    }
}

impl Ledger {
    pub(super) fn new(around: Option<Around>) -> Self {
        Self {
            lag: around.map_or(0, |it| in_millis(it.lag)),
            sulk: around.map_or(0, |it| in_millis(it.sulk)),
            ..Self::default()
        }
    }

    /// The slots are few: looking through them is faster than hashing.
    pub(super) fn key_of(&self, slot: &Slot) -> Option<usize> {
        self.cells.iter().position(|cell| cell.slot == *slot)
    }

    /// The cells of a key.
    pub(super) fn halves(&self, key: usize) -> Vec<usize> {
        match self.common_half {
            Some(_) => vec![key, key + self.keys],
            None => vec![key],
        }
    }

    /// The cell of a key that every process finds.
    pub(super) fn common(&self, key: usize) -> usize {
        key + self.common_half.unwrap_or(0) * self.keys
    }

    /// The cells of a key that `process` finds.
    pub(super) fn known(&self, process: usize, key: usize) -> Vec<usize> {
        let secrets = self.lives[process].secrets;
        let mut cells = self.halves(key);
        cells.retain(|cell| secrets.find(usize::from(*cell >= self.keys)));
        cells
    }

    /// Who held the slots of this call's key, as far as its process finds them.
    pub(super) fn tenures(&self, call: &Call) -> impl DoubleEndedIterator<Item = &Tenure> {
        let cells = self.known(call.process, call.key).into_iter();
        cells.flat_map(|cell| &self.cells[cell].tenures)
    }

    /// In a rotation, who held the slots of this call's key under the old secret and under the new
    /// one, if its process has both: it asks for the first and inside of that for the second.
    pub(super) fn nested(&self, call: &Call) -> Option<[&[Tenure]; 2]> {
        let cells = [call.key, call.key + self.keys];
        let both = self.lives[call.process].secrets == Secrets::Both;
        both.then(|| cells.map(|cell| &*self.cells[cell].tenures))
    }

    /// In a rotation, the calls beside this one whose flight may have got past the old secret's slot,
    /// and what each held there: nothing, if it ran without protection.
    pub(super) fn around(
        &self,
        call: usize,
        window: Window,
    ) -> impl Iterator<Item = (&Call, Option<&Tenure>)> {
        let outer = self.nested(&self.calls[call]).map(|[outer, _]| outer);
        let beside = outer.map(|outer| (outer, self.beside(call, window)));
        let flights = beside.into_iter().flat_map(|(outer, beside)| {
            beside.map(|leader| (leader, outer.iter().rev().find(|it| self.is_of(it, leader))))
        });
        flights.filter(move |(leader, held)| {
            let since = Window::new(leader.started, window.to);
            held.is_some() || (leader.terms.open && self.failed(leader.process, since))
        })
    }

    /// Whether a tenure was claimed for this call.
    fn is_of(&self, tenure: &Tenure, call: &Call) -> bool {
        let claimed_for = self.call_of(&tenure.meta);
        claimed_for.is_some_and(|it| std::ptr::eq(it, call))
    }

    /// The cell of this call's key in which `token` is or was.
    pub(super) fn cell_of(&self, call: &Call, token: &Token) -> usize {
        let mut cells = self.halves(call.key).into_iter();
        cells
            .find(|cell| self.cells[*cell].tenure_of(token).is_some())
            .unwrap_or(call.key)
    }

    /// The call that a record was claimed for.
    pub(super) fn call_of(&self, meta: &Meta) -> Option<&Call> {
        self.calls.get(call_id(meta)?)
    }

    /// The run under this token; or, in a rotation, inside of it.
    pub(super) fn run_of(&self, token: &Token) -> Option<usize> {
        let of_token = |run: &Run| run.token.as_ref() == Some(token);
        let inside = || {
            let call = call_id(&self.outer(token)?.meta)?;
            self.runs.iter().rposition(|run| run.call == call)
        };
        self.runs.iter().rposition(of_token).or_else(inside)
    }

    /// The tenure of a token under the old secret, by a process that runs only under the new one
    /// inside of it.
    pub(super) fn outer(&self, token: &Token) -> Option<&Tenure> {
        self.common_half?;
        let mut cells = self.cells[..self.keys].iter();
        let tenure = cells.find_map(|cell| cell.tenure_of(token))?;
        (self.lives[tenure.process].secrets == Secrets::Both).then_some(tenure)
    }

    /// Whether a fault touched this process, or the store, in `window`.
    pub(super) fn disturbed(&self, process: usize, window: Window) -> bool {
        let life = &self.lives[process];
        let mut troubles = life.troubles.iter();
        life.crashed || self.was_out(window) || troubles.any(|it| it.window.meets(window))
    }

    /// The same, or a wrapper may still show it.
    pub(super) fn troubled(&self, process: usize, window: Window) -> bool {
        self.disturbed(process, self.reach_back(process, window, self.sulk))
    }

    /// Whether the holder of `token` had an excuse to lose its lease in `window`.
    pub(super) fn endangered(&self, process: usize, token: &Token, window: Window) -> bool {
        let life = &self.lives[process];
        let mut troubles = life.troubles.iter().filter(|it| it.endangers(token));
        // A completion that the store refuses for as long as the record would live is given up.
        let given_up = || {
            let run = self.run_of(token).map(|id| &self.runs[id]);
            run.and_then(|run| Some(run.failing? + run.keep))
                .is_some_and(|at| at <= window.to)
        };
        life.crashed
            || self.was_out(window)
            || troubles.any(|it| it.window.meets(window))
            || given_up()
    }

    /// From when in `window` nothing disturbed the verbs of `token`; nothing if its process crashed.
    pub(super) fn calm_since(&self, process: usize, token: &Token, window: Window) -> Option<Ms> {
        let life = &self.lives[process];
        let troubles = life.troubles.iter().filter(|it| it.endangers(token));
        let windows = troubles
            .map(|it| it.window)
            .chain(self.outages.iter().copied());
        let last = windows.filter(|it| it.meets(window)).map(|it| it.to).max();
        let calm = last.map_or(window.from, |last| last.clamp(window.from, window.to));
        (!life.crashed).then_some(calm)
    }

    fn was_out(&self, window: Window) -> bool {
        self.outages.iter().any(|it| it.meets(window))
    }

    /// Whether the store failed for this process in `window`.
    pub(super) fn failed(&self, process: usize, window: Window) -> bool {
        let since = self.reach_back(process, window, self.sulk);
        let mut errors = self.lives[process].errors.iter();
        errors.any(|at| since.contains(*at))
    }

    /// How long a wrapper may still be late when all is well again, on the slowest clock.
    pub(super) fn recovery(&self) -> Ms {
        let jumps = self.lives.iter().map(|it| it.jumps.len() as Ms).max();
        let jumps = jumps.unwrap_or(0);
        match self.lag.max(self.sulk) {
            0 => 0,
            late => late + jumps * JUMP_MAX,
        }
    }

    /// `window`, begun as much earlier as a wrapper may be late. It ages by its process's clock,
    /// so after a jump of that nobody can tell how late.
    fn reach_back(&self, process: usize, window: Window, by: Ms) -> Window {
        let from = match by {
            0 => window.from,
            _ if self.lives[process].jumps.is_empty() => window.from.saturating_sub(by),
            _ => 0,
        };
        Window::new(from, window.to)
    }

    pub(super) fn jumped(&self, process: usize, window: Window) -> bool {
        let mut jumps = self.lives[process].jumps.iter();
        jumps.any(|at| window.contains(*at))
    }

    /// Other calls for the same key in the same process that were there in `window`. The flight
    /// of a caller who hung up or was told to come back may go on for an unknown time.
    pub(super) fn beside(&self, call: usize, window: Window) -> impl Iterator<Item = &Call> {
        let own = &self.calls[call];
        let others = self.calls.iter().enumerate();
        others
            .filter(move |(id, other)| {
                *id != call
                    && other.process == own.process
                    && other.key == own.key
                    && other.is_there(window)
            })
            .map(|(_, other)| other)
    }

    /// The time in which the answer to a call must have been true: its own, and that of the flight
    /// it may have been attached to. A flight asks the store before some of its duplicates come,
    /// and they share what it is told (docs/protocol.md#rule-13); how long before is bounded by a verb's latency.
    pub(super) fn answerable(&self, call: usize, now: Ms) -> Window {
        let process = self.calls[call].process;
        self.reach_back(process, self.heard_in(call, now), self.lag)
    }

    fn heard_in(&self, call: usize, now: Ms) -> Window {
        let caller = &self.calls[call];
        let own = Window::new(caller.started, now);
        let beside = self.beside(call, own);
        let same = beside.filter(|other| other.fingerprint == caller.fingerprint);
        let Some(first) = same.map(|other| other.started).min() else {
            return own;
        };
        let flight = Window::new(first.min(own.from), now);
        if self.disturbed(caller.process, flight) {
            return flight;
        }
        let read = own.from.saturating_sub(READ_AGE_MAX);
        Window::new(flight.from.max(read), now)
    }

    /// Runs for the same key and meaning in the same process whose flight was there in `window`:
    /// those a duplicate can have been attached to, and its own.
    pub(super) fn flights(&self, call: usize, window: Window) -> impl Iterator<Item = &Run> {
        let own = &self.calls[call];
        self.runs.iter().filter(move |run| {
            let leader = &self.calls[run.call];
            leader.process == own.process
                && leader.key == own.key
                && leader.fingerprint == own.fingerprint
                && self.flight(run).meets(window)
        })
    }

    /// From the start of a run to the end of its flight, as far as that is known.
    pub(super) fn flight(&self, run: &Run) -> Window {
        let leader = &self.calls[run.call];
        let until = match (run.ended, leader.left) {
            (Some(_), Some(_)) if leader.flies_on => run.landed + STALL_MAX,
            (Some(_), Some(left)) => left.max(run.landed),
            (None, _) | (_, None) => Ms::MAX,
        };
        Window::new(run.started, until)
    }
}

/// The number of the call that a record was claimed for: it is the trace.
pub(super) fn call_id(meta: &Meta) -> Option<usize> {
    meta.trace.as_deref()?.parse().ok()
}
