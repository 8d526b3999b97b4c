//! How many records of a segment are alive, and when the rest of them expires: without looking at
//! any. Expiries are rounded up to a small part of the time a record has left.

use std::collections::BTreeMap;
use std::time::Duration;

use super::frame::Kind;

/// A record may count as alive for this part of its time longer than it is.
const DUE_PART: u64 = 256;

/// Milliseconds since 1970.
pub(super) fn millis(moment: Duration) -> u64 {
    u64::try_from(moment.as_millis()).unwrap_or(u64::MAX)
}

/// When a record that expires at `expires` has expired for certain: rounded up, so that records
/// which expire at nearly the same time are counted together.
pub(super) fn due(expires: Duration, now: Duration) -> u64 {
    let expires = millis(expires).saturating_add(1);
    let part = expires.saturating_sub(millis(now)) / DUE_PART;
    let width = part.checked_ilog2().map_or(1, |bits| 1 << bits);
    expires.div_ceil(width).saturating_mul(width)
}

/// Some records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) records: u64,
    /// Of these, pending.
    pub(super) pending: u64,
    /// The bytes of their frames.
    pub(super) bytes: u64,
}

impl Tally {
    /// One record.
    pub(super) fn one(kind: Kind, bytes: usize) -> Self {
        Self {
            records: 1,
            pending: u64::from(kind == Kind::Pending),
            bytes: bytes as u64,
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.records += other.records;
        self.pending += other.pending;
        self.bytes += other.bytes;
    }

    fn subtract(&mut self, other: Self) {
        self.records = self.records.saturating_sub(other.records);
        self.pending = self.pending.saturating_sub(other.pending);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }
}

/// The records of a segment that are in the index, by when they are due.
#[derive(Default)]
pub(super) struct Tallies {
    live: BTreeMap<u64, Tally>,
    /// Everything due by `expired_until`.
    expired: Tally,
    expired_until: u64,
}

impl Tallies {
    pub(super) fn add(&mut self, due: u64, tally: Tally) {
        if due <= self.expired_until {
            self.expired.add(tally);
        } else {
            self.live.entry(due).or_default().add(tally);
        }
    }

    pub(super) fn subtract(&mut self, due: u64, tally: Tally) {
        if due <= self.expired_until {
            self.expired.subtract(tally);
        } else if let Some(together) = self.live.get_mut(&due) {
            together.subtract(tally);
            if together.records == 0 {
                self.live.remove(&due);
            }
        }
    }

    /// What is alive, and what has expired but is still in the index.
    pub(super) fn at(&mut self, now: u64) -> (Tally, Tally) {
        while let Some(first) = self.live.first_entry()
            && *first.key() <= now
        {
            self.expired.add(first.remove());
        }
        self.expired_until = self.expired_until.max(now);
        let mut live = Tally::default();
        self.live.values().for_each(|tally| live.add(*tally));
        (live, self.expired)
    }

    /// When the last of them is due.
    pub(super) fn last_due(&self) -> Option<u64> {
        self.live.last_key_value().map(|(due, _)| *due)
    }
}
