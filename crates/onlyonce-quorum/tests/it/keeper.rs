//! The process that looks after the servers: it admits those that lost their data, as the product does.

use std::sync::Arc;

use onlyonce_quorum::{Admission, Deed, QuorumStore, Seat, SharedEpoch, Votes};

use super::server::{MEMBERS, Seeded, Wire};
use super::world::{Planted, quorum};

pub(super) struct Keeper {
    pub(super) store: Arc<QuorumStore>,
    wires: Vec<Arc<Wire>>,
    epoch: Arc<SharedEpoch>,
    entropy: Seeded,
}

impl Keeper {
    pub(super) fn new(wires: Vec<Arc<Wire>>, epoch: Arc<SharedEpoch>, seed: u64) -> Self {
        Self {
            store: quorum(&wires, &epoch, seed),
            wires,
            epoch,
            entropy: Seeded::new(seed ^ 0xad),
        }
    }

    fn admission(&self) -> Admission<'_> {
        let seats = self.wires.iter().map(|it| Arc::clone(it) as Arc<dyn Seat>);
        Admission {
            members: MEMBERS,
            seats: seats.collect(),
            epoch: &self.epoch,
            entropy: &self.entropy,
        }
    }

    /// Servers that were away hear of the epoch, and new ones join.
    pub(super) async fn follow(&self) {
        let admission = self.admission();
        let survey = admission.survey().await;
        admission.follow(survey).await;
    }

    /// Whether this server votes now.
    pub(super) async fn admit(&self, at: usize, planted: Planted) -> bool {
        let admission = self.admission();
        let survey = admission.survey().await;
        let survey = admission.follow(survey).await;
        match planted {
            Planted::AdmittedAtOnce => self.admit_badly(at, true).await.is_some(),
            Planted::EpochNotRaised => self.admit_badly(at, false).await.is_some(),
            Planted::Nothing
            | Planted::FollowsEpoch
            | Planted::VotesAfterLoss
            | Planted::Redlock => admission.admit(&self.store, at, &survey).await.is_ok(),
        }
    }

    /// Servers that have waited for long enough are admitted.
    pub(super) async fn admit_who_waited(&self) -> Vec<usize> {
        let admission = self.admission();
        let survey = admission.survey().await;
        let overdue = admission.overdue(&survey);
        for at in &overdue {
            admission.admit(&self.store, *at, &survey).await.unwrap();
        }
        overdue
    }

    /// One of the two things is left out that make it safe: a new epoch, or writing back.
    async fn admit_badly(&self, at: usize, raises: bool) -> Option<()> {
        let admission = self.admission();
        let survey = admission.survey().await;
        let all: Vec<_> = survey.iter().flatten().collect();
        let voters = all.iter().filter(|it| it.votes == Votes::Yes).count();
        if voters <= self.wires.len() / 2 {
            return None;
        }
        let (epoch, was) = (self.epoch.get() + u64::from(raises), MEMBERS.to_owned());
        if raises {
            let deed = Deed::Raise { epoch, was };
            for wire in &self.wires {
                drop(wire.identify(MEMBERS, &deed).await);
            }
            self.epoch.heard(epoch);
        } else {
            self.store.write_all_back().await.ok()?;
        }
        let round = all.iter().map(|it| it.round).max()?;
        let joined = survey[at].as_ref().ok()?.joined;
        let deed = Deed::Admit {
            epoch,
            round,
            joined,
        };
        let admitted = self.wires[at].identify(MEMBERS, &deed).await.ok()?;
        (admitted.votes == Votes::Yes).then_some(())
    }
}
