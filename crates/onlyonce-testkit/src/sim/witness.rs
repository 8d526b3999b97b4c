//! Stands before the store and compares what it does with what the model predicts: every reply,
//! and the record after every verb.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::event::Verb;
use onlyonce_core::operate::{Operate, Resolved};
use onlyonce_core::{
    Claim, Claimed, Completed, Lease, Record, Release, Released, Renewed, Response, Slot,
    StoreError, Token,
};

use super::clock::{Ms, in_millis, millis};
use super::history::{Reply, Short, What};
use super::kinds::{Fault, Seen};
use super::model::{Cell, Sender};
use super::report::{Broken, Checked, require};
use super::rules::{replies, tenancy};
use super::world::{State, World, short};

impl World {
    pub(super) async fn claim(&self, claim: &Claim, sender: Sender) -> Result<Claimed, StoreError> {
        let actual = self.store.claim(claim).await?;
        let after = self.read(&claim.slot).await?;
        self.check(|state, now| {
            let key = state.key(&claim.slot)?;
            let cell = &mut state.ledger.cells[key];
            let before = cell.record(now);
            let expected = cell.claim(claim, sender, now);
            let reply = replies::of_claim(&actual);
            state.committed(now, sender, Verb::Claim, key, &claim.token, reply);
            if reply == Reply::Dead {
                state.report.count_seen(Seen::Dead);
            }
            tenancy::asked(&state.ledger, claim)?;
            replies::claimed(claim, before.as_ref(), &expected, &actual)?;
            state.record_is(key, now, Verb::Claim, after.as_ref())?;
            if !sender.copy {
                tenancy::not_behind_itself(&state.ledger, claim, &expected)?;
            }
            tenancy::granted(&state.ledger, key, &expected, now)
        });
        Ok(actual)
    }

    pub(super) async fn renew(
        &self,
        lease: &Lease,
        lease_for: Duration,
        sender: Sender,
    ) -> Result<Renewed, StoreError> {
        let actual = self.store.renew(lease, lease_for).await?;
        let after = self.read(&lease.slot).await?;
        self.check(|state, now| {
            let key = state.key(&lease.slot)?;
            let lease_for = in_millis(lease_for);
            let expected = state.ledger.cells[key].renew(lease, lease_for, sender, now);
            let reply = replies::of_renewal(&actual);
            state.committed(now, sender, Verb::Renew, key, &lease.token, reply);
            replies::renewed(&expected, &actual)?;
            state.record_is(key, now, Verb::Renew, after.as_ref())
        });
        Ok(actual)
    }

    pub(super) async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
        sender: Sender,
    ) -> Result<Completed, StoreError> {
        let actual = self.store.complete(lease, response, keep_for).await?;
        let after = self.read(&lease.slot).await?;
        self.check(|state, now| {
            let key = state.key(&lease.slot)?;
            let keep = in_millis(keep_for);
            let expected = state.ledger.cells[key].complete(lease, response, keep, now);
            let reply = replies::of_completion(&actual);
            state.committed(now, sender, Verb::Complete, key, &lease.token, reply);
            replies::completed(&expected, &actual)?;
            // With a lost token it only reads, whatever it offers.
            if reply == Reply::Stored {
                tenancy::completed(&state.ledger, &lease.token, response, keep)?;
            }
            state.record_is(key, now, Verb::Complete, after.as_ref())
        });
        Ok(actual)
    }

    pub(super) async fn release(
        &self,
        lease: &Lease,
        why: Release,
        sender: Sender,
    ) -> Result<Released, StoreError> {
        let actual = self.store.release(lease, why).await?;
        let after = self.read(&lease.slot).await?;
        self.check(|state, now| {
            let key = state.key(&lease.slot)?;
            let expected = state.ledger.cells[key].release(lease, why, now);
            let reply = replies::of_release(&actual);
            state.committed(now, sender, Verb::Release, key, &lease.token, reply);
            replies::released(&expected, &actual)?;
            tenancy::released(&state.ledger, &lease.token, why, now)?;
            state.record_is(key, now, Verb::Release, after.as_ref())
        });
        Ok(actual)
    }

    /// Rule 7: a change before the call is not missed, a change or a lapse wakes at once, and
    /// nobody sleeps longer than asked.
    pub(super) async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        let began = self.now();
        self.store.settled(slot, seen, at_most).await?;
        self.check(|state, now| {
            let key = state.key(slot)?;
            let cell = &mut state.ledger.cells[key];
            cell.current(now);
            let over = match cell.tenure_of(seen) {
                Some(tenure) => tenure.over(now),
                None => Some(began),
            };
            // A timer may round up to the next millisecond.
            let by = over.map_or(Ms::MAX, |over| over.max(began) + 1);
            let longest = began + in_millis(at_most) + 1;
            require(
                now <= by && now <= longest,
                "a waiter wakes at once when its slot changes or lapses, and in its time",
                || format!("asked at {began} ms for {at_most:?}, over at {over:?}, woken at {now}"),
            )
        });
        Ok(())
    }

    pub(super) async fn forget(&self, slot: &Slot) -> Result<bool, StoreError> {
        let actual = self.operators().forget(slot).await?;
        self.operated(Fault::Forget, slot, actual, |cell, now| cell.forget(now));
        Ok(actual)
    }

    pub(super) async fn extend(&self, slot: &Slot, extra: Duration) -> Result<bool, StoreError> {
        let actual = self.operators().extend(slot, extra).await?;
        self.operated(Fault::Extend, slot, actual, |cell, now| {
            cell.extend(in_millis(extra), now)
        });
        let after = self.read(slot).await?;
        self.check(|state, now| {
            let key = state.key(slot)?;
            state.record_is(key, now, Verb::Renew, after.as_ref())
        });
        Ok(actual)
    }

    pub(super) async fn resolve(
        &self,
        slot: &Slot,
        response: &Arc<Response>,
        keep: Ms,
    ) -> Result<Resolved, StoreError> {
        let actual = self
            .operators()
            .resolve(slot, response, millis(keep))
            .await?;
        let done = matches!(actual, Resolved::Stored);
        self.operated(Fault::Resolve, slot, done, |cell, now| {
            matches!(cell.resolve(response, keep, now), Resolved::Stored)
        });
        Ok(actual)
    }

    pub(super) async fn count_replays(&self, replays: &[(Slot, u64)]) -> Result<(), StoreError> {
        self.operators().count_replays(replays).await?;
        self.check(|state, now| {
            for (slot, count) in replays {
                let key = state.key(slot)?;
                state.ledger.cells[key].count_replays(*count, now);
            }
            Ok(())
        });
        Ok(())
    }

    pub(super) fn operators(&self) -> &dyn Operate {
        let operators = self.store.operate();
        operators.expect("the memory store has an operators' side")
    }

    async fn read(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        self.operators().get(slot).await
    }

    fn operated(
        &self,
        fault: Fault,
        slot: &Slot,
        actual: bool,
        predict: impl FnOnce(&mut Cell, Ms) -> bool,
    ) {
        self.check(|state, now| {
            let key = state.key(slot)?;
            state.report.verbs += 1;
            if actual {
                state.report.count_fault(fault);
            }
            let operated = What::Operated {
                fault,
                key: short(key),
                done: actual,
            };
            state.note(now, None, operated);
            let expected = predict(&mut state.ledger.cells[key], now);
            require(
                expected == actual,
                "an operator changes what is there, and only what may be changed",
                || {
                    format!(
                        "{} of key {key}: expected {expected}, was {actual}",
                        fault.name()
                    )
                },
            )
        });
    }
}

impl State {
    pub(super) fn key(&self, slot: &Slot) -> Result<usize, Broken> {
        self.ledger.key_of(slot).ok_or_else(|| Broken {
            rule: "only the slots of the calls' keys are used",
            detail: format!("{slot:?} is none of them"),
        })
    }

    /// The record in the store is the one the model has.
    fn record_is(&mut self, key: usize, now: Ms, verb: Verb, actual: Option<&Record>) -> Checked {
        let expected = self.ledger.cells[key].record(now);
        require(expected.as_ref() == actual, replies::after(verb), || {
            format!("after {verb:?} of key {key}\n  expected {expected:?}\n  was      {actual:?}")
        })
    }

    fn committed(
        &mut self,
        now: Ms,
        sender: Sender,
        verb: Verb,
        key: usize,
        token: &Token,
        reply: Reply,
    ) {
        self.report.verbs += 1;
        let what = What::Committed {
            verb,
            key: short(key),
            token: Short::of(token),
            copy: sender.copy,
            reply,
        };
        self.note(now, Some(sender.process), what);
    }
}
