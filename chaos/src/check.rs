//! Judges a history. Pure: what was written down goes in, what is wrong comes out.
//!
//! All that is forgiven is forgiven by [`excuse`], and for a reason that is given there.

mod excuse;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Serialize;

use self::excuse::{Excuses, Rerun};
use crate::history::{Answer, Attempt, Execution, History, Micros, OnLapse};

pub(crate) const ONCE: &str = "with hold nothing runs twice";
pub(crate) const AFTER_A_LAPSE: &str = "a second execution only after a lapse that really happened";
pub(crate) const NOT_AFTER_ITS_ANSWER: &str = "what was answered does not run again";
pub(crate) const ONE_ANSWER: &str = "every client sees one and the same final answer";
pub(crate) const REAL_ANSWER: &str = "an answer is what an execution of its key made";
pub(crate) const KEPT: &str = "nothing acknowledged is lost";
pub(crate) const ANSWERED: &str = "every operation has a final answer once all faults are over";
pub(crate) const UNKNOWN: &str = "an outcome is unknown only after trouble";
pub(crate) const BACK: &str = "availability returns after every fault";
pub(crate) const TO_THE_POINT: &str = "a fault does what it is to do";
pub(crate) const ALIVE: &str = "no gateway ends by itself";

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Violation {
    pub(crate) rule: &'static str,
    pub(crate) key: Option<u64>,
    pub(crate) detail: String,
}

/// What a history comes to.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) violations: Vec<Violation>,
    /// Executions after the first of a key, all of them excused unless there are violations.
    pub(crate) reruns: usize,
    /// Keys whose last answer is that the outcome is unknown.
    pub(crate) unknown: usize,
    /// Second executions that only a stall of this machine excuses.
    pub(crate) stalled: usize,
}

/// All that happened to one key, in order of time.
#[derive(Default)]
struct Case {
    attempts: Vec<Attempt>,
    executions: Vec<Execution>,
}

pub(crate) fn check(history: &History) -> Verdict {
    let mut cases: BTreeMap<u64, Case> = BTreeMap::new();
    for attempt in &history.attempts {
        cases
            .entry(attempt.key)
            .or_default()
            .attempts
            .push(*attempt);
    }
    for execution in &history.executions {
        let case = cases.entry(execution.key).or_default();
        case.executions.push(*execution);
    }
    let mut judge = Judge {
        history,
        excuses: Excuses::of(history),
        verdict: Verdict::default(),
        key: None,
    };
    for (key, mut case) in cases {
        case.attempts.sort_by_key(|it| it.heard);
        case.executions.sort_by_key(|it| it.started);
        judge.key = Some(key);
        judge.case(&case);
    }
    judge.key = None;
    judge.whole();
    judge.verdict
}

struct Judge<'a> {
    history: &'a History,
    excuses: Excuses<'a>,
    verdict: Verdict,
    /// The key that is judged.
    key: Option<u64>,
}

impl Judge<'_> {
    fn case(&mut self, case: &Case) {
        self.executions(case);
        self.answers(case);
        self.end(case);
    }

    fn executions(&mut self, case: &Case) {
        let answered = first_done(case).map(|it| it.heard);
        let mut executions = case.executions.iter();
        // Who held the claim last.
        let Some(mut holder) = executions.next() else {
            return;
        };
        for next in executions {
            self.verdict.reruns += 1;
            let what = format!("execution {} after {}", next.number, holder.number);
            if self.history.on_lapse == OnLapse::Hold {
                self.tell(ONCE, what);
                continue;
            }
            let rerun = self.excuses.rerun(holder, next);
            match rerun {
                Some(Rerun { by_stall: true, .. }) => self.verdict.stalled += 1,
                Some(_) => {}
                None => self.tell(AFTER_A_LAPSE, what.clone()),
            }
            if answered.is_some_and(|at| next.started > at && !self.excuses.late(next, at)) {
                self.tell(NOT_AFTER_ITS_ANSWER, what);
            }
            if rerun.is_none_or(|it| it.takes_over) {
                holder = next;
            }
        }
    }

    fn answers(&mut self, case: &Case) {
        let first = first_done(case);
        for it in &case.attempts {
            let what = || format!("{:?} from gateway {}", it.answer, it.gateway);
            match it.answer {
                Answer::Done(number) => {
                    let made = case.executions.iter().find(|made| made.number == number);
                    if made.is_none_or(|made| made.started > it.heard) {
                        self.tell(REAL_ANSWER, what());
                    }
                    if let Some(first) = first.filter(|first| first.answer != it.answer) {
                        self.tell(ONE_ANSWER, format!("{}, first {:?}", what(), first.answer));
                    }
                }
                Answer::Unknown if first.is_some_and(|first| it.sent > first.heard) => {
                    self.tell(KEPT, what());
                }
                Answer::Garbled => self.tell(REAL_ANSWER, what()),
                Answer::Unknown | Answer::Refused(_) | Answer::Nothing => {}
            }
        }
    }

    /// How it ends: everybody was asked again when all was well.
    fn end(&mut self, case: &Case) {
        let Some(last) = case.attempts.iter().max_by_key(|it| it.sent) else {
            self.tell(REAL_ANSWER, "it ran, and nobody asked for it".to_owned());
            return;
        };
        match (last.answer, self.history.on_lapse) {
            (Answer::Done(_) | Answer::Garbled, _) => {}
            (Answer::Unknown, OnLapse::Hold) => self.verdict.unknown += 1,
            (Answer::Unknown | Answer::Refused(_) | Answer::Nothing, _) => {
                self.tell(ANSWERED, format!("in the end {:?}", last.answer));
            }
        }
        let unknown = case.attempts.iter().find(|it| it.answer == Answer::Unknown);
        if let Some(it) = unknown
            && !self.excuses.doubt(case, it.heard)
        {
            self.tell(UNKNOWN, format!("from gateway {}", it.gateway));
        }
    }

    fn whole(&mut self) {
        for it in &self.history.troubles {
            let what = format!("{} of {}", it.kind, it.whom);
            if let Some(missed) = it.missed {
                self.tell(TO_THE_POINT, format!("{what}: {missed}"));
            }
            if it.back_after.is_none() {
                self.tell(BACK, what);
            }
        }
        for crash in &self.history.crashes {
            self.tell(ALIVE, crash.clone());
        }
    }

    fn tell(&mut self, rule: &'static str, detail: String) {
        let key = self.key;
        let violation = Violation { rule, key, detail };
        if !self.verdict.violations.contains(&violation) {
            self.verdict.violations.push(violation);
        }
    }
}

fn first_done(case: &Case) -> Option<&Attempt> {
    let done = |it: &&Attempt| matches!(it.answer, Answer::Done(_));
    case.attempts.iter().find(done)
}

/// The parts of a duration.
pub(crate) const fn millis(ms: u64) -> Micros {
    ms * 1000
}
