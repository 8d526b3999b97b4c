//! The newest records first. Stores list by slot, which says nothing of time: so ever longer spans
//! back from now are read until enough was found.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use super::{Filter, Operate, Page};
use crate::clock::Timestamp;
use crate::record::Record;
use crate::slot::Slot;
use crate::store::StoreError;

/// How far back is looked, in steps; then as far as there are records.
const SPANS: [Duration; 6] = [
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(10 * 60),
    Duration::from_secs(3600),
    Duration::from_secs(6 * 3600),
    Duration::from_secs(24 * 3600),
];
/// Records that are read at a time: few calls for a store in memory, few bytes at once for others.
const PAGE_RECORDS: usize = 16_384;
/// What is read at most for one page: of more records, those with the lowest slots.
const SCANNED_RECORDS_MAX: usize = 250_000;

/// A page of the newest records.
#[derive(Clone, Copy, Debug)]
pub struct Newest {
    /// Only records before this one: the last of the page before.
    pub before: Option<(Timestamp, Slot)>,
    /// How many at most.
    pub records_max: usize,
}

/// The newest live records that `filter` lets through.
pub async fn newest(
    operate: &dyn Operate,
    filter: &Filter,
    page: Newest,
) -> Result<Vec<(Slot, Record)>, StoreError> {
    let longest = filter.age_max.unwrap_or(Duration::MAX);
    let spans = SPANS.into_iter().filter(|span| *span < longest);
    let mut scanned = 0;
    for span in spans.chain([longest]) {
        let filter = Filter {
            age_max: (span < Duration::MAX).then_some(span),
            ..filter.clone()
        };
        let found = within(operate, &filter, page, &mut scanned).await?;
        if found.len() >= page.records_max || span == longest || scanned >= SCANNED_RECORDS_MAX {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

/// The newest of the records that `filter` lets through, all of which are read.
async fn within(
    operate: &dyn Operate,
    filter: &Filter,
    page: Newest,
    scanned: &mut usize,
) -> Result<Vec<(Slot, Record)>, StoreError> {
    let before = page.before.map(|(at, slot)| (at.as_millis(), slot));
    // In the order in which they are shown; never more than a page.
    let mut newest = BTreeMap::new();
    let mut after = None;
    loop {
        let asked = Page {
            after,
            records_max: PAGE_RECORDS,
        };
        let listed = operate.list(filter, &asked).await?;
        *scanned += listed.len();
        let is_last = listed.len() < asked.records_max || *scanned >= SCANNED_RECORDS_MAX;
        after = listed.last().map(|(slot, _)| *slot);
        for (slot, record) in listed {
            let place = (record.created_at.as_millis(), slot);
            if before.is_none_or(|before| place < before) {
                newest.insert(Reverse(place), record);
            }
            if newest.len() > page.records_max {
                newest.pop_last();
            }
        }
        if is_last {
            break;
        }
    }
    let place = |(Reverse((_, slot)), record)| (slot, record);
    Ok(newest.into_iter().map(place).collect())
}
