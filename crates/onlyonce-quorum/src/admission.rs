//! How a server that lost its data votes again. The epoch is raised on a majority of the others, after
//! which no vote of before counts together with a later one; then every register is written to a majority
//! without it; then it is admitted, if it has lost nothing since.

use std::sync::Arc;

use futures_util::future::join_all;
use onlyonce_core::{Entropy, StoreError, StoreErrorKind};

use crate::NAME;
use crate::acceptor::Fault;
use crate::epoch::{SharedEpoch, epoch_after};
use crate::seat::{Deed, Identity, Seat, Votes};
use crate::store::QuorumStore;

/// What was found at each server, in their order.
pub type Survey = Vec<Result<Identity, Fault>>;

/// Servers that admit one of them.
pub struct Admission<'a> {
    /// The set of servers, as they know it.
    pub members: &'a str,
    /// All of them.
    pub seats: Vec<Arc<dyn Seat>>,
    /// The epoch, as the process knows it.
    pub epoch: &'a SharedEpoch,
    /// For epochs of its own.
    pub entropy: &'a dyn Entropy,
}

impl Admission<'_> {
    /// Looks at every server.
    pub async fn survey(&self) -> Survey {
        let looks = self
            .seats
            .iter()
            .map(|it| it.identify(self.members, &Deed::Read));
        join_all(looks).await
    }

    /// Brings every server that belongs to the set to the set's epoch, and lets new ones join.
    pub async fn follow(&self, survey: Survey) -> Survey {
        let known = survey.iter().flatten();
        for identity in known.filter(|it| it.members == self.members) {
            self.epoch.heard(identity.epoch);
        }
        let epoch = self.epoch.get();
        let brought = self
            .seats
            .iter()
            .zip(survey)
            .map(|(seat, found)| async move {
                let identity = found?;
                let was = self.members.to_owned();
                let deed = match identity.votes {
                    Votes::Nothing => Deed::Join { epoch },
                    Votes::Founding => Deed::Seat,
                    Votes::Waiting | Votes::Yes if identity.epoch < epoch => {
                        Deed::Raise { epoch, was }
                    }
                    Votes::Waiting | Votes::Yes => return Ok(identity),
                };
                seat.identify(self.members, &deed).await
            });
        join_all(brought).await
    }

    /// Those of the servers, by number, that have waited for as long as anything is kept that they can
    /// have voted on. None as long as no majority says how long that is.
    pub fn overdue(&self, survey: &[Result<Identity, Fault>]) -> Vec<usize> {
        let voters = survey.iter().flatten().filter(|it| it.votes == Votes::Yes);
        if voters.clone().count() <= self.seats.len() / 2 {
            return Vec::new();
        }
        let longest = voters.map(|it| it.longest).max().unwrap_or_default();
        let numbered = survey.iter().enumerate();
        let overdue = numbered.filter_map(|(at, found)| {
            let identity = found.as_ref().ok()?;
            (identity.votes == Votes::Waiting && identity.waited() > longest).then_some(at)
        });
        overdue.collect()
    }

    /// Admits the server of this number, as `survey` has found it; says how many registers were looked
    /// at.
    pub async fn admit(
        &self,
        store: &QuorumStore,
        at: usize,
        survey: &[Result<Identity, Fault>],
    ) -> Result<usize, StoreError> {
        let joined = match &survey[at] {
            Ok(identity) if identity.votes == Votes::Yes => return Ok(0),
            Ok(identity) => identity.joined,
            Err(fault) => return Err(away(fault.clone())),
        };
        let epoch = self.raise(survey).await?;
        let registers = store.write_all_back().await?;
        let round = self.round(epoch).await?;
        let deed = Deed::Admit {
            epoch,
            round,
            joined,
        };
        let admitted = self.seats[at].identify(self.members, &deed).await;
        let admitted = admitted.map_err(away)?;
        match admitted.votes == Votes::Yes && admitted.epoch == epoch {
            true => Ok(registers),
            false => Err(away(Fault::NotAdmitted)),
        }
    }

    /// Raises the epoch on a majority, to one that is nobody else's.
    async fn raise(&self, survey: &[Result<Identity, Fault>]) -> Result<u64, StoreError> {
        let known = survey.iter().flatten().map(|it| it.epoch).max();
        let highest = known.unwrap_or_default().max(self.epoch.get());
        let epoch = epoch_after(highest, self.entropy);
        let raised = self.raise_to(epoch, survey).await;
        self.expect_majority(epoch, &raised)?;
        self.epoch.heard(epoch);
        Ok(epoch)
    }

    async fn raise_to(&self, epoch: u64, survey: &[Result<Identity, Fault>]) -> Vec<Identity> {
        let was = self.members.to_owned();
        let deed = Deed::Raise { epoch, was };
        let both = self.seats.iter().zip(survey);
        let raised = both.filter_map(|(seat, found)| {
            found.as_ref().ok()?;
            Some(seat.identify(self.members, &deed))
        });
        join_all(raised).await.into_iter().flatten().collect()
    }

    /// The highest round that a majority of this epoch has promised for anything: an older value on the
    /// one that is admitted never has a higher ballot than what it votes for.
    async fn round(&self, epoch: u64) -> Result<u64, StoreError> {
        let all: Vec<_> = self.survey().await.into_iter().flatten().collect();
        self.expect_majority(epoch, &all)?;
        Ok(all.iter().map(|it| it.round).max().unwrap_or_default())
    }

    fn expect_majority(&self, epoch: u64, all: &[Identity]) -> Result<(), StoreError> {
        let votes = |it: &&Identity| it.epoch == epoch && it.votes == Votes::Yes;
        let voters = all.iter().filter(votes).count();
        if voters > self.seats.len() / 2 {
            return Ok(());
        }
        let why = format!("{voters} servers follow to the next epoch, too few");
        Err(away(Fault::Away(why)))
    }
}

fn away(fault: Fault) -> StoreError {
    StoreError::new(NAME, StoreErrorKind::Unavailable).caused_by(fault)
}
