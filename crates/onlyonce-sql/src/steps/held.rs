//! What a row holds: a record, or nothing any more, and the tokens that must not come back to its
//! slot. Its steps are those of the reference store.

use std::time::Duration;

use onlyonce_core::entry::{Change, Entry};
use onlyonce_core::{Claim, Claimed, Lease, Release, Released, Token};

use super::{from_millis, to_millis, whole};

/// A slot's row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) entry: Entry,
    pub(crate) dead: Dead,
}

impl Held {
    /// [`Store::claim`](onlyonce_core::Store::claim).
    pub(crate) fn claim(&mut self, claim: &Claim, now: Duration) -> (Claimed, Change) {
        if self.dead.holds(&claim.token, now) {
            return (Claimed::Dead, Change::Nothing);
        }
        let rounded = Claim {
            lease_for: whole(claim.lease_for),
            keep_for: whole(claim.keep_for),
            ..claim.clone()
        };
        let (claimed, change) = self.entry.claim(&rounded, now);
        let claimed = match claimed {
            Claimed::Granted { lease, overtook } => Claimed::Granted {
                lease: Lease {
                    attempt: lease.attempt,
                    ..claim.lease()
                },
                overtook,
            },
            Claimed::Taken(_) | Claimed::Dead => claimed,
        };
        (claimed, change)
    }

    /// [`Store::release`](onlyonce_core::Store::release).
    pub(crate) fn release(
        &mut self,
        lease: &Lease,
        why: Release,
        now: Duration,
    ) -> (Released, Change) {
        let (released, change) = self.entry.release(lease, why, now);
        let is_noted = self.dead.note(lease, why, change, now);
        match change {
            Change::Nothing if is_noted => (released, Change::Written),
            Change::Nothing | Change::Written | Change::Settled => (released, change),
        }
    }

    /// Until when the row is needed.
    pub(crate) fn needed_until(&self) -> Duration {
        let record = self.entry.kept.as_ref().map(|kept| kept.expires);
        record.unwrap_or_default().max(self.dead.until())
    }
}

/// How many dead tokens a row remembers: beyond that, the oldest is forgotten before its time.
const DEAD_MAX: usize = 64;
const DEAD_BYTES: usize = Token::BYTES + size_of::<i64>();

/// Released tokens of a slot and until when they are dead, the newest last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dead(Vec<(Token, Duration)>);

impl Dead {
    pub(crate) fn holds(&self, token: &Token, now: Duration) -> bool {
        let mut dead = self.0.iter();
        dead.any(|(it, until)| it == token && *until > now)
    }

    /// Notes the token of a release that did `change` to its record, for one lease; says whether
    /// it did. A claim that has not arrived yet can be given back too, but not as unknown.
    fn note(&mut self, lease: &Lease, why: Release, change: Change, now: Duration) -> bool {
        let until = now.saturating_add(whole(lease.lease_for));
        if until <= now || (why == Release::Unknown && change == Change::Nothing) {
            return false;
        }
        self.0
            .retain(|(it, until)| *it != lease.token && *until > now);
        if self.0.len() == DEAD_MAX {
            self.0.remove(0);
        }
        self.0.push((lease.token, until));
        true
    }

    /// When the last of them has been dead long enough.
    fn until(&self) -> Duration {
        self.0
            .iter()
            .map(|(_, until)| *until)
            .max()
            .unwrap_or_default()
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.0.len() * DEAD_BYTES);
        for (token, until) in &self.0 {
            bytes.extend_from_slice(token.as_bytes());
            bytes.extend_from_slice(&to_millis(*until).to_be_bytes());
        }
        bytes
    }

    /// Reads them back; nothing if these are not the bytes of such a list.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut dead = Vec::with_capacity(bytes.len() / DEAD_BYTES);
        for one in bytes.chunks(DEAD_BYTES) {
            let (token, until) = one.split_first_chunk()?;
            let until = i64::from_be_bytes(until.try_into().ok()?);
            dead.push((Token::from_bytes(*token), from_millis(until)));
        }
        Some(Self(dead))
    }
}
