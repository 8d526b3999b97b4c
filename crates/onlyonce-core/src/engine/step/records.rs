//! The records of an operation's steps, found from its own: they have its hint, and their addresses
//! derive from its.

use std::time::Duration;

use crate::operate::{Filter, Operate, Page};
use crate::record::Record;
use crate::slot::Slot;
use crate::store::StoreError;

use super::SEPARATOR;

/// Records read at a time, to find steps.
const PAGE_RECORDS: usize = 1000;

/// The name of the step whose record is at `slot`, if it is one of the operation at `parent`: by the
/// operation that the record names.
pub fn step_of<'a>(parent: &Slot, slot: &Slot, operation: &'a str) -> Option<&'a str> {
    let (_, name) = operation.rsplit_once(SEPARATOR)?;
    (parent.step(name) == *slot).then_some(name)
}

/// The records of the steps of an operation, and of their own steps, with their names: `charge`, or
/// `charge > authorize` for a step of a step.
pub async fn steps_of(
    operate: &dyn Operate,
    parent: &Slot,
    record: &Record,
) -> Result<Vec<(String, Slot, Record)>, StoreError> {
    let filter = Filter {
        hint: Some(record.meta.hint),
        ..Filter::default()
    };
    let mut alike = Vec::new();
    let mut after = None;
    loop {
        let page = Page {
            after,
            records_max: PAGE_RECORDS,
        };
        let found = operate.list(&filter, &page).await?;
        let is_last = found.len() < PAGE_RECORDS;
        after = found.last().map(|(slot, _)| *slot);
        alike.extend(found);
        if is_last {
            return Ok(below(parent, "", &alike));
        }
    }
}

/// Keeps a record `extra` longer, and first its steps: an attempt that begins late needs them too. False
/// if there was none.
pub async fn extend_with_steps(
    operate: &dyn Operate,
    slot: &Slot,
    extra: Duration,
) -> Result<bool, StoreError> {
    let Some(record) = operate.get(slot).await? else {
        return Ok(false);
    };
    for (_, step, _) in steps_of(operate, slot, &record).await? {
        operate.extend(&step, extra).await?;
    }
    operate.extend(slot, extra).await
}

fn below(parent: &Slot, path: &str, alike: &[(Slot, Record)]) -> Vec<(String, Slot, Record)> {
    let mut steps = Vec::new();
    for (slot, record) in alike {
        if let Some(name) = step_of(parent, slot, &record.meta.operation) {
            let name = format!("{path}{name}");
            let inside = below(slot, &format!("{name}{SEPARATOR}"), alike);
            steps.push((name, *slot, record.clone()));
            steps.extend(inside);
        }
    }
    steps.sort_by_key(|(_, _, record)| record.created_at.as_millis());
    steps
}
