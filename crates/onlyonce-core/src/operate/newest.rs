//! The newest records first. Most stores list by slot, which says nothing of time: they look at every
//! record once, and keep no more than a page of them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{Filter, Operate, Page};
use crate::clock::Timestamp;
use crate::record::Record;
use crate::slot::Slot;
use crate::store::StoreError;

#[cfg(test)]
mod tests;

/// Records that are read at a time: few calls for a store in memory, few bytes at once for others.
const PAGE_RECORDS: usize = 1000;

/// A page of the newest records.
#[derive(Clone, Copy, Debug)]
pub struct Newest {
    /// Only records before this one: the last of the page before.
    pub before: Option<(Timestamp, Slot)>,
    /// How many at most.
    pub records_max: usize,
}

/// The newest of the records that are offered in any order, never more than a page of them. For stores
/// that look at all their records.
#[derive(Debug)]
pub struct NewestPage {
    asked: Newest,
    kept: BTreeMap<Reverse<(u64, Slot)>, Record>,
}

impl NewestPage {
    /// An empty page.
    pub fn new(asked: Newest) -> Self {
        Self {
            asked,
            kept: BTreeMap::new(),
        }
    }

    /// Whether a record of that moment in that slot belongs on the page so far. Of most records of a
    /// large store it does not, so ask before one is read.
    pub fn wants(&self, created_at: Timestamp, slot: &Slot) -> bool {
        let place = (created_at.as_millis(), *slot);
        let before = self.asked.before.map(|(at, slot)| (at.as_millis(), slot));
        if before.is_some_and(|before| place >= before) {
            return false;
        }
        match self.kept.last_key_value() {
            Some((Reverse(last), _)) if self.kept.len() >= self.asked.records_max => place > *last,
            Some(_) => true,
            None => self.asked.records_max > 0,
        }
    }

    /// Puts a record on the page, if it belongs there.
    pub fn offer(&mut self, slot: Slot, record: Record) {
        if !self.wants(record.created_at, &slot) {
            return;
        }
        let place = (record.created_at.as_millis(), slot);
        self.kept.insert(Reverse(place), record);
        if self.kept.len() > self.asked.records_max {
            self.kept.pop_last();
        }
    }

    /// Whether the page is full, and all that is on it began after that.
    pub fn is_full_since(&self, since: Timestamp) -> bool {
        let is_later = |Reverse((began, _)): &Reverse<(u64, Slot)>| *began > since.as_millis();
        let oldest = self.kept.last_key_value().map(|(oldest, _)| oldest);
        self.kept.len() >= self.asked.records_max && oldest.is_none_or(is_later)
    }

    /// The page, the newest first.
    pub fn into_records(self) -> Vec<(Slot, Record)> {
        let record = |(Reverse((_, slot)), record)| (slot, record);
        self.kept.into_iter().map(record).collect()
    }
}

/// The newest of all that a store lists.
pub(super) async fn of_all<S: Operate + ?Sized>(
    store: &S,
    filter: &Filter,
    asked: &Newest,
) -> Result<Vec<(Slot, Record)>, StoreError> {
    let mut newest = NewestPage::new(*asked);
    let mut after = None;
    loop {
        let page = Page {
            after,
            records_max: PAGE_RECORDS,
        };
        let listed = store.list(filter, &page).await?;
        let is_last = listed.len() < page.records_max;
        after = listed.last().map(|(slot, _)| *slot);
        for (slot, record) in listed {
            newest.offer(slot, record);
        }
        if is_last {
            return Ok(newest.into_records());
        }
    }
}
