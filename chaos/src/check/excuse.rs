//! Every exemption from the rules, in one place, with its reason. docs/chaos.md lists them for
//! people; nothing else is forgiven.

use super::millis;
use crate::fault::Kind;
use crate::history::{Execution, History, Micros, Trouble, Whom};

/// How exactly moments are known: between what happens and its being written down.
const SLACK: Micros = millis(300);

/// How long trouble with a store goes on after its end: a verb that began under it may take two
/// tries of 2.5 s, and with them goes the renewal of a lease.
const AFTERMATH: Micros = millis(10_000);

/// What a history has to say for itself.
pub(super) struct Excuses<'a> {
    history: &'a History,
}

impl<'a> Excuses<'a> {
    pub(super) fn of(history: &'a History) -> Self {
        Self { history }
    }

    /// A second execution under `rerun`: a lease really lapsed, for one of the two gateways could
    /// not renew, or its store could not be asked. A lease is renewed at a third of its length: so
    /// two thirds of it pass at least from the start of the trouble to the other's start. Which of
    /// the two held it first cannot be told: a stopped gateway sends its request when it goes on.
    pub(super) fn lapse(&self, first: &Execution, second: &Execution) -> bool {
        let troubles = self.history.troubles.iter();
        troubles
            .filter(|it| may_lapse(it.kind))
            .filter(|it| concerns(it, first) || concerns(it, second))
            .any(|it| self.fits(it.from, it.to, first, second))
    }

    /// The same by a stall of the whole machine: what was due did not run, in the gateways neither.
    /// Counted and shown, for a machine that stalls all the time proves nothing.
    pub(super) fn lapse_by_stall(&self, first: &Execution, second: &Execution) -> bool {
        let mut stalls = self.history.stalls.iter();
        stalls.any(|it| self.fits(it.from, it.to, first, second))
    }

    fn fits(&self, from: Micros, to: Micros, first: &Execution, second: &Execution) -> bool {
        let lapses = from + (2 * self.history.lease / 3).saturating_sub(SLACK);
        let over = to + AFTERMATH + self.history.lease;
        lapses <= second.started && over >= first.started
    }

    /// An execution that starts after its key was answered: its gateway had been stopped before
    /// that, with the claim granted and the request not yet sent, and went on just now. No process
    /// can prevent this by itself; the store refuses what it then wants to store.
    pub(super) fn late(&self, execution: &Execution, answered: Micros) -> bool {
        let troubles = self.history.troubles.iter();
        let stops = troubles
            .filter(|it| it.kind == Kind::Pause && it.whom == Whom::Gateway(execution.gateway))
            .map(|it| (it.from, it.to));
        let stalls = self.history.stalls.iter().map(|it| (it.from, it.to));
        stops.chain(stalls).any(|(from, to)| {
            from <= answered
                && to <= execution.started + SLACK
                && execution.started <= to + AFTERMATH
        })
    }

    /// An unknown outcome under `hold`, or one that a holder which lost its lease hears under
    /// `rerun`: some gateway or the store had trouble while the key was in use.
    pub(super) fn doubt(&self, began: Micros, heard: Micros) -> bool {
        let overlaps = |from: Micros, to: Micros| {
            from <= heard && to + AFTERMATH + self.history.lease >= began
        };
        let mut troubles = self.history.troubles.iter();
        let mut stalls = self.history.stalls.iter();
        troubles.any(|it| may_lapse(it.kind) && overlaps(it.from, it.to))
            || stalls.any(|it| overlaps(it.from, it.to))
    }
}

/// Whether a fault can keep a gateway from renewing a lease, or from storing an answer. What happens
/// between clients and gateways cannot, nor can a gateway's wrong clock.
fn may_lapse(kind: Kind) -> bool {
    match kind {
        Kind::Kill
        | Kind::Pause
        | Kind::Partition
        | Kind::StoreCut
        | Kind::StoreStall
        | Kind::StoreSlow
        | Kind::StoreLoss
        | Kind::StoreKill
        | Kind::StoreRestart
        | Kind::StoreHang
        | Kind::Failover
        | Kind::DiskFull => true,
        Kind::ClientCut | Kind::ClientSlow | Kind::ClientLoss | Kind::Clock => false,
    }
}

fn concerns(trouble: &Trouble, execution: &Execution) -> bool {
    match trouble.whom {
        Whom::Gateway(index) => index == execution.gateway,
        Whom::Store => true,
    }
}
