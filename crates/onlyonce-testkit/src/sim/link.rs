//! A process's link to the store: verbs get lost, replies get lost, both are late, and copies of
//! verbs arrive after the verb itself.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::event::Verb;
use onlyonce_core::operate::{Filter, Operate, Page, Resolved, Stats};
use onlyonce_core::{
    Claim, Claimed, Completed, Fingerprint, Lease, Record, Release, Released, Renewed, Response,
    Slot, Store, StoreError, StoreErrorKind, Token, async_trait,
};

use super::clock::{Ms, in_millis, pause};
use super::dice::Dice;
use super::history::{Short, What};
use super::kinds::Fault;
use super::ledger::Run;
use super::model::{Sender, Window};
use super::process::Process;
use super::terms::{LEASE_MAX, LEASE_MIN};
use super::world::{State, World};

const NAME: &str = "simulated";
/// The longest an ordinary verb or reply is under way.
const LATENCY_MAX: Ms = 3;

pub(super) struct Link {
    world: Arc<World>,
    process: Arc<Process>,
}

/// What happens to one verb on its way.
struct Fate {
    before: Ms,
    after: Ms,
    request_lost: bool,
    reply_lost: bool,
    /// Something is wrong with this verb.
    faulty: Option<(Verb, Token)>,
    copy: Option<Ms>,
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
            .step(|state, now| draw(state, self.process.id, (verb, *token), lease, now))
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

fn draw(state: &mut State, process: usize, verb: (Verb, Token), lease: Ms, now: Ms) -> Fate {
    let weather = state.weather;
    let dice = &mut state.dice;
    let mut fate = Fate {
        before: latency(dice),
        after: latency(dice),
        request_lost: false,
        reply_lost: false,
        faulty: None,
        copy: None,
    };
    let copied = match verb.0 {
        Verb::Claim => Some(Fault::CopiedClaim),
        Verb::Renew => Some(Fault::CopiedRenew),
        Verb::Complete => Some(Fault::CopiedComplete),
        Verb::Release => Some(Fault::CopiedRelease),
        Verb::Settled => None,
    };
    if let Some(fault) = copied
        && dice.chance(weather.copies_permille)
    {
        let after = long(dice, lease);
        fate.copy = Some(after);
        // A copy is no excuse for anyone: counted, but nobody's disturbance.
        state.report.count_fault(fault);
        let what = What::Fault {
            fault,
            verb: Some(verb.0),
            ms: after,
        };
        state.note(now, Some(process), what);
    }
    let dice = &mut state.dice;
    if dice.chance(weather.faults_permille) {
        fate.faulty = Some(verb);
        let delay = long(dice, lease);
        let fault = dice.pick(&[
            Fault::LostRequest,
            Fault::LostReply,
            Fault::SlowRequest,
            Fault::SlowReply,
        ]);
        // A loss is noticed at once or late.
        let noticed = if dice.chance(500) { 0 } else { delay };
        match fault {
            Fault::SlowRequest => fate.before += delay,
            Fault::SlowReply => fate.after += delay,
            Fault::LostRequest => {
                fate.request_lost = true;
                fate.after += noticed;
            }
            _ => {
                fate.reply_lost = true;
                fate.after += noticed;
            }
        }
        let window = Window::new(now, now + fate.before + fate.after);
        state.fault(fault, Some(verb), process, window);
    }
    fate
}

fn latency(dice: &mut Dice) -> Ms {
    dice.below(2 * LATENCY_MAX).saturating_sub(LATENCY_MAX - 1)
}

/// Long enough to matter: up to a lease, or past it.
fn long(dice: &mut Dice, lease: Ms) -> Ms {
    match dice.below(10) {
        0..5 => dice.between(1..=lease),
        5..9 => dice.between(lease..=lease * 5 / 2),
        _ => dice.between(lease..=1500),
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
        self.deliver(fate, Verb::Renew, &lease.token, commit).await
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

/// Of the operators' side, engines use only the agreement on a secret and the replay counts.
#[async_trait]
impl Operate for Link {
    async fn get(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        self.world.operators().get(slot).await
    }

    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<(Slot, Record)>, StoreError> {
        self.world.operators().list(filter, page).await
    }

    async fn forget(&self, slot: &Slot) -> Result<bool, StoreError> {
        self.world.forget(slot).await
    }

    async fn extend(&self, slot: &Slot, extra: Duration) -> Result<bool, StoreError> {
        self.world.extend(slot, extra).await
    }

    async fn resolve(
        &self,
        slot: &Slot,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Resolved, StoreError> {
        self.world
            .resolve(slot, response, in_millis(keep_for))
            .await
    }

    async fn sweep(&self, records_max: usize) -> Result<usize, StoreError> {
        self.world.operators().sweep(records_max).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.world.operators().stats().await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.world.operators().ping().await
    }

    async fn count_replays(&self, replays: &[(Slot, u64)]) -> Result<(), StoreError> {
        self.process.gate.pass().await;
        if self.world.is_out() {
            return Err(StoreError::new(NAME, StoreErrorKind::Unavailable));
        }
        self.world.count_replays(replays).await
    }

    async fn agree(&self, name: &str, offer: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.process.gate.pass().await;
        if self.world.is_out() {
            return Err(StoreError::new(NAME, StoreErrorKind::Unavailable));
        }
        self.world.operators().agree(name, offer).await
    }
}
