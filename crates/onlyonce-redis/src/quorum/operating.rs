//! What operators do with the servers: look at them, admit one that lost its data, change the set.

use std::time::Duration;

use futures_util::future::join_all;
use onlyonce_core::StoreError;
use onlyonce_quorum::{Deed, Fault, Identity, QuorumStore, Seat, Votes, epoch_after};
use onlyonce_storekit::OpenError;

use super::member::Member;
use super::url::QuorumUrl;
use super::{NAME, RedisQuorum, Servers, refused, unsafe_now};

/// A server of a quorum, as it is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumMember {
    /// Its place in the set: host and port.
    pub seat: String,
    /// Whether it votes.
    pub standing: Standing,
}

/// Whether a server votes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// It does.
    Votes,
    /// It is new or has lost its data, and was not admitted yet.
    Waits {
        /// For how long it has waited, by its own clock.
        waited: Duration,
    },
    /// It does not, for this reason.
    Out(String),
}

impl RedisQuorum {
    /// The servers as they are now.
    pub async fn members(&self) -> Result<Vec<QuorumMember>, OpenError> {
        let survey = self.servers.settle().await?;
        let both = self.servers.members.iter().zip(&survey);
        Ok(both.map(|(member, found)| told(member, found)).collect())
    }

    /// Admits a server that is new or has lost its data: it votes from then on. Everything that it
    /// may have decided with others before is first written to a majority of these. Returns how many
    /// registers were looked at.
    pub async fn admit(&self, seat: &str) -> Result<usize, OpenError> {
        let members = &self.servers.members;
        let at = members.iter().position(|member| member.seat == seat);
        let Some(at) = at else {
            let seats: Vec<_> = members.iter().map(|it| it.seat.as_str()).collect();
            let why = format!("no server is called {seat}: there are {}", seats.join(", "));
            return Err(OpenError::refused(NAME, why));
        };
        Ok(self.servers.admit(&self.store, at).await?)
    }

    /// Changes the set of servers from that of `was` to that of `url`: one may leave, and one may
    /// come. All that stay must answer; whoever comes is then to be [admitted](Self::admit).
    /// Processes with the old URL are refused from then on.
    pub async fn replace(was: &str, url: &str) -> Result<Self, OpenError> {
        let (old, new) = (QuorumUrl::of(was)?.members(), QuorumUrl::of(url)?);
        let stay = common(&old, &new.members());
        let changes = [old.split(',').count(), new.servers.len()];
        if changes.iter().any(|all| all - stay.len() > 1) {
            let why = "one server may leave and one may come at a time";
            return Err(OpenError::refused(NAME, why));
        }
        let servers = Servers::of(new)?;
        servers.become_set(&old, &stay).await?;
        Self::open(url).await
    }
}

impl Servers {
    /// Admits the server of this number.
    pub(super) async fn admit(&self, store: &QuorumStore, at: usize) -> Result<usize, StoreError> {
        let survey = self.settle().await.map_err(unsafe_now)?;
        self.expect_majority(&survey).map_err(unsafe_now)?;
        let registers = self.admission().admit(store, at, &survey).await?;
        self.settle().await.map_err(unsafe_now)?;
        tracing::warn!(
            target: "onlyonce",
            event = "idempotency.storage.admitted",
            store = NAME,
            server = %self.members[at].seat,
            registers,
            "a server of the quorum was admitted and votes"
        );
        Ok(registers)
    }

    /// Admits servers that have waited for as long as anything is kept that they can have voted on.
    pub(super) async fn admit_who_waited(&self, store: &QuorumStore) -> Result<(), StoreError> {
        let admission = self.admission();
        for at in admission.overdue(&admission.survey().await) {
            self.admit(store, at).await?;
        }
        Ok(())
    }

    /// Makes servers of the old set servers of this one.
    async fn become_set(&self, old: &str, stay: &[&str]) -> Result<(), OpenError> {
        let members = &*self.set.members;
        let staying = self.members.iter().filter(|it| stay.contains(&&*it.seat));
        let staying: Vec<_> = staying.collect();
        let mut epoch = 0;
        let looks = staying.iter().map(|it| it.identify(old, &Deed::Read));
        for (member, found) in staying.iter().zip(join_all(looks).await) {
            let identity = found.map_err(|fault| refused(member, &fault))?;
            let is_known = identity.members == old || identity.members == members;
            if !is_known || identity.votes != Votes::Yes {
                let fault = Fault::OtherSet(identity.members);
                return Err(refused(member, &fault));
            }
            epoch = epoch.max(identity.epoch);
        }
        let epoch = epoch_after(epoch, &self.entropy);
        let was = old.to_owned();
        let deed = Deed::Raise { epoch, was };
        let raised = staying.iter().map(|it| it.identify(members, &deed));
        for (member, raised) in staying.iter().zip(join_all(raised).await) {
            raised.map_err(|fault| refused(member, &fault))?;
        }
        Ok(())
    }
}

fn told(member: &Member, found: &Result<Identity, Fault>) -> QuorumMember {
    let standing = match (member.unfit(), found) {
        (None, Ok(_) | Err(_)) => Standing::Votes,
        (Some(Fault::NotAdmitted), Ok(identity)) => Standing::Waits {
            waited: identity.waited(),
        },
        (Some(fault), Ok(_) | Err(_)) => Standing::Out(fault.to_string()),
    };
    QuorumMember {
        seat: member.seat.clone(),
        standing,
    }
}

/// The servers of both sets.
fn common<'a>(old: &'a str, new: &str) -> Vec<&'a str> {
    let new: Vec<_> = new.split(',').collect();
    old.split(',').filter(|seat| new.contains(seat)).collect()
}
