//! A process's link to the store: verbs get lost, replies get lost, both are late, and copies of
//! verbs arrive after the verb itself.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::event::Verb;
use onlyonce_core::operate::Operate;
use onlyonce_core::{
    Claim, Claimed, Completed, Fingerprint, Lease, Release, Released, Renewed, Response, Slot,
    Store, StoreError, StoreErrorKind, Token, async_trait,
};

use super::clock::{Ms, in_millis, pause};
use super::fate::Fate;
use super::history::{Short, What};
use super::ledger::Run;
use super::model::{Sender, Window};
use super::process::Process;
use super::terms::{LEASE_MAX, LEASE_MIN};
use super::world::World;

mod operate;

const NAME: &str = "simulated";

pub(super) struct Link {
    world: Arc<World>,
    process: Arc<Process>,
}

/// Counts a verb until the store has it: before that, nothing is quiet.
struct UnderWay(Arc<World>);

impl UnderWay {
    fn new(world: &Arc<World>) -> Self {
        world.step(|state, _| state.under_way += 1);
        Self(Arc::clone(world))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.step(|state, _| state.under_way -= 1);
    }
}

impl Link {
    pub(super) fn new(world: Arc<World>, process: Arc<Process>) -> Self {
        Self { world, process }
    }

    fn sender(&self, copy: bool) -> Sender {
        Sender {
            process: self.process.id,
            copy,
        }
    }

    /// The verb leaves the process.
    async fn depart(&self, verb: Verb, token: &Token, lease_for: Duration) -> Fate {
        self.process.gate.pass().await;
        // A wait can be longer or shorter than any lease; its delays are those of a lease.
        let lease = in_millis(lease_for).clamp(LEASE_MIN, LEASE_MAX);
        self.world
            .step(|state, now| Fate::draw(state, self.process.id, (verb, *token), lease, now))
    }

    /// The verb is under way, is carried out, and its reply comes back: or not.
    async fn deliver<T>(
        &self,
        fate: Fate,
        verb: Verb,
        token: &Token,
        commit: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let under_way = UnderWay::new(&self.world);
        pause(fate.before).await;
        let reached = !fate.request_lost && !self.world.is_out();
        let reply = if reached { Some(commit.await) } else { None };
        drop(under_way);
        if let Some(verb) = fate.faulty {
            // A wait takes its time: only now is it known when its reply is late or lost.
            self.world.step(|state, now| {
                let window = Window::new(now, now + fate.after);
                state.trouble(self.process.id, Some(verb), window);
            });
        }
        pause(fate.after).await;
        self.process.gate.pass().await;
        match reply {
            Some(reply) if !fate.reply_lost => reply,
            Some(_) | None => {
                self.world.step(|state, now| {
                    state.ledger.lives[self.process.id].errors.push(now);
                    let failed = What::Failed {
                        verb,
                        token: Short::of(token),
                    };
                    state.note(now, Some(self.process.id), failed);
                });
                Err(StoreError::new(NAME, StoreErrorKind::Unavailable))
            }
        }
    }

    /// Has a copy of a verb carried out later. Nobody waits for its reply.
    fn copy(&self, after: Ms, commit: impl Future<Output = ()> + Send + 'static) {
        let under_way = UnderWay::new(&self.world);
        tokio::spawn(async move {
            pause(after).await;
            if !under_way.0.is_out() {
                commit.await;
            }
        });
    }

    /// A reply about the end of a claim reached the process.
    fn landed(&self, token: &Token, told: impl FnOnce(&mut Run, Fingerprint)) {
        self.world.step(|state, now| {
            if let Some(id) = state.ledger.run_of(token) {
                let run = &mut state.ledger.runs[id];
                run.landed = now;
                told(run, state.ledger.calls[run.call].fingerprint);
            }
        });
    }
}

#[async_trait]
impl Store for Link {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let fate = self
            .depart(Verb::Claim, &claim.token, claim.lease_for)
            .await;
        if let Some(after) = fate.copy {
            let (world, claim, sender) = (self.world.clone(), claim.clone(), self.sender(true));
            self.copy(
                after,
                async move { drop(world.claim(&claim, sender).await) },
            );
        }
        let commit = self.world.claim(claim, self.sender(false));
        self.deliver(fate, Verb::Claim, &claim.token, commit).await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        let fate = self
            .depart(Verb::Renew, &lease.token, lease.lease_for)
            .await;
        if let Some(after) = fate.copy {
            let (world, lease, sender) = (self.world.clone(), lease.clone(), self.sender(true));
            self.copy(after, async move {
                drop(world.renew(&lease, lease_for, sender).await);
            });
        }
        let commit = self.world.renew(lease, lease_for, self.sender(false));
        let reply = self.deliver(fate, Verb::Renew, &lease.token, commit).await;
        if let Ok(Renewed::Lost) = reply {
            self.world.step(|state, now| {
                if let Some(id) = state.ledger.run_of(&lease.token) {
                    state.ledger.runs[id].lost.get_or_insert(now);
                }
            });
        }
        reply
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        let fate = self
            .depart(Verb::Complete, &lease.token, lease.lease_for)
            .await;
        if let Some(after) = fate.copy {
            let (world, lease, sender) = (self.world.clone(), lease.clone(), self.sender(true));
            let response = Arc::clone(response);
            self.copy(after, async move {
                drop(world.complete(&lease, &response, keep_for, sender).await);
            });
        }
        let commit = self
            .world
            .complete(lease, response, keep_for, self.sender(false));
        let reply = self
            .deliver(fate, Verb::Complete, &lease.token, commit)
            .await;
        let now = self.world.now();
        self.landed(&lease.token, |run, _| {
            run.told_absent |= matches!(reply, Ok(Completed::Absent));
            if reply.is_err() {
                run.failing.get_or_insert(now);
            }
        });
        reply
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        let fate = self
            .depart(Verb::Release, &lease.token, lease.lease_for)
            .await;
        if let Some(after) = fate.copy {
            let (world, lease, sender) = (self.world.clone(), lease.clone(), self.sender(true));
            self.copy(after, async move {
                drop(world.release(&lease, why, sender).await);
            });
        }
        let commit = self.world.release(lease, why, self.sender(false));
        let reply = self
            .deliver(fate, Verb::Release, &lease.token, commit)
            .await;
        self.landed(&lease.token, |run, meaning| {
            let finished = matches!(&reply, Ok(Released::Found(record))
                if record.response().is_some() && record.fingerprint == meaning);
            // A release that failed goes on in the background, and the caller is not kept waiting.
            run.told_of_another |= finished && !run.releases_on;
            run.releases_on |= reply.is_err();
        });
        reply
    }

    async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        let fate = self.depart(Verb::Settled, seen, at_most).await;
        let commit = self.world.settled(slot, seen, at_most);
        self.deliver(fate, Verb::Settled, seen, commit).await
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }
}
