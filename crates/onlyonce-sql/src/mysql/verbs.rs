//! What is asked of the server in batches, and how its answer is read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::entry::{Change, Phase, timestamp};
use onlyonce_core::slot::SlotMap;
use onlyonce_core::store::Receipt;
use onlyonce_core::{
    Claim, Claimed, Completed, Entropy, Lease, Response, Slot, StoreError, Token, codec,
};

use super::lines::Answered;
use super::rows::Row;
use super::server::Server;
use super::statements::{SPELLING_BYTES, Statements};
use super::text::Text;
use super::trouble::{Trouble, unreadable};
use crate::steps::{Columns, Held, from_millis, read_slot, to_millis, whole};

/// A question that can be asked together with others of its kind.
pub(super) trait Verb: Send + Sync + Sized + 'static {
    type Answer: Send + 'static;

    fn slot(&self) -> Slot;

    /// How much it adds to a statement.
    fn bytes(&self) -> usize {
        SPELLING_BYTES
    }

    /// The statements that ask all of these, sorted by slot.
    fn text(statements: &Statements, batch: &[&Self]) -> Text;

    /// What they answered, in the order of the batch.
    fn read(server: &Server, batch: &[&Self], answered: &Answered) -> Vec<Answer<Self>>;
}

/// What one question is answered; nothing if it needs a step of its own.
pub(super) type Answer<V> = Result<Option<<V as Verb>::Answer>, StoreError>;

/// [`Store::claim`](onlyonce_core::Store::claim), as long as nothing but an empty slot is to be
/// changed.
pub(super) struct Claiming {
    pub(super) claim: Claim,
    /// The first revision of the row that this makes: by it we know our work.
    pub(super) revision: i64,
}

impl Claiming {
    pub(super) fn new(claim: &Claim, entropy: &dyn Entropy) -> Self {
        let mut random = [0; 8];
        entropy.fill(&mut random);
        Self {
            claim: claim.clone(),
            // Half of the room is left for the revisions to come.
            revision: i64::from_le_bytes(random) >> 1,
        }
    }
}

impl Verb for Claiming {
    type Answer = Claimed;

    fn slot(&self) -> Slot {
        self.claim.slot
    }

    fn bytes(&self) -> usize {
        let meta = &self.claim.meta;
        let told = [
            Some(&meta.operation),
            meta.actor.as_ref(),
            Some(&meta.holder),
        ];
        // Each is told twice, by its column and with the rest, in two digits a byte.
        let told: usize = told.into_iter().flatten().map(|it| 4 * it.len()).sum();
        SPELLING_BYTES + told
    }

    fn text(statements: &Statements, batch: &[&Self]) -> Text {
        statements.claim(batch)
    }

    fn read(_: &Server, batch: &[&Self], answered: &Answered) -> Vec<Answer<Self>> {
        let rows: SlotMap<_> = answered.rows.iter().filter_map(Row::read).collect();
        let judged = batch.iter().map(|it| match rows.get(&it.claim.slot) {
            Some(row) => it.judge(row),
            // Forgotten meanwhile.
            None => Ok(None),
        });
        judged.collect()
    }
}

impl Claiming {
    /// What a row, read after the claim was tried, means for it.
    fn judge(&self, row: &Row) -> Answer<Self> {
        let mut held = row.held.as_ref().map_err(unreadable)?.clone();
        if row.seen.is(self.revision, &self.claim.token) {
            return Ok(Some(granted(&self.claim, 1)));
        }
        match claim(&mut held, &self.claim, row.now) {
            // A lapsed claim may be one that its holder works on.
            (Claimed::Taken(record), Change::Nothing) if record.is_lapsed() => Ok(None),
            (claimed, Change::Nothing) => Ok(Some(claimed)),
            (_, Change::Written | Change::Settled) => Ok(None),
        }
    }
}

/// How much of its lease a claim may have lost and still count as whole.
const LEASE_SLACK: Duration = Duration::from_millis(10);

/// A claim as the reference store decides it, but that one which is ours and whole is not written
/// again: copies of one claim would only get into each other's way.
pub(super) fn claim(held: &mut Held, claim: &Claim, now: Duration) -> (Claimed, Change) {
    match holds(held, claim, now) {
        Some((attempt, lease_left)) if lease_left + LEASE_SLACK >= claim.lease_for => {
            (granted(claim, attempt), Change::Nothing)
        }
        Some(_) | None => held.claim(claim, now),
    }
}

/// Which attempt `claim` itself holds, and what is left of its lease; nothing if it holds none
/// that is live.
pub(super) fn holds(held: &Held, claim: &Claim, now: Duration) -> Option<(u32, Duration)> {
    let own = held.entry.live(now).filter(|it| it.token == claim.token)?;
    match own.phase {
        Phase::Pending { lease_until } if !held.dead.holds(&claim.token, now) => {
            Some((own.attempt, lease_until.saturating_sub(now)))
        }
        Phase::Pending { .. } | Phase::Finished(_) | Phase::Unknown => None,
    }
}

/// The lease of a claim that was granted before, or just now.
pub(super) fn granted(claim: &Claim, attempt: u32) -> Claimed {
    Claimed::Granted {
        lease: Lease {
            attempt,
            ..claim.lease()
        },
        overtook: None,
    }
}

/// [`Store::complete`](onlyonce_core::Store::complete), as long as the claim is still held.
pub(super) struct Completing {
    pub(super) lease: Lease,
    pub(super) response: Bytes,
    pub(super) is_failure: bool,
    pub(super) keep_for: i64,
    /// What its claim asked for.
    pub(super) asked_for: i64,
}

impl Completing {
    pub(super) fn new(lease: &Lease, response: &Arc<Response>, keep_for: Duration) -> Self {
        Self {
            lease: lease.clone(),
            response: codec::encode_response(response),
            is_failure: response.is_failure(),
            keep_for: to_millis(whole(keep_for)),
            asked_for: to_millis(whole(lease.keep_for)),
        }
    }
}

impl Verb for Completing {
    type Answer = Completed;

    fn slot(&self) -> Slot {
        self.lease.slot
    }

    fn bytes(&self) -> usize {
        SPELLING_BYTES + 2 * self.response.len()
    }

    fn text(statements: &Statements, batch: &[&Self]) -> Text {
        statements.complete(batch)
    }

    fn read(server: &Server, batch: &[&Self], answered: &Answered) -> Vec<Answer<Self>> {
        let receipts = answered.rows.iter().filter_map(|row| {
            let moment = |at| Some(timestamp(from_millis(row.int(at).ok()?)));
            let receipt = Receipt {
                created_at: moment(1)?,
                completed_at: moment(2)?,
                expires_at: moment(3)?,
            };
            Some((read_slot(row).ok()?, receipt))
        });
        let receipts: SlotMap<_> = receipts.collect();
        // The first statement began the transaction.
        let changed = answered.changed.iter().skip(1);
        let read = batch.iter().zip(changed).map(|(it, changed)| {
            if *changed == 0 {
                return Ok(None);
            }
            server.waiters.wake(&it.lease.slot);
            let receipt = receipts.get(&it.lease.slot).copied();
            let receipt = receipt.ok_or_else(|| Trouble::late().to_error())?;
            Ok(Some(Completed::Stored(receipt)))
        });
        read.collect()
    }
}

/// Whose claim a slot holds, and what is left of its lease; nothing if none is live.
pub(super) struct Looking(pub(super) Slot);

impl Verb for Looking {
    type Answer = (Token, Duration);

    fn slot(&self) -> Slot {
        self.0
    }

    fn text(statements: &Statements, batch: &[&Self]) -> Text {
        let slots: Vec<_> = batch.iter().map(|it| &it.0).collect();
        statements.look(&slots)
    }

    fn read(_: &Server, batch: &[&Self], answered: &Answered) -> Vec<Answer<Self>> {
        let held = answered.rows.iter().filter_map(|row| {
            let token = Token::from_bytes(row.bytes(1).ok()?.try_into().ok()?);
            let lease_left = from_millis(row.int(2).ok()?);
            Some((read_slot(row).ok()?, (token, lease_left)))
        });
        let held: SlotMap<_> = held.collect();
        batch
            .iter()
            .map(|it| Ok(held.get(&it.0).copied()))
            .collect()
    }
}
