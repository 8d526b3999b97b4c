//! What happened in a run, and the rules that it must have kept:
//!
//! - an operation under `hold` starts once, unless the one before said that it did not run;
//! - an answer that somebody was told is told to everyone who asks after that, and no other one is;
//! - who offers a secret gets the one that everybody got.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

#[derive(Default)]
pub(super) struct Ledger {
    keys: Mutex<BTreeMap<u8, Page>>,
    secret: Mutex<Option<Vec<u8>>>,
    pub(super) counts: Mutex<Counts>,
    violations: Mutex<Vec<String>>,
}

#[derive(Default)]
struct Page {
    /// Who may run now: granted, and not given back.
    runs: Vec<Vec<u8>>,
    /// The answer, and when it was first told.
    told: Option<(Vec<u8>, Duration)>,
}

/// How much happened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) operations: usize,
    pub(super) errors: usize,
    pub(super) runs: usize,
    pub(super) replays: usize,
    pub(super) faults: usize,
}

impl Ledger {
    /// A claim that began at `asked` was granted.
    pub(super) fn granted(&self, key: u8, token: &[u8], asked: Duration) {
        self.counts.lock().unwrap().runs += 1;
        let mut keys = self.keys.lock().unwrap();
        let page = keys.entry(key).or_default();
        if let Some((_, told)) = &page.told
            && asked > *told
        {
            self.violate(format!("key {key} was granted after its answer was told"));
        }
        if !page.runs.is_empty() && !page.runs.iter().any(|it| it == token) {
            self.violate(format!("key {key} runs twice"));
        }
        page.runs.push(token.to_vec());
    }

    /// About to be given back: whoever comes next may run.
    pub(super) fn gives_back(&self, key: u8, token: &[u8]) {
        let mut keys = self.keys.lock().unwrap();
        let page = keys.entry(key).or_default();
        page.runs.retain(|it| it != token);
    }

    /// Who asked from `asked` until `heard` was told this answer.
    pub(super) fn told(&self, key: u8, body: &[u8], heard: Duration) {
        let mut keys = self.keys.lock().unwrap();
        let page = keys.entry(key).or_default();
        match &page.told {
            Some((answer, _)) if answer != body => {
                self.violate(format!("key {key} has two answers"));
            }
            Some(_) => {}
            None => page.told = Some((body.to_vec(), heard)),
        }
    }

    /// Who asked from `asked` found no answer.
    pub(super) fn found_none(&self, key: u8, asked: Duration) {
        let keys = self.keys.lock().unwrap();
        let told = keys.get(&key).and_then(|page| page.told.as_ref());
        if told.is_some_and(|(_, told)| asked > *told) {
            self.violate(format!("the answer of key {key} was told, and is gone"));
        }
    }

    pub(super) fn agreed(&self, secret: &[u8]) {
        let mut known = self.secret.lock().unwrap();
        match &*known {
            Some(known) if known != secret => self.violate("two secrets".to_owned()),
            Some(_) => {}
            None => *known = Some(secret.to_vec()),
        }
    }

    pub(super) fn answers(&self) -> BTreeMap<u8, Vec<u8>> {
        let keys = self.keys.lock().unwrap();
        let told = keys.iter().filter_map(|(key, page)| {
            let (answer, _) = page.told.as_ref()?;
            Some((*key, answer.clone()))
        });
        told.collect()
    }

    pub(super) fn violate(&self, what: String) {
        self.violations.lock().unwrap().push(what);
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap().clone()
    }
}
