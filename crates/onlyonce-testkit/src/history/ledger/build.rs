//! From logs to a ledger.

use std::collections::BTreeMap;

use super::{At, Call, Deed, Ledger, Life, Read, Run, Tenure, Window};
use crate::history::clock::{Micros, micros};
use crate::history::log::{Ask, CallId, Fault, Reply, Short, What};
use crate::history::record::{History, Log};

/// Whether each of the processes had the store for itself: no other was there before it was gone.
fn follow_each_other(lives: &[Life]) -> bool {
    let mut turns: Vec<_> = lives
        .iter()
        .map(|life| (life.opened, life.over()))
        .collect();
    turns.sort_unstable();
    turns.windows(2).all(|turns| turns[0].1 <= turns[1].0)
}

impl<'h> Ledger<'h> {
    pub(crate) fn of(history: &'h History) -> Self {
        let mut ledger = Self::default();
        let mut lives = BTreeMap::new();
        for (number, log) in history.logs.iter().enumerate() {
            if let Some(life) = log.worker() {
                lives.insert(life, ledger.lives.len());
                ledger.read_worker(number, log);
            }
        }
        for log in history.logs.iter().filter(|log| log.worker().is_none()) {
            ledger.read_driver(log, &lives);
        }
        ledger.has_one_owner = follow_each_other(&ledger.lives);
        ledger.place();
        ledger
    }

    fn read_worker(&mut self, number: usize, log: &'h Log) {
        let life = self.lives.len();
        self.lives.push(Life {
            opened: log.entries.first().map_or(0, |entry| entry.at),
            closed: None,
            killed: None,
            troubles: Vec::new(),
            failures: Vec::new(),
        });
        let mut verbs = Verbs::default();
        for (index, entry) in log.entries.iter().enumerate() {
            let at = At {
                us: entry.at,
                log: number,
                entry: index,
            };
            match &entry.what {
                What::Sent { verb, token, ask } => verbs.send(*verb, *token, ask, at),
                What::Replied { verb, reply } => verbs.reply(*verb, reply, at),
                What::Late { since } => self.lives[life].troubles.push(Window {
                    from: *since,
                    to: at.us,
                }),
                What::Closed => self.lives[life].closed = Some(at.us),
                what @ (What::Opened { .. }
                | What::Called { .. }
                | What::Started { .. }
                | What::Ended { .. }
                | What::Dropped { .. }
                | What::Heard { .. }
                | What::HungUp { .. }
                | What::Fault(_)) => self.read_call(life, what, at),
            }
        }
        self.lives[life].failures = verbs.failures;
        self.take_verbs(life, verbs.sent);
    }

    fn read_call(&mut self, life: usize, what: &'h What, at: At) {
        let call = |id: &CallId| (*id, at);
        match what {
            What::Called {
                call,
                key,
                payload,
                terms,
                by_hand,
                sweep,
            } => {
                let new = Call {
                    id: *call,
                    key: *key,
                    payload: *payload,
                    terms: *terms,
                    by_hand: *by_hand,
                    sweep: *sweep,
                    called: at,
                    heard: None,
                    hung_up: false,
                    run: None,
                    life,
                };
                self.calls.insert(*call, new);
            }
            What::Started {
                call: id, token, ..
            } => {
                let (id, started) = call(id);
                let run = Run {
                    token: *token,
                    started,
                    ended: None,
                    dropped: None,
                };
                self.on_call(id, |call| call.run = Some(run));
            }
            What::Ended { call: id, ending } => {
                let (id, at) = call(id);
                self.on_run(id, |run| run.ended = Some((at, ending)));
            }
            What::Dropped { call: id } => {
                let (id, at) = call(id);
                self.on_run(id, |run| run.dropped = Some(at));
            }
            What::Heard { call: id, heard } => {
                let (id, at) = call(id);
                self.on_call(id, |call| call.heard = Some((at, heard)));
            }
            What::HungUp { call: id } => self.on_call(*id, |call| call.hung_up = true),
            What::Opened { .. }
            | What::Sent { .. }
            | What::Replied { .. }
            | What::Late { .. }
            | What::Closed
            | What::Fault(_) => {}
        }
    }

    fn on_call(&mut self, id: CallId, change: impl FnOnce(&mut Call<'h>)) {
        if let Some(call) = self.calls.get_mut(&id) {
            change(call);
        }
    }

    fn on_run(&mut self, id: CallId, change: impl FnOnce(&mut Run<'h>)) {
        self.on_call(id, |call| {
            if let Some(run) = &mut call.run {
                change(run);
            }
        });
    }

    /// Gives each verb to its claim. The claim's own line names the call.
    fn take_verbs(&mut self, life: usize, sent: BTreeMap<u64, (Short, Deed<'h>)>) {
        for (token, deed) in sent.into_values() {
            self.verbs += 1;
            self.verbs_in_doubt += u64::from(deed.is_in_doubt());
            if let Ask::Claim { call } = deed.ask
                && let Some(call) = self.calls.get(call)
            {
                self.tenures.entry(token).or_insert_with(|| Tenure {
                    token,
                    call: call.id,
                    key: call.key,
                    payload: call.payload,
                    hold: call.terms.hold,
                    lease: micros(call.terms.lease),
                    keep: micros(call.terms.keep),
                    life,
                    deeds: Vec::new(),
                    sightings: Vec::new(),
                    seen_finished: None,
                });
            }
            if let Some(tenure) = self.tenures.get_mut(&token) {
                tenure.deeds.push(deed);
            }
        }
    }

    fn read_driver(&mut self, log: &Log, lives: &BTreeMap<(u16, u16), usize>) {
        let mut open = BTreeMap::new();
        for entry in &log.entries {
            let What::Fault(fault) = &entry.what else {
                continue;
            };
            match fault {
                Fault::Kill { node, life } => drop(open.insert(("kill", *node, *life), entry.at)),
                Fault::Stop { node, life } => drop(open.insert(("stop", *node, *life), entry.at)),
                Fault::Store => drop(open.insert(("store", 0, 0), entry.at)),
                Fault::Killed { node, life } => {
                    let fault = ("kill", *node, *life);
                    self.suffer(fault, open.remove(&fault), entry.at, lives);
                }
                Fault::Continued { node, life } => {
                    let fault = ("stop", *node, *life);
                    self.suffer(fault, open.remove(&fault), entry.at, lives);
                }
                Fault::StoreOver(_) => {
                    let fault = ("store", 0, 0);
                    self.suffer(fault, open.remove(&fault), entry.at, lives);
                }
                Fault::Healed => self.healed = Some(entry.at),
            }
        }
        // What has no end in the log goes on.
        for (fault, from) in open {
            self.suffer(fault, Some(from), Micros::MAX, lives);
        }
    }

    fn suffer(
        &mut self,
        (fault, node, life): (&'static str, u16, u16),
        from: Option<Micros>,
        to: Micros,
        lives: &BTreeMap<(u16, u16), usize>,
    ) {
        *self.faults.entry(fault).or_default() += 1;
        let window = Window {
            from: from.unwrap_or(to),
            to,
        };
        let life = lives.get(&(node, life)).map(|id| &mut self.lives[*id]);
        match (fault, life) {
            ("store", _) => self.store_faults.push(window),
            ("kill", Some(life)) => life.killed = Some(window),
            (_, Some(life)) => life.troubles.push(window),
            // It was over before it could write a line.
            (_, None) => {}
        }
    }

    /// Sorts everything by key, and gives each claim what others saw of it.
    fn place(&mut self) {
        for call in self.calls.values() {
            self.keys.entry(call.key).or_default().calls.push(call.id);
        }
        let mut sights = Vec::new();
        for tenure in self.tenures.values_mut() {
            tenure.deeds.sort_by_key(|deed| deed.sent.us);
            let keyed = self.keys.entry(tenure.key).or_default();
            keyed.tenures.push(tenure.token);
            for deed in &tenure.deeds {
                let (seen, replied) = match deed.replied {
                    Some((at, Reply::Taken(seen) | Reply::Found(seen))) => (Some(seen), at),
                    Some((at, Reply::Absent)) => (None, at),
                    Some(_) | None => continue,
                };
                let sent = deed.sent;
                sights.extend(seen.map(|seen| (seen, sent, replied)));
                keyed.reads.push(Read {
                    sent,
                    replied,
                    seen,
                });
            }
        }
        for (seen, sent, replied) in sights {
            if let Some(tenure) = self.tenures.get_mut(&seen.token) {
                tenure.note_seen(seen, sent, replied);
            }
        }
        for keyed in self.keys.values_mut() {
            keyed.reads.sort_by_key(|read| read.replied.us);
        }
    }
}

/// The verbs of one life.
#[derive(Default)]
struct Verbs<'h> {
    sent: BTreeMap<u64, (Short, Deed<'h>)>,
    failures: Vec<Micros>,
}

impl<'h> Verbs<'h> {
    fn send(&mut self, verb: u64, token: Short, ask: &'h Ask, sent: At) {
        let replied = None;
        let deed = Deed { ask, sent, replied };
        self.sent.insert(verb, (token, deed));
    }

    fn reply(&mut self, verb: u64, reply: &'h Reply, at: At) {
        if *reply == Reply::Failed {
            self.failures.push(at.us);
        }
        if let Some((_, deed)) = self.sent.get_mut(&verb) {
            deed.replied = Some((at, reply));
        }
    }
}
