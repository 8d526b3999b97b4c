//! Every exemption from the rules, in one place, with its reason. docs/chaos.md lists them for
//! people; nothing else is forgiven.

use super::{Case, millis};
use crate::fault::Kind;
use crate::history::{Attempt, Execution, History, Micros, Trouble, Whom};

/// How exactly moments are known: between what happens and its being written down.
const SLACK: Micros = millis(300);

/// How long trouble with a store can go on after its end, unless every gateway ran a new key before:
/// a verb that began under it has two tries of 2.5 s and more.
const AFTERMATH: Micros = millis(10_000);

/// How soon a gateway that goes on sends the request that it was stopped before.
const RESUMED: Micros = millis(1000);

/// What a history has to say for itself.
pub(super) struct Excuses<'a> {
    history: &'a History,
    spells: Vec<Spell>,
}

/// Why a second execution is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rerun {
    /// Whether it holds the claim now, and not one that it had lost before it started.
    pub(super) takes_over: bool,
    /// Whether only a stall of the machine excuses it.
    pub(super) by_stall: bool,
}

/// A time in which holders cannot renew their leases.
#[derive(Clone, Copy)]
struct Spell {
    ill: Ill,
    whom: Whom,
    from: Micros,
    /// When the last one can renew again.
    to: Micros,
    by_stall: bool,
}

/// What ails a holder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ill {
    /// It is gone, with all its claims.
    Dead,
    /// It does nothing until the end, and goes on where it was.
    Stopped,
    /// It runs, and does not reach the store.
    CutOff,
}

impl<'a> Excuses<'a> {
    pub(super) fn of(history: &'a History) -> Self {
        let troubles = history.troubles.iter().filter_map(Spell::of);
        // For what this machine does not run it is as if all were stopped.
        let stalls = history.stalls.iter().map(|it| Spell {
            ill: Ill::Stopped,
            whom: Whom::Store,
            from: it.from,
            to: it.to,
            by_stall: true,
        });
        let mut spells: Vec<_> = troubles.chain(stalls).collect();
        spells.sort_by_key(|it| (it.by_stall, it.from));
        Self { history, spells }
    }

    /// A second execution under `rerun`: the holder could not renew, and its lease ended before the
    /// next one started. Or the other way round: the next one had been stopped with its claim granted
    /// and its request not sent, its lease ended, and the holder had taken over.
    pub(super) fn rerun(&self, holder: &Execution, next: &Execution) -> Option<Rerun> {
        let taken_over =
            |it: &&Spell| self.hit(it, holder) && next.started + SLACK >= self.lapses(it, holder);
        let overtaken =
            |it: &&Spell| it.resumes(next) && holder.started + SLACK >= self.lapses(it, next);
        let of = |takes_over: bool| {
            move |it: &Spell| Rerun {
                takes_over,
                by_stall: it.by_stall,
            }
        };
        let takes_over = self.spells.iter().find(taken_over).map(of(true));
        let late = self.spells.iter().find(overtaken).map(of(false));
        [takes_over, late]
            .into_iter()
            .flatten()
            .min_by_key(|it| it.by_stall)
    }

    /// An execution that starts after its key was answered: its gateway had been stopped before
    /// that, with the claim granted and the request not yet sent, and went on just now. No process
    /// can prevent this by itself; the store refuses what it then wants to store.
    pub(super) fn late(&self, execution: &Execution, answered: Micros) -> bool {
        let mut spells = self.spells.iter();
        spells.any(|it| it.from <= answered && it.resumes(execution))
    }

    /// An unknown outcome: the lease of an execution ended as above before it was heard of. Without
    /// an execution, that of a claim that a gateway may have had while it was asked.
    pub(super) fn doubt(&self, case: &Case, heard: Micros) -> bool {
        let by_execution = |it: &Execution| {
            let mut spells = self.spells.iter();
            spells.any(|spell| self.hit(spell, it) && heard + SLACK >= self.lapses(spell, it))
        };
        let by_attempt = |it: &Attempt| {
            let mut spells = self.spells.iter();
            spells.any(|spell| {
                spell.concerns(it.gateway)
                    && it.sent <= spell.reaches() + SLACK
                    && it.heard + AFTERMATH >= spell.from
                    && heard + SLACK >= spell.from + self.lasts_min(spell)
            })
        };
        if case.executions.is_empty() {
            case.attempts.iter().any(by_attempt)
        } else {
            case.executions.iter().any(by_execution)
        }
    }

    /// Whether it was on while the execution's claim was held.
    fn hit(&self, spell: &Spell, execution: &Execution) -> bool {
        let began = execution.started <= spell.reaches() + SLACK || spell.resumes(execution);
        spell.concerns(execution.gateway) && began && self.held_until(execution) >= spell.from
    }

    /// The earliest end of a lease that was held when this began. It is renewed at a third of its
    /// length, and before the start of an execution if a third has passed; unless the gateway was
    /// stopped just then.
    fn lapses(&self, spell: &Spell, execution: &Execution) -> Micros {
        let began = if spell.resumes(execution) {
            spell.from
        } else {
            spell.from.max(execution.started)
        };
        began + self.lasts_min(spell)
    }

    /// How long a lease lasts at least from the beginning of a spell. Where one process at a time
    /// uses the store, the claims of a dead one lapse when the next one opens it.
    fn lasts_min(&self, spell: &Spell) -> Micros {
        if self.history.has_one_owner && spell.ill == Ill::Dead {
            0
        } else {
            2 * self.history.lease / 3
        }
    }

    /// Until when a claim can have been held: until its answer was stored, which is soon after the
    /// execution's end unless the gateway could not.
    fn held_until(&self, execution: &Execution) -> Micros {
        let Some(ended) = execution.ended else {
            return Micros::MAX;
        };
        let mut until = ended + SLACK;
        for spell in &self.spells {
            let hinders = spell.concerns(execution.gateway) && spell.ill != Ill::Dead;
            if hinders && spell.from <= until && spell.to + SLACK >= ended {
                until = until.max(spell.to + RESUMED);
            }
        }
        until
    }
}

impl Spell {
    /// What happens between clients and gateways keeps no gateway from renewing or storing, nor does a
    /// gateway's wrong clock. Without a minority of its servers a quorum goes on.
    fn of(trouble: &Trouble) -> Option<Self> {
        if trouble.whom == Whom::Minority {
            return None;
        }
        let ill = match trouble.kind {
            Kind::Kill => Ill::Dead,
            Kind::Pause => Ill::Stopped,
            Kind::Partition
            | Kind::StoreCut
            | Kind::StoreStall
            | Kind::StoreSlow
            | Kind::StoreLoss
            | Kind::StoreKill
            | Kind::StoreRestart
            | Kind::StoreHang
            | Kind::Failover
            | Kind::DiskFull
            | Kind::DiskLoss
            | Kind::MajorityLoss => Ill::CutOff,
            Kind::ClientCut
            | Kind::ClientSlow
            | Kind::ClientLoss
            | Kind::Clock
            | Kind::StoreClock => return None,
        };
        let to = match ill {
            Ill::Dead | Ill::Stopped => trouble.to,
            Ill::CutOff => trouble.to + trouble.back_after.unwrap_or(AFTERMATH).min(AFTERMATH),
        };
        Some(Self {
            ill,
            whom: trouble.whom,
            from: trouble.from,
            to,
            by_stall: false,
        })
    }

    fn concerns(&self, gateway: usize) -> bool {
        match self.whom {
            Whom::Gateway(index) => index == gateway,
            Whom::Store => true,
            Whom::Minority => false,
        }
    }

    /// The last moment at which it meets a claim that is granted: one who is dead or stopped gets
    /// none.
    fn reaches(&self) -> Micros {
        match self.ill {
            Ill::Dead | Ill::Stopped => self.from,
            Ill::CutOff => self.to,
        }
    }

    /// Whether this execution can be one that its gateway was stopped before.
    fn resumes(&self, execution: &Execution) -> bool {
        let sent = self.to.saturating_sub(SLACK)..=self.to + RESUMED;
        self.ill == Ill::Stopped
            && self.concerns(execution.gateway)
            && sent.contains(&execution.started)
    }
}
