//! The reference model: the protocol's verbs on one slot, written from its rules and not from
//! any store's code. It predicts every reply and the record after it, on virtual time.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::operate::Resolved;
use onlyonce_core::store::Receipt;
use onlyonce_core::{
    Claim, Claimed, Completed, Lease, OnLapse, Overtaken, Record, Release, Released, Renewed,
    Response, Slot, Token,
};

use super::clock::{Ms, in_millis, wall};

mod tenure;

pub(super) use self::tenure::{Closing, Phase, Tenure, Window};

/// One slot: everyone who ever held it, in order.
pub(super) struct Cell {
    pub(super) slot: Slot,
    pub(super) tenures: Vec<Tenure>,
    /// The last of them still holds the slot. One place, so at most one live lease a slot.
    held: bool,
    /// Released tokens, and until when each stays dead.
    dead: Vec<(Token, Ms)>,
}

/// Who sent a verb.
#[derive(Clone, Copy)]
pub(super) struct Sender {
    pub(super) process: usize,
    /// It is a late copy that the network made: nobody waits for its reply.
    pub(super) copy: bool,
}

impl Cell {
    pub(super) fn new(slot: Slot) -> Self {
        Self {
            slot,
            tenures: Vec::new(),
            held: false,
            dead: Vec::new(),
        }
    }

    /// The tenure that holds the slot, unless its record expired.
    pub(super) fn current(&mut self, now: Ms) -> Option<&mut Tenure> {
        if self.held
            && let Some(last) = self.tenures.last_mut()
            && last.expires <= now
        {
            let at = last.expires;
            self.close(at, Closing::Expired);
        }
        if self.held {
            self.tenures.last_mut()
        } else {
            None
        }
    }

    /// What a read would find.
    pub(super) fn record(&mut self, now: Ms) -> Option<Record> {
        self.current(now).map(|tenure| tenure.record(now))
    }

    /// The last tenure of this token.
    pub(super) fn tenure_of(&self, token: &Token) -> Option<&Tenure> {
        self.tenures.iter().rev().find(|it| it.token == *token)
    }

    /// Whether this token was released less than a lease ago (docs/protocol.md#rule-5).
    pub(super) fn is_dead(&self, token: &Token, now: Ms) -> bool {
        let mut dead = self.dead.iter();
        dead.any(|(it, until)| it == token && now < *until)
    }

    /// Rule 2: granted iff the slot is empty or expired, or holds our own pending token, or is
    /// lapsed and both sides re-run and the fingerprint is equal. Rule 5: never to a dead token.
    pub(super) fn claim(&mut self, claim: &Claim, sender: Sender, now: Ms) -> Claimed {
        if self.is_dead(&claim.token, now) {
            return Claimed::Dead;
        }
        let Some(held) = self.current(now) else {
            self.seat(Tenure::granted(claim, sender, 1, now, now));
            return granted(claim, 1, None);
        };
        let pending = matches!(held.phase, Phase::Pending);
        if pending && held.token == claim.token {
            held.prolong(in_millis(claim.lease_for), sender, now);
            held.orphan &= sender.copy;
            return granted(claim, held.attempt, None);
        }
        let both_rerun = held.on_lapse == OnLapse::Rerun && claim.on_lapse == OnLapse::Rerun;
        let lapsed = pending && held.lease_until <= now;
        if !(lapsed && both_rerun && held.fingerprint == claim.fingerprint) {
            return Claimed::Taken(held.record(now));
        }
        let (attempt, created) = (held.attempt + 1, held.created);
        let overtook = Overtaken {
            meta: Arc::clone(&held.meta),
            age: Duration::from_millis(now - created),
        };
        self.close(now, Closing::TakenOver);
        self.seat(Tenure::granted(claim, sender, attempt, created, now));
        granted(claim, attempt, Some(overtook))
    }

    /// Only the holder keeps a lease; also a lapsed one, as long as nobody took over.
    pub(super) fn renew(
        &mut self,
        lease: &Lease,
        lease_for: Ms,
        sender: Sender,
        now: Ms,
    ) -> Renewed {
        match self.pending(lease, now) {
            Some(held) => {
                held.prolong(lease_for, sender, now);
                Renewed::Kept
            }
            None => Renewed::Lost,
        }
    }

    /// Rule 4: changes only a pending record with the same token. Retention starts now.
    pub(super) fn complete(
        &mut self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Ms,
        now: Ms,
    ) -> Completed {
        if let Some(held) = self.pending(lease, now) {
            let extended = held.extended(in_millis(lease.keep_for));
            held.finish(response, keep_for + extended, now);
            return Completed::Stored(Receipt {
                created_at: wall(held.created),
                completed_at: wall(now),
                expires_at: wall(held.expires),
            });
        }
        match self.record(now) {
            Some(record) => Completed::Found(record),
            None => Completed::Absent,
        }
    }

    /// Rule 5: `NotRun` frees the slot; `Unknown` ends the lease at once and leaves the rest to
    /// the policy. Rule 6: it shortens nothing, as "never twice" counts from the claim.
    pub(super) fn release(&mut self, lease: &Lease, why: Release, now: Ms) -> Released {
        let held = self.pending(lease, now);
        let was_held = held.is_some();
        match (why, held) {
            (Release::Unknown, Some(held)) => held.doubt(now),
            // Who never heard what it claimed does not make an earlier attempt forgotten.
            (Release::NotRun, Some(held)) if held.attempt > 1 => held.doubt(now),
            (Release::NotRun, Some(_)) => self.close(now, Closing::NotRun),
            (Release::NotRun | Release::Unknown, None) => {}
        }
        // A claim that was not granted yet can be given back as well, but never as unknown.
        if was_held || why == Release::NotRun {
            let until = now + in_millis(lease.lease_for);
            self.dead.push((lease.token, until));
        }
        match self.record(now) {
            Some(record) if !was_held => Released::Found(record),
            Some(_) | None => Released::Ended,
        }
    }

    pub(super) fn forget(&mut self, now: Ms) -> bool {
        let found = self.current(now).is_some();
        if found {
            self.close(now, Closing::Forgotten);
        }
        found
    }

    pub(super) fn extend(&mut self, extra: Ms, now: Ms) -> bool {
        let held = self.current(now);
        let found = held.is_some();
        if let Some(held) = held {
            held.extend(extra);
        }
        found
    }

    /// An operator may answer only what is unknown or lapsed, and shortens nothing by it.
    pub(super) fn resolve(&mut self, response: &Arc<Response>, keep_for: Ms, now: Ms) -> Resolved {
        let Some(held) = self.current(now) else {
            return Resolved::Absent;
        };
        let open = match held.phase {
            Phase::Pending => held.lease_until <= now,
            Phase::Unknown => true,
            Phase::Finished(_) => false,
        };
        if !open {
            return Resolved::Found(held.record(now));
        }
        let promised = held.expires.saturating_sub(now);
        held.finish(response, keep_for.max(promised), now);
        held.resolved = true;
        Resolved::Stored
    }

    pub(super) fn count_replays(&mut self, count: u64, now: Ms) {
        if let Some(held) = self.current(now) {
            held.replays += count;
        }
    }

    fn pending(&mut self, lease: &Lease, now: Ms) -> Option<&mut Tenure> {
        self.current(now)
            .filter(|held| held.token == lease.token && matches!(held.phase, Phase::Pending))
    }

    fn seat(&mut self, tenure: Tenure) {
        self.tenures.push(tenure);
        self.held = true;
    }

    fn close(&mut self, at: Ms, how: Closing) {
        self.held = false;
        if let Some(last) = self.tenures.last_mut() {
            last.closed = Some((at, how));
        }
    }
}

fn granted(claim: &Claim, attempt: u32, overtook: Option<Overtaken>) -> Claimed {
    Claimed::Granted {
        lease: Lease {
            attempt,
            ..claim.lease()
        },
        overtook,
    }
}
