//! The process that admits a server that lost its disk: it raises the epoch at one server after the other,
//! has what a majority of the others has written to them, and lets the server vote.

use onlyonce_core::entry::Change;
use onlyonce_quorum::{
    Deed, EPOCH_FIRST, Found, Manner, ModelServer, Next, Prepare, SlotRegister, Tries, Votes,
};

use super::bounds::Numbers;
use super::{Bug, MAJORITY, NOW, Quorum, State, Step, pass};

/// The epoch of the admission. What matters of it is that it is another one.
const RAISED: u64 = EPOCH_FIRST + 1;
/// Its number among the proposers.
const KEEPER: usize = 9;

/// How far the admission has come.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(super) struct Keeper {
    /// The epoch that it has raised on a majority.
    pub(super) epoch: u64,
    /// Above this round the server that was admitted votes; its proposers have heard of it.
    pub(super) floor: u64,
    has_written_back: bool,
}

impl Default for Keeper {
    fn default() -> Self {
        Self {
            epoch: EPOCH_FIRST,
            floor: 0,
            has_written_back: false,
        }
    }
}

impl Quorum {
    pub(super) fn steps_of_keeper(&self, state: &State, steps: &mut Vec<Step>) {
        let servers = || state.servers.iter().enumerate();
        let is_needed = servers().any(|(_, it)| it.votes() == Votes::Waiting);
        let epoch = self.admitted_in();
        if is_needed || state.keeper.epoch == RAISED {
            let behind = servers().filter(|(_, it)| it.epoch() < epoch);
            steps.extend(behind.map(|(at, _)| Step::Raises(at)));
        }
        let is_raised = servers().filter(|(_, it)| is_voter(it, epoch)).count() >= MAJORITY;
        if !is_needed || !is_raised {
            return;
        }
        if !state.keeper.has_written_back && self.bug != Some(Bug::AdmittedAtOnce) {
            return steps.push(Step::WritesBack);
        }
        let waiting = servers().filter(|(_, it)| it.votes() == Votes::Waiting);
        let waiting = waiting.filter(|(_, it)| it.epoch() == epoch);
        steps.extend(waiting.map(|(at, _)| Step::Admits(at)));
    }

    fn admitted_in(&self) -> u64 {
        match self.bug {
            Some(Bug::EpochNotRaised) => EPOCH_FIRST,
            Some(_) | None => RAISED,
        }
    }

    /// With two servers left, a majority is both of them.
    pub(super) fn writes_back(&self, state: &mut State) {
        state.keeper.has_written_back = true;
        let epoch = self.admitted_in();
        let voters = || state.servers.iter().filter(|it| is_voter(it, epoch));
        let looks = voters().cloned().map(|mut it| {
            let registers = it.vote(&pass(epoch), NOW).expect("it is a voter");
            registers.look(&self.key, NOW)
        });
        let seen: Vec<_> = looks.collect();
        if Found::of(&seen, MAJORITY).is_decided {
            return;
        }
        let numbers = Numbers::new(KEEPER, 0);
        let mut tries: Tries<()> = Tries::default();
        let highest = seen.iter().filter_map(|it| it.promised).max();
        let floor = highest.map_or(0, onlyonce_quorum::Ballot::round);
        let ask = Prepare {
            key: self.key.clone(),
            ballot: tries.next_ballot(floor, &numbers),
            epoch,
            only_if_new: false,
            may_be_full: false,
        };
        let mut servers: Vec<&mut ModelServer> = state.servers.iter_mut().collect();
        servers.retain(|it| is_voter(it, epoch));
        let mut registers: Vec<_> = servers
            .into_iter()
            .map(|it| it.vote(&pass(epoch), NOW).expect("it is a voter"))
            .collect();
        let promised = registers.iter_mut().map(|it| it.prepare(&ask, NOW));
        let answered = tries.answered(promised.collect(), MAJORITY);
        let answered = answered.expect("the ballot is above all others");
        let next = tries.decide(&answered, |found| {
            SlotRegister::step(found, |_, _| ((), Change::Nothing))
        });
        let Next::Write(decision) = next.expect("a value of ours can be read") else {
            return;
        };
        let accept = tries.propose(
            &self.key,
            Manner::Plain,
            ask.ballot,
            epoch,
            &answered.found,
            &decision,
            &numbers,
        );
        let accept = accept.expect("there is a value");
        for it in &mut registers {
            it.accept(&accept, NOW);
        }
    }

    pub(super) fn admits(&self, state: &mut State, at: usize) {
        let epoch = self.admitted_in();
        let voters = state.servers.iter_mut().filter(|it| is_voter(it, epoch));
        let rounds = voters.map(|it| it.identify("", "", &Deed::Read, NOW).round);
        let round = rounds.max().unwrap_or_default();
        state.keeper.floor = round;
        let deed = Deed::Admit {
            epoch,
            round,
            joined: NOW,
        };
        state.servers[at].identify("", "", &deed, NOW);
    }
}

impl State {
    pub(super) fn raises(&mut self, at: usize) {
        let was = String::new();
        let epoch = RAISED;
        self.servers[at].identify("", "", &Deed::Raise { epoch, was }, NOW);
        let voters = self.servers.iter().filter(|it| is_voter(it, RAISED));
        if voters.count() >= MAJORITY {
            self.keeper.epoch = RAISED;
        }
    }
}

fn is_voter(server: &ModelServer, epoch: u64) -> bool {
    server.votes() == Votes::Yes && server.epoch() == epoch
}
