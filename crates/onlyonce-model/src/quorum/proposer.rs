//! A proposer's steps: it asks, and does what [`Tries`] and [`SlotRegister`] say of the answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::StatusCode;
use onlyonce_core::{Claimed, Completed, Record, Response};
use onlyonce_quorum::{
    Accept, Ballot, Decision, EPOCH_FIRST, Found, Manner, Next, Prepare, SlotRegister, Tries,
};

use super::bounds::Numbers;
use super::{Bug, MAJORITY, Phase, Proposer, Question, Quorum, Rule, Run, Said, State, Verb};

impl Default for Proposer {
    fn default() -> Self {
        Self {
            calls: 0,
            ballots: 0,
            epoch: EPOCH_FIRST,
            known: None,
            verb: Verb::Claim,
            sent: Vec::new(),
            tries: Tries::default(),
            ahead: None,
            phase: Phase::Idle,
        }
    }
}

impl Verb {
    const fn manner(self) -> Manner {
        match self {
            Self::Claim => Manner::Claim,
            Self::Complete => Manner::Holder,
        }
    }
}

impl Quorum {
    /// A proposer begins its next call.
    pub(super) fn begins(&self, state: &mut State, id: usize) {
        let known = state.known;
        let proposer = &mut state.proposers[id];
        proposer.calls += 1;
        proposer.known = known;
        proposer.epoch = proposer.epoch.max(state.keeper.epoch);
        proposer.verb = Verb::Claim;
        proposer.tries = Tries::default();
        // Most claims find nothing, or what they do not change.
        self.prepare(state, id, true);
    }

    /// Nothing was heard of a step, or too little: the engine repeats it, with the same token.
    pub(super) fn starts_over(&self, state: &mut State, id: usize) {
        let proposer = &mut state.proposers[id];
        proposer.tries = Tries::default();
        proposer.epoch = proposer.epoch.max(state.keeper.epoch);
        let only_if_new = proposer.verb == Verb::Claim;
        self.prepare(state, id, only_if_new);
    }

    /// A proposer goes on with the answers of a majority.
    pub(super) fn goes_on(&self, state: &mut State, id: usize) {
        let proposer = &mut state.proposers[id];
        match std::mem::replace(&mut proposer.phase, Phase::Idle) {
            Phase::Preparing(answers) => {
                let answers = answers.into_values().collect();
                let Some(mut answered) = proposer.tries.answered(answers, MAJORITY) else {
                    return self.prepare(state, id, false);
                };
                answered.found.is_decided |= self.bug == Some(Bug::NoWriteBack);
                let run = run(id, proposer);
                let verb = proposer.verb;
                let next = proposer
                    .tries
                    .decide(&answered, |found| self.decide(verb, run, found));
                match next.expect("a value of ours can be read") {
                    Next::Done(said) => self.told(state, id, said),
                    Next::Again => self.prepare(state, id, false),
                    Next::Write(decision) => {
                        let promise = proposer.promise();
                        self.write(state, id, promise, &answered.found, decision);
                    }
                }
            }
            Phase::Accepting(decision, answers) => {
                let answers = answers.into_values().collect();
                if !proposer.tries.is_accepted(answers, MAJORITY) {
                    return self.prepare(state, id, false);
                }
                proposer.ahead = match proposer.sent.last() {
                    Some(Question::Accept(ask)) => {
                        ask.next.map(|next| (next, ask.epoch, ask.value.clone()))
                    }
                    Some(Question::Prepare(_)) | None => None,
                };
                self.told(state, id, decision.answer);
            }
            phase @ (Phase::Idle | Phase::Stopped) => proposer.phase = phase,
        }
    }

    fn prepare(&self, state: &mut State, id: usize, only_if_new: bool) {
        let proposer = &mut state.proposers[id];
        if proposer.ballots >= self.bounds.ballots_max[id] {
            proposer.phase = Phase::Stopped;
            return;
        }
        let numbers = Numbers::new(id, proposer.ballots);
        let ask = Prepare {
            key: Arc::clone(&self.key),
            ballot: proposer.tries.next_ballot(state.keeper.floor, &numbers),
            epoch: proposer.epoch,
            only_if_new,
            may_be_full: proposer.verb == Verb::Claim,
        };
        proposer.ballots = numbers.made();
        proposer.sent.push(Question::Prepare(ask));
        proposer.phase = Phase::Preparing(BTreeMap::new());
    }

    /// Has what was decided accepted; what was found, if nothing was.
    fn write(
        &self,
        state: &mut State,
        id: usize,
        (ballot, epoch): (Ballot, u64),
        found: &Found,
        decision: Decision<Said>,
    ) {
        let proposer = &mut state.proposers[id];
        let numbers = Numbers::new(id, proposer.ballots);
        let manner = proposer.verb.manner();
        let ask = proposer
            .tries
            .propose(&self.key, manner, ballot, epoch, found, &decision, &numbers);
        let Some(ask) = ask else {
            return self.told(state, id, decision.answer);
        };
        proposer.ballots = numbers.made();
        proposer.sent.push(Question::Accept(ask));
        proposer.phase = Phase::Accepting(decision, BTreeMap::new());
    }

    /// One step of the store on what was found.
    fn decide(
        &self,
        verb: Verb,
        run: Run,
        found: &Found,
    ) -> Result<Decision<Said>, onlyonce_core::codec::CodecError> {
        let claim = &self.claims[usize::from(run.proposer)][usize::from(run.call)];
        SlotRegister::step(found, |register, now| match verb {
            Verb::Claim => {
                let (claimed, change) = register.claim(claim, now);
                (Said::of_claim(&claimed), change)
            }
            Verb::Complete => {
                let response = Arc::new(Response::new(StatusCode::OK, run.body()));
                let lease = claim.lease();
                let keep_for = lease.keep_for;
                let entry = &mut register.entry;
                let (completed, change) = entry.complete(&lease, &response, keep_for, now);
                (Said::of_completion(&completed), change)
            }
        })
    }

    /// A step is answered: is it true?
    fn told(&self, state: &mut State, id: usize, said: Said) {
        let proposer = &mut state.proposers[id];
        proposer.phase = Phase::Idle;
        let (run, verb, known) = (run(id, proposer), proposer.verb, proposer.known);
        match (verb, said) {
            (Verb::Claim, Said::Granted) => {
                let is_alone = state.granted.iter().all(|other| *other == run);
                state.require(known.is_none(), Rule::FinishedStays);
                state.require(is_alone, Rule::LiveLease);
                state.granted.insert(run);
                self.completes(state, id);
            }
            (Verb::Claim, Said::InProgress | Said::Absent) => {
                state.require(known.is_none(), Rule::FinishedStays);
            }
            (Verb::Claim | Verb::Complete, Said::Finished(stored)) => {
                let has_run = state.granted.contains(&stored);
                let is_same = state.known.is_none_or(|known| known == stored);
                state.require(has_run && is_same, Rule::ReplayIsStored);
                let is_own = verb == Verb::Claim || stored == run;
                state.require(is_own, Rule::HolderCompletes);
                state.known = Some(stored);
            }
            (Verb::Complete, Said::Stored) => {
                let is_same = state.known.is_none_or(|known| known == run);
                let is_holder = state.granted.contains(&run);
                state.require(is_same, Rule::SentOnceStored);
                state.require(is_holder, Rule::LostNeverCompletes);
                state.known = Some(run);
            }
            (Verb::Complete, Said::Granted | Said::InProgress | Said::Absent)
            | (Verb::Claim, Said::Stored) => state.require(false, Rule::HolderCompletes),
        }
    }

    /// A granted claim is completed: at once with the promise that came with it, if there is one.
    fn completes(&self, state: &mut State, id: usize) {
        let proposer = &mut state.proposers[id];
        proposer.verb = Verb::Complete;
        proposer.tries = Tries::default();
        let run = run(id, proposer);
        let ahead = proposer.ahead.take();
        let ahead = ahead.filter(|(_, epoch, _)| *epoch == proposer.epoch);
        let Some((ballot, epoch, value)) = ahead else {
            return self.prepare(state, id, false);
        };
        let found = Found::own(value, std::time::Duration::ZERO);
        let decision = self.decide(Verb::Complete, run, &found);
        let decision = decision.expect("a value of ours can be read");
        match decision.value {
            Some(_) => self.write(state, id, (ballot, epoch), &found, decision),
            None => self.prepare(state, id, false),
        }
    }
}

impl Proposer {
    /// The ballot of its last question, and its epoch.
    fn promise(&self) -> (Ballot, u64) {
        match self.sent.last() {
            Some(Question::Prepare(Prepare { ballot, epoch, .. }))
            | Some(Question::Accept(Accept { ballot, epoch, .. })) => (*ballot, *epoch),
            None => (Ballot::end_of(0), EPOCH_FIRST),
        }
    }
}

/// The execution that a proposer's present call is or would be.
fn run(id: usize, proposer: &Proposer) -> Run {
    Run {
        proposer: u8::try_from(id).expect("proposers are few"),
        call: proposer.calls.saturating_sub(1),
    }
}

impl Said {
    fn of_claim(claimed: &Claimed) -> Self {
        match claimed {
            Claimed::Granted { .. } => Self::Granted,
            Claimed::Taken(record) => Self::of_record(record),
            Claimed::Dead => Self::Absent,
        }
    }

    fn of_completion(completed: &Completed) -> Self {
        match completed {
            Completed::Stored(_) => Self::Stored,
            Completed::Found(record) => Self::of_record(record),
            Completed::Absent => Self::Absent,
        }
    }

    fn of_record(record: &Record) -> Self {
        let stored = record.response().and_then(|it| Run::of(&it.body));
        stored.map_or(Self::InProgress, Self::Finished)
    }
}
