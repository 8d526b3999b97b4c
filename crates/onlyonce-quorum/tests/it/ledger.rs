//! What happened in a run, and the rules that it must have kept:
//!
//! - an operation under `hold` starts once within lease and retention, unless the one before said that it
//!   did not run;
//! - an answer that somebody was told is told to everyone who asks after that, and no other one is, until
//!   its retention is over; it is not told for much longer;
//! - who offers a secret gets the one that everybody got.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

/// Servers tell of a record for this much longer at most: messages may be late, and clocks wrong.
const STALE_MAX: Duration = Duration::from_secs(90);

/// They may end a record so much too early: a register's time falls behind the date by as much as messages are
/// late, and one server with a wrong clock may be the only one that has it.
const EARLY_MAX: Duration = Duration::from_secs(5);
/// What is kept for longer than this does not expire in a run.
const LONG: Duration = Duration::from_secs(10_000);

pub(super) struct Ledger {
    lease: Duration,
    keep: Duration,
    keys: Mutex<BTreeMap<u8, Page>>,
    secret: Mutex<Option<Vec<u8>>>,
    pub(super) counts: Mutex<Counts>,
    violations: Mutex<Vec<String>>,
}

#[derive(Default)]
struct Page {
    /// Who may run now: granted, and not given back; and from when on it may be over.
    runs: BTreeMap<Vec<u8>, Duration>,
    told: Option<Told>,
    /// By how much operators may have prolonged it.
    extended: Duration,
    /// An operator forgot what is in it: anything may follow.
    is_forgotten: bool,
}

struct Told {
    answer: Vec<u8>,
    /// When it was first told.
    heard: Duration,
    /// Not over before.
    until: Duration,
}

/// How much happened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) operations: usize,
    pub(super) errors: usize,
    pub(super) runs: usize,
    pub(super) replays: usize,
    pub(super) expired: usize,
    pub(super) faults: usize,
}

impl Ledger {
    pub(super) fn new(lease: Duration, keep: Duration) -> Self {
        Self {
            lease,
            keep,
            keys: Mutex::default(),
            secret: Mutex::default(),
            counts: Mutex::default(),
            violations: Mutex::default(),
        }
    }

    fn on_page(&self, key: u8, turn: impl FnOnce(&mut Page)) {
        let mut keys = self.keys.lock().unwrap();
        let page = keys.entry(key).or_default();
        if !page.is_forgotten {
            turn(page);
        }
    }

    /// A claim that was asked for at `asked` was granted by `heard`.
    pub(super) fn granted(&self, key: u8, token: &[u8], asked: Duration, heard: Duration) {
        self.counts.lock().unwrap().runs += 1;
        self.on_page(key, |page| {
            if let Some(told) = &page.told {
                if asked > told.heard && heard < told.until {
                    let early = told.until - heard;
                    self.violate(format!(
                        "key {key} was granted after its answer was told: {early:?} too early"
                    ));
                }
                if heard >= told.until {
                    self.counts.lock().unwrap().expired += 1;
                    page.told = None;
                    page.extended = Duration::ZERO;
                }
            }
            page.runs.retain(|_, over| *over > heard);
            if !page.runs.is_empty() && !page.runs.contains_key(token) {
                self.violate(format!("key {key} runs twice"));
            }
            page.runs
                .insert(token.to_vec(), asked + self.lease + self.keep - EARLY_MAX);
        });
    }

    /// About to be given back: whoever comes next may run.
    pub(super) fn gives_back(&self, key: u8, token: &[u8]) {
        self.on_page(key, |page| {
            page.runs.remove(token);
        });
    }

    /// About to be completed: its retention counts from then on.
    pub(super) fn completes(&self, key: u8, token: &[u8], asked: Duration) {
        self.on_page(key, |page| {
            if let Some(over) = page.runs.get_mut(token) {
                *over = asked + self.keep - EARLY_MAX;
            }
        });
    }

    /// An operator is about to prolong it.
    pub(super) fn extends(&self, key: u8, extra: Duration) {
        self.on_page(key, |page| page.extended += extra);
    }

    /// An operator is about to forget it.
    pub(super) fn forgets(&self, key: u8) {
        self.on_page(key, |page| page.is_forgotten = true);
    }

    /// Who asked at `asked` was told this answer by `heard`.
    pub(super) fn told(&self, key: u8, body: &[u8], asked: Duration, heard: Duration) {
        self.on_page(key, |page| {
            if let Some(told) = &page.told {
                if told.answer == body {
                    let end = told.heard + self.keep + page.extended;
                    if asked > end + STALE_MAX {
                        self.violate(format!("key {key} is answered long after its end"));
                    }
                    return;
                }
                // Where records expire, one that was asked for before may be heard of after.
                let is_new = asked > told.heard || self.keep > LONG;
                if is_new && heard < told.until {
                    self.violate(format!("key {key} has two answers"));
                }
            }
            // An operator's answer has no run.
            let over = page.runs.get(body).copied();
            page.told = Some(Told {
                answer: body.to_vec(),
                heard,
                until: over.unwrap_or(heard),
            });
        });
    }

    /// Who asked at `asked` found no answer by `heard`.
    pub(super) fn found_none(&self, key: u8, asked: Duration, heard: Duration) {
        self.on_page(key, |page| {
            let told = page.told.as_ref();
            if told.is_some_and(|told| asked > told.heard && heard < told.until) {
                self.violate(format!("the answer of key {key} was told, and is gone"));
            }
        });
    }

    pub(super) fn agreed(&self, secret: &[u8]) {
        let mut known = self.secret.lock().unwrap();
        match &*known {
            Some(known) if known != secret => self.violate("two secrets".to_owned()),
            Some(_) => {}
            None => *known = Some(secret.to_vec()),
        }
    }

    pub(super) fn violate(&self, what: String) {
        self.violations.lock().unwrap().push(what);
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap().clone()
    }
}
