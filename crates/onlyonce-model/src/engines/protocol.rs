//! What the protocol says of one slot, in leases, written from its rules (docs/protocol.md) and not from
//! any store's code: the store's replies and records are compared with it.

use std::collections::{BTreeMap, BTreeSet};

use onlyonce_core::OnLapse;

use super::reply::{Reply, Stands, View};
use super::scenario::KEPT;
use super::{Asked, Attempt, Rule, Tick};

/// One slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Cell {
    held: Option<Tenure>,
    /// Released tokens, and until when they stay dead.
    dead: BTreeMap<Attempt, Tick>,
    /// Whose claims were forgotten.
    forgotten: BTreeSet<Attempt>,
}

/// Who holds it, or held it last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tenure {
    who: Attempt,
    asked: Meaning,
    number: u32,
    lease_until: Tick,
    keep_until: Tick,
    /// Until when "never twice" was promised with the claim.
    promised: Tick,
    phase: Phase,
}

/// What it was claimed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Meaning {
    meaning: u8,
    reruns: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Pending,
    Finished,
    Unknown,
}

/// How a slot passed to a new holder.
enum Passed {
    Free,
    Expired(Tenure),
    Over(Tenure),
}

impl Cell {
    /// Rules 2 and 5: granted iff the slot is empty or expired, or holds our own pending token, or is
    /// lapsed and both sides re-run and the fingerprint is equal; never to a dead token.
    pub(super) fn claim(
        &mut self,
        who: Attempt,
        asked: &Asked,
        now: Tick,
    ) -> (Reply, Option<Rule>) {
        if self.is_dead(who, now) {
            return (Reply::Dead, None);
        }
        let asked = Meaning {
            meaning: asked.meaning,
            reruns: asked.on_lapse == OnLapse::Rerun,
        };
        let passed = match self.held {
            None => Passed::Free,
            Some(held) if held.keep_until <= now => Passed::Expired(held),
            Some(ref mut held) if held.phase == Phase::Pending && held.who == who => {
                held.prolong(now);
                return (Reply::Granted(held.number), None);
            }
            Some(held) if held.yields_to(asked, now) => Passed::Over(held),
            Some(_) => return (Reply::Taken, None),
        };
        let number = match &passed {
            Passed::Over(old) => old.number + 1,
            Passed::Free | Passed::Expired(_) => 1,
        };
        self.held = Some(Tenure::new(who, asked, number, now));
        let fits = passed.fits(asked, now);
        (Reply::Granted(number), (!fits).then_some(Rule::SecondRun))
    }

    /// Only the holder keeps a lease; also a lapsed one, as long as nobody took over.
    pub(super) fn renew(&mut self, who: Attempt, now: Tick) -> Reply {
        match self.pending_of(who, now) {
            Some(held) => {
                held.prolong(now);
                Reply::Kept
            }
            None => Reply::Lost,
        }
    }

    /// Rule 4: changes only a pending record with the same token. Retention starts now.
    pub(super) fn complete(&mut self, who: Attempt, now: Tick) -> Reply {
        if let Some(held) = self.pending_of(who, now) {
            held.phase = Phase::Finished;
            held.keep_until = now + KEPT;
            return Reply::Stored;
        }
        match self.live(now) {
            Some(_) => Reply::Found,
            None => Reply::Absent,
        }
    }

    /// Rule 5: the slot is free, unless another attempt may have happened; and the token is dead, even
    /// if its claim had not arrived yet.
    pub(super) fn not_run(&mut self, who: Attempt, now: Tick) -> Reply {
        self.dead.insert(who, now + 1);
        let is_live = self.live(now).is_some();
        match self.pending_of(who, now) {
            Some(held) if held.number > 1 => held.doubt(now),
            Some(_) => self.held = None,
            None if is_live => return Reply::Found,
            None => {}
        }
        Reply::Ended
    }

    /// Rules 5 and 6: the lease ends at once, and nothing else gets shorter.
    pub(super) fn unknown(&mut self, who: Attempt, now: Tick) -> Reply {
        let is_live = self.live(now).is_some();
        match self.pending_of(who, now) {
            Some(held) => {
                held.doubt(now);
                self.dead.insert(who, now + 1);
                Reply::Ended
            }
            None if is_live => Reply::Found,
            None => Reply::Ended,
        }
    }

    pub(super) fn forget(&mut self, now: Tick) -> bool {
        let live = self.live(now).map(|held| held.who);
        self.forgotten.extend(live);
        self.held = None;
        live.is_some()
    }

    /// Forgets what is over, so that states which differ in nothing else are one.
    pub(super) fn tidy(&mut self, now: Tick) {
        self.dead.retain(|_, until| *until > now);
    }

    /// What a read must find.
    pub(super) fn view(&self, now: Tick) -> Option<View> {
        let held = self.live(now)?;
        Some(View {
            who: held.who,
            number: held.number,
            keep_left: held.keep_until - now,
            stands: match held.phase {
                Phase::Pending => Stands::Pending {
                    lease_left: held.lease_until.saturating_sub(now),
                },
                Phase::Finished => Stands::Finished(held.who.process),
                Phase::Unknown => Stands::Unknown,
            },
        })
    }

    /// The meaning that is confirmed.
    pub(super) fn meaning(&self, now: Tick) -> Option<u8> {
        Some(self.live(now)?.asked.meaning)
    }

    /// Whether somebody has a live lease.
    pub(super) fn is_running(&self, now: Tick) -> bool {
        let held = self.live(now);
        held.is_some_and(|it| it.phase == Phase::Pending && it.lease_until > now)
    }

    /// Whether the outcome of what is there is unknown.
    pub(super) fn is_in_doubt(&self, now: Tick) -> bool {
        self.live(now).is_some_and(|it| match it.phase {
            Phase::Pending => it.lease_until <= now,
            Phase::Finished => false,
            Phase::Unknown => true,
        })
    }

    /// Whose answer is stored.
    pub(super) fn finished(&self, now: Tick) -> Option<usize> {
        let held = self.live(now)?;
        (held.phase == Phase::Finished).then_some(held.who.process)
    }

    /// Whether a handler may start as `who`: it has a live lease, or lost it to an operator alone.
    pub(super) fn may_start(&self, who: Attempt, now: Tick) -> bool {
        let holds = self.is_running(now) && self.held.is_some_and(|it| it.who == who);
        holds || self.forgotten.contains(&who)
    }

    /// Which rule it breaks that this was granted, though nothing says so.
    pub(super) fn broken_by_grant(&self, who: Attempt, asked: &Asked, now: Tick) -> Rule {
        if self.is_dead(who, now) {
            return Rule::DeadStays;
        }
        let Some(held) = self.live(now) else {
            return Rule::GrantedIff;
        };
        match held.phase {
            Phase::Finished => Rule::FinishedStays,
            Phase::Pending | Phase::Unknown if held.asked.meaning != asked.meaning => {
                Rule::OtherMeaningWaits
            }
            Phase::Pending if held.lease_until > now => Rule::LiveLease,
            Phase::Pending | Phase::Unknown => Rule::HoldWins,
        }
    }

    fn is_dead(&self, who: Attempt, now: Tick) -> bool {
        self.dead.get(&who).is_some_and(|until| *until > now)
    }

    fn live(&self, now: Tick) -> Option<&Tenure> {
        self.held.as_ref().filter(|held| held.keep_until > now)
    }

    fn pending_of(&mut self, who: Attempt, now: Tick) -> Option<&mut Tenure> {
        let held = self.held.as_mut()?;
        let is_his = held.who == who && held.phase == Phase::Pending && held.keep_until > now;
        is_his.then_some(held)
    }
}

impl Tenure {
    fn new(who: Attempt, asked: Meaning, number: u32, now: Tick) -> Self {
        Self {
            who,
            asked,
            number,
            lease_until: now + 1,
            keep_until: now + 1 + KEPT,
            promised: now + 1 + KEPT,
            phase: Phase::Pending,
        }
    }

    fn prolong(&mut self, now: Tick) {
        self.lease_until = now + 1;
        self.keep_until = now + 1 + KEPT;
    }

    fn doubt(&mut self, now: Tick) {
        match self.asked.reruns {
            true => self.lease_until = now,
            false => self.phase = Phase::Unknown,
        }
    }

    fn yields_to(&self, asked: Meaning, now: Tick) -> bool {
        let is_lapsed = self.phase == Phase::Pending && self.lease_until <= now;
        is_lapsed && self.asked == asked && asked.reruns
    }
}

impl Passed {
    /// Whether the new holder may run: the promise of the old one's claim is kept.
    fn fits(&self, asked: Meaning, now: Tick) -> bool {
        match self {
            Self::Free => true,
            Self::Over(old) => old.yields_to(asked, now),
            Self::Expired(old) => {
                old.asked.reruns || old.phase == Phase::Finished || now >= old.promised
            }
        }
    }
}
