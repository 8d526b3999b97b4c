//! A message arrives at the store: what it does there is compared with the protocol, and its reply is
//! judged as the engine does.

use onlyonce_core::engine::judge::{Judgement, Met, judge, judge_end};
use onlyonce_core::{Call, Claimed, Completed, Lease, Reason, Record, Release, Released, Renewed};

use super::process::{Ending, Phase, Told, What, answer};
use super::reply::{Reply, View, whose};
use super::{Engines, Message, Rule, Verb, World};

impl Engines {
    /// A message arrives, and if its process still waits, the reply may be on its way.
    pub(super) fn arrives(&self, world: &mut World, message: Message, is_heard: bool) {
        let what = match message.verb {
            Verb::Claim => self.claim(world, message),
            Verb::Renew => self.renew(world, message),
            Verb::Complete => self.complete(world, message),
            Verb::NotRun => self.release(world, message, Release::NotRun),
            Verb::Unknown => self.release(world, message, Release::Unknown),
        };
        if !is_heard {
            return;
        }
        self.check_refusal(world, message, what);
        let at = world.now;
        if let Phase::Asking(asking) = &mut world.processes[message.from.process].phase {
            asking.told = Some(Told { at, what });
        }
    }

    fn claim(&self, world: &mut World, message: Message) -> What {
        let (id, now) = (message.from.process, world.now);
        let (call, asked) = (&self.calls[id], self.asked(id));
        let (shelf, cell) = (&mut world.shelves[asked.key], &mut world.cells[asked.key]);
        let before = cell.clone();
        let claimed = shelf.claim(&call.claim(message.from.token()), now);
        let actual = Reply::of_claim(&claimed);
        let (expected, broken) = cell.claim(message.from, asked, now);
        if let Some(rule) = broken {
            world.breaks(rule);
        }
        let is_granted = matches!(actual, Reply::Granted(_));
        let rule = match is_granted {
            true => before.broken_by_grant(message.from, asked, now),
            false => Rule::GrantedIff,
        };
        world.require(actual == expected, rule);
        self.compare(world, asked.key, Rule::ClaimChanges);
        match claimed {
            Claimed::Granted { lease, .. } => What::Granted(lease.attempt),
            Claimed::Taken(record) => judged(&record, call),
            Claimed::Dead => What::Dead,
        }
    }

    fn renew(&self, world: &mut World, message: Message) -> What {
        let key = self.asked(message.from.process).key;
        let renewed = world.shelves[key].renew(&self.lease_of(message), world.now);
        let expected = world.cells[key].renew(message.from, world.now);
        world.require(
            Reply::of_renewal(&renewed) == expected,
            Rule::OnlyHolderKeeps,
        );
        self.compare(world, key, Rule::RenewChanges);
        match renewed {
            Renewed::Kept => What::Kept,
            Renewed::Lost | Renewed::Busy => What::Lost,
        }
    }

    fn complete(&self, world: &mut World, message: Message) -> What {
        let (id, now) = (message.from.process, world.now);
        let (key, lease) = (self.asked(id).key, self.lease_of(message));
        let run = world.processes[id].run.as_ref();
        let has_answered = run.is_some_and(|run| run.ended == Some(Ending::Answers));
        world.require(has_answered, Rule::OnlyRanCompletes);

        let response = answer(id, Ending::Answers);
        let completed = world.shelves[key].complete(&lease, &response, self.bug, now);
        let actual = Reply::of_completion(&completed);
        let expected = world.cells[key].complete(message.from, now);
        let rule = match actual == Reply::Stored {
            true => Rule::LostNeverCompletes,
            false => Rule::HolderCompletes,
        };
        world.require(actual == expected, rule);
        self.compare(world, key, Rule::CompleteChanges);
        if actual == Reply::Stored {
            world.stored.insert(id);
        }
        match completed {
            Completed::Stored(_) => What::Stored,
            Completed::Found(record) => met(&record, &self.calls[id], &lease),
            Completed::Absent => What::Absent,
        }
    }

    fn release(&self, world: &mut World, message: Message, why: Release) -> What {
        let (id, now) = (message.from.process, world.now);
        let (key, lease) = (self.asked(id).key, self.lease_of(message));
        let run = world.processes[id].run.as_ref();
        let ended = run.and_then(|run| run.ended);
        if why == Release::NotRun && run.is_some() {
            let may_run_again = matches!(ended, Some(Ending::NotRun | Ending::Fails));
            world.require(may_run_again, Rule::GivenBack);
        }

        let released = world.shelves[key].release(&lease, why, self.bug, now);
        let expected = match why {
            Release::NotRun => world.cells[key].not_run(message.from, now),
            Release::Unknown => world.cells[key].unknown(message.from, now),
        };
        world.require(Reply::of_release(&released) == expected, Rule::ReleaseOwn);
        self.compare(world, key, Rule::ReleaseChanges);
        match released {
            Released::Ended => What::Released,
            Released::Found(record) => {
                let met = met(&record, &self.calls[id], &lease);
                // Only an answer that is not stored is followed by a search for one that is.
                let is_answer = matches!(met, What::Ours | What::Overtaken(_));
                match is_answer || ended == Some(Ending::Fails) {
                    true => met,
                    false => What::Released,
                }
            }
        }
    }

    fn lease_of(&self, message: Message) -> Lease {
        let call = &self.calls[message.from.process];
        call.claim(message.from.token()).lease()
    }

    /// The record in the store is the one that the protocol says.
    pub(super) fn compare(&self, world: &mut World, key: usize, rule: Rule) {
        let now = world.now;
        let actual = world.shelves[key].record(now);
        let expected = world.cells[key].view(now);
        world.require(actual.as_ref().map(View::of) == expected, rule);
    }

    /// What a process is told of the slot is true of it at this moment.
    fn check_refusal(&self, world: &mut World, message: Message, what: What) {
        let asked = self.asked(message.from.process);
        let (cell, now) = (&world.cells[asked.key], world.now);
        let (is_true, rule) = match what {
            What::Refuse(Reason::Mismatch) => {
                let other = cell.meaning(now).is_some_and(|it| it != asked.meaning);
                (other, Rule::MismatchTrue)
            }
            What::Wait => (cell.is_running(now), Rule::InProgressTrue),
            What::Refuse(_) => (cell.is_in_doubt(now), Rule::InDoubtTrue),
            What::Replay(run) | What::Overtaken(run) => {
                (cell.finished(now) == Some(run), Rule::ReplayIsStored)
            }
            What::Granted(_)
            | What::ClaimAgain
            | What::Dead
            | What::Kept
            | What::Lost
            | What::Stored
            | What::Ours
            | What::Absent
            | What::Released => return,
        };
        world.require(is_true, rule);
    }
}

/// What a record in the way means for a call.
fn judged(record: &Record, call: &Call) -> What {
    match judge(record, call) {
        Judgement::Replay(replay) => What::Replay(whose(&replay.response.body)),
        Judgement::Refuse(refusal) => What::Refuse(refusal.reason),
        Judgement::Wait { .. } => What::Wait,
        Judgement::ClaimAgain => What::ClaimAgain,
    }
}

/// What a record means that is found at the end of a claim.
fn met(record: &Record, call: &Call, lease: &Lease) -> What {
    match judge_end(record, call, lease) {
        Met::Ours(_) => What::Ours,
        Met::Overtaken(replay) => What::Overtaken(whose(&replay.response.body)),
        Met::Mismatch => What::Refuse(Reason::Mismatch),
        Met::InDoubt => What::Refuse(Reason::OutcomeUnknown),
        Met::Running => What::Wait,
    }
}
