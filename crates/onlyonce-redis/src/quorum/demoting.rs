//! Servers that have lost something though they know who they are no longer vote.

use onlyonce_quorum::{Deed, Fault, Identity, Seat as _, Survey, Votes};

use super::{NAME, Servers, watch};

impl Servers {
    /// Servers that have lost something are to be admitted again. A clock alone is no reason if too few
    /// would be left.
    pub(super) async fn demote(&self, survey: Survey) -> Survey {
        let usual = watch::usual(self.members.iter().map(|it| &it.watch), self.majority());
        let votes =
            |found: &Result<Identity, Fault>| found.as_ref().is_ok_and(|it| it.votes == Votes::Yes);
        let mut voters = survey.iter().filter(|it| votes(it)).count();
        let mut judged = Vec::with_capacity(survey.len());
        for (member, found) in self.members.iter().zip(survey) {
            let lost = member.watch.lost_something(usual).filter(|_| votes(&found));
            let (Some(why), Ok(identity)) = (lost, &found) else {
                judged.push(found);
                continue;
            };
            if !member.watch.is_older() && voters <= self.majority() {
                tracing::error!(
                    target: "onlyonce",
                    event = "idempotency.storage.unsafe",
                    store = NAME,
                    server = %member.seat,
                    why,
                    "a server of the quorum should be admitted again, once others vote"
                );
                judged.push(found);
                continue;
            }
            voters -= 1;
            let epoch = identity.epoch;
            let demote = Deed::Demote { epoch };
            judged.push(member.identify(&self.set.members, &demote).await);
            tracing::error!(
                target: "onlyonce",
                event = "idempotency.storage.demoted",
                store = NAME,
                server = %member.seat,
                why,
                "a server of the quorum does not vote until it is admitted again"
            );
        }
        judged
    }
}
