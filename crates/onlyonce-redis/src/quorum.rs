//! A quorum of independent Redis servers: `redis+quorum://a,b,c`. The protocol is
//! [`onlyonce_quorum`]'s; here are acceptors that are servers, how a set of servers is made, how it
//! is watched, and how one of them is replaced.
//!
//! A set is founded by the first process that reaches all of its servers and finds none of them to
//! have an identity. From then on a server without one is new or has lost its data: it joins, but
//! votes only once it was admitted, by an operator or when everything it can have voted on is over.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use onlyonce_core::{OsEntropy, StoreError, StoreErrorKind, SystemClock, async_trait};
use onlyonce_quorum::{
    Acceptor, Admission, Deed, Fault, Identity, QuorumStore, Seat, Survey, Upkeep, Votes,
};
use onlyonce_storekit::OpenError;

use self::member::{Member, Set};
use self::scripts::Scripts;
use self::url::{Persistence, QuorumUrl};
use crate::check::roots;
use crate::url::Eviction;

mod demoting;
mod fitness;
mod identity;
mod member;
mod operating;
mod scripts;
#[cfg(test)]
mod tests;
mod url;
mod watch;

pub use self::operating::{QuorumMember, Standing};

const NAME: &str = "quorum";
/// How much longer than a majority the other servers may take to say who they are. Claims wait for it.
const STRAGGLER_WAIT: Duration = Duration::from_millis(250);

/// The servers of a quorum.
pub struct RedisQuorum {
    servers: Arc<Servers>,
    store: Arc<QuorumStore>,
}

struct Servers {
    members: Vec<Arc<Member>>,
    set: Set,
    entropy: OsEntropy,
    persistence: Persistence,
    eviction: Eviction,
}

impl RedisQuorum {
    /// Connects to the servers that `url` names. A majority of them must vote; the first time, all
    /// of them must answer.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let servers = Arc::new(Servers::of(QuorumUrl::of(url)?)?);
        let survey = servers.settle().await?;
        servers.expect_majority(&survey)?;
        let acceptors = servers.members.iter();
        let acceptors = acceptors.map(|it| Arc::clone(it) as Arc<dyn Acceptor>);
        let store = QuorumStore::new(
            acceptors.collect(),
            Arc::new(SystemClock::new()),
            Arc::new(OsEntropy::new()),
            Arc::clone(&servers.set.epoch),
            Arc::clone(&servers) as Arc<dyn Upkeep>,
        );
        Ok(Self {
            servers,
            store: Arc::new(store),
        })
    }

    /// The store.
    pub fn store(&self) -> &Arc<QuorumStore> {
        &self.store
    }
}

impl Servers {
    fn of(url: QuorumUrl) -> Result<Self, OpenError> {
        let set = Set {
            members: url.members().into(),
            epoch: Arc::default(),
        };
        let scripts = Arc::new(Scripts::new());
        let mut eviction = Eviction::Refuse;
        let mut members = Vec::with_capacity(url.servers.len());
        for (seat, settings) in url.servers {
            eviction = settings.eviction;
            let roots = roots(&settings)?;
            let member = Member::new(seat, settings, roots, set.clone(), Arc::clone(&scripts));
            let member = member.ok_or_else(|| OpenError::url("a quorum is of single servers"))?;
            members.push(Arc::new(member));
        }
        Ok(Self {
            members,
            set,
            entropy: OsEntropy::new(),
            persistence: url.persistence,
            eviction,
        })
    }

    fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    fn admission(&self) -> Admission<'_> {
        let seats = self.members.iter();
        let seats = seats.map(|it| Arc::clone(it) as Arc<dyn Seat>);
        Admission {
            members: &self.set.members,
            seats: seats.collect(),
            epoch: &self.set.epoch,
            entropy: &self.entropy,
        }
    }

    /// Looks at every server, brings its identity up to date, and lets it vote or not.
    async fn settle(&self) -> Result<Survey, OpenError> {
        self.settle_as(self.survey().await).await
    }

    async fn settle_as(&self, mut survey: Survey) -> Result<Survey, OpenError> {
        if !survey.iter().flatten().any(|it| it.votes == Votes::Yes) {
            self.found(&survey).await?;
            survey = self.survey().await;
        }
        let survey = self.admission().follow(survey).await;
        let survey = self.demote(survey).await;
        for (member, found) in self.members.iter().zip(&survey) {
            let unfit = match found {
                Ok(identity) => self.unfit(member, identity),
                Err(fault) => Some(fault.clone()),
            };
            member.judge(unfit);
        }
        Ok(survey)
    }

    /// Who every server is, unless its settings make it unfit.
    async fn survey(&self) -> Survey {
        let looks = self.members.iter().map(|member| self.look_at(member));
        join_all(looks).await
    }

    /// The same, where requests wait for it: a few servers that hang hold up nobody. They do not vote until
    /// they answer.
    async fn survey_of_the_quick(&self) -> Survey {
        let away = |_| Err(Fault::Away("slower than a majority of the servers".into()));
        let mut survey: Survey = self.members.iter().map(away).collect();
        let looks = self.members.iter().enumerate();
        let mut looks: FuturesUnordered<_> = looks
            .map(|(seat, member)| async move { (seat, self.look_at(member).await) })
            .collect();
        let mut answered = 0;
        while answered < self.majority()
            && let Some((seat, found)) = looks.next().await
        {
            answered += usize::from(found.is_ok());
            survey[seat] = found;
        }
        let others = async {
            while let Some((seat, found)) = looks.next().await {
                survey[seat] = found;
            }
        };
        // Either way it is known now who votes.
        drop(tokio::time::timeout(STRAGGLER_WAIT, others).await);
        survey
    }

    async fn look_at(&self, member: &Member) -> Result<Identity, Fault> {
        let identity = member.look_at().await?;
        fitness::check(member, self.persistence, self.eviction).await?;
        Ok(identity)
    }

    /// Makes the set, where there is none.
    async fn found(&self, survey: &Survey) -> Result<(), OpenError> {
        let members = &*self.set.members;
        let mut founders = Vec::with_capacity(survey.len());
        for (member, found) in self.members.iter().zip(survey) {
            let identity = found.as_ref().map_err(|fault| refused(member, fault))?;
            let is_ours = identity.members == members && identity.seat == member.seat;
            match identity.votes {
                Votes::Nothing => {}
                Votes::Founding if is_ours => {}
                Votes::Founding | Votes::Waiting | Votes::Yes => {
                    let fault = Fault::OtherSet(identity.members.clone());
                    return Err(refused(member, &fault));
                }
            }
            founders.push((member, identity.now));
        }
        let founded = founders.iter().map(|(member, seen_at)| {
            let deed = Deed::Found { seen_at: *seen_at };
            async move { member.identify(members, &deed).await }
        });
        for ((member, _), founded) in founders.iter().zip(join_all(founded).await) {
            let founded = founded.map_err(|fault| refused(member, &fault))?;
            if founded.members != members || founded.seat != member.seat {
                let fault = Fault::OtherSet(founded.members);
                return Err(refused(member, &fault));
            }
        }
        let seated = founders
            .iter()
            .map(|(member, _)| member.identify(members, &Deed::Seat));
        // Whoever is not seated now is with the next look.
        drop(join_all(seated).await);
        Ok(())
    }

    fn unfit(&self, member: &Member, identity: &Identity) -> Option<Fault> {
        if *identity.members != *self.set.members || identity.seat != member.seat {
            return Some(Fault::OtherSet(identity.members.clone()));
        }
        match identity.votes {
            Votes::Yes => None,
            Votes::Nothing | Votes::Founding | Votes::Waiting => Some(Fault::NotAdmitted),
        }
    }

    /// An error that tells of every server that does not vote, if too few do.
    fn expect_majority(&self, survey: &Survey) -> Result<(), OpenError> {
        let unfit = self.members.iter().filter_map(|it| Some((it, it.unfit()?)));
        let unfit: Vec<_> = unfit.collect();
        if self.members.len() - unfit.len() >= self.majority() {
            return Ok(());
        }
        let said = unfit
            .iter()
            .map(|(member, fault)| format!("{}: {fault}", member.seat));
        let said: Vec<_> = said.collect();
        let why = format!("too few of its servers vote: {}", said.join("; "));
        let is_away = survey.iter().any(|it| matches!(it, Err(Fault::Away(_))));
        match is_away {
            true => Err(StoreError::new(NAME, StoreErrorKind::Unavailable)
                .caused_by(why)
                .into()),
            false => Err(OpenError::refused(NAME, why)),
        }
    }
}

fn refused(member: &Member, fault: &Fault) -> OpenError {
    let why = format!("{}: {fault}", member.seat);
    if let Fault::Away(_) = fault {
        let why = format!("a set of servers is made when all of them answer: {why}");
        let error = StoreError::new(NAME, StoreErrorKind::Unavailable);
        return error.caused_by(why).into();
    }
    OpenError::refused(NAME, why)
}

#[async_trait]
impl Upkeep for Servers {
    async fn recheck(&self) -> Result<(), StoreError> {
        let survey = self.settle_as(self.survey_of_the_quick().await).await;
        self.expect_majority(&survey.map_err(unsafe_now)?)
            .map_err(unsafe_now)
    }

    async fn tend(&self, store: &QuorumStore) -> Result<(), StoreError> {
        self.admit_who_waited(store).await
    }

    fn connected(&self) -> u64 {
        self.members.iter().map(|member| member.dial.opened()).sum()
    }
}

fn unsafe_now(error: OpenError) -> StoreError {
    let OpenError::Store(error) = error else {
        return StoreError::new(NAME, StoreErrorKind::Unsafe).caused_by(error);
    };
    error
}
