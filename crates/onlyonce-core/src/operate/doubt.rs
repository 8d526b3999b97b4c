//! Outcomes in doubt: which ones wait for an operator's decision, and how one is settled.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, StatusCode, header::RETRY_AFTER};

use super::{Filter, Operate, Page, Resolved, StateName};
use crate::record::{OnLapse, Record, State};
use crate::response::Response;
use crate::slot::Slot;
use crate::store::StoreError;

/// Records that are read at a time.
const PAGE_RECORDS: usize = 500;

/// Which outcomes in doubt are meant. Empty means all of them.
#[derive(Clone, Debug, Default)]
pub struct InDoubt {
    /// Only of this route or job.
    pub operation: Option<String>,
    /// Only by this actor.
    pub actor: Option<String>,
    /// Only of this instance.
    pub holder: Option<String>,
    /// Only first claimed at least this long ago, by the store's clock.
    pub age_min: Option<Duration>,
    /// Only first claimed at most this long ago, by the store's clock.
    pub age_max: Option<Duration>,
}

impl InDoubt {
    /// Whether the outcome of `record` is in doubt, and is meant: it is unknown, or its holder is
    /// gone and it must not run again. A lapsed record that may run again is not: the next request
    /// decides it.
    pub fn admits(&self, record: &Record) -> bool {
        let is_in_doubt = match record.state {
            State::Unknown => true,
            State::Pending { .. } => record.is_lapsed() && record.on_lapse == OnLapse::Hold,
            State::Done(_) | State::Failed(_) => false,
        };
        let is_of_holder = |holder: &String| **holder == *record.meta.holder;
        let is_meant = self.holder.as_ref().is_none_or(is_of_holder);
        is_in_doubt && is_meant && self.filter(None).admits(record)
    }

    fn filter(&self, state: Option<StateName>) -> Filter {
        Filter {
            state,
            operation: self.operation.clone(),
            actor: self.actor.clone(),
            hint: None,
            age_min: self.age_min,
            age_max: self.age_max,
        }
    }
}

/// The outcomes in doubt that `meant` means, at most `records_max`, the oldest first.
pub async fn in_doubt(
    operate: &dyn Operate,
    meant: &InDoubt,
    records_max: usize,
) -> Result<Vec<(Slot, Record)>, StoreError> {
    // Stores list by slot, so all are looked at; never more are kept than asked for.
    let mut oldest = BTreeMap::new();
    for state in [StateName::Unknown, StateName::Lapsed] {
        let filter = meant.filter(Some(state));
        let mut after = None;
        loop {
            let page = Page {
                after,
                records_max: PAGE_RECORDS,
            };
            let listed = operate.list(&filter, &page).await?;
            let is_last = listed.len() < page.records_max;
            after = listed.last().map(|(slot, _)| *slot);
            for (slot, record) in listed.into_iter().filter(|(_, it)| meant.admits(it)) {
                oldest.insert((record.created_at.as_millis(), slot), record);
                if oldest.len() > records_max {
                    oldest.pop_last();
                }
            }
            if is_last {
                break;
            }
        }
    }
    let outcome = |((_, slot), record)| (slot, record);
    Ok(oldest.into_iter().map(outcome).collect())
}

/// What an operator found out about an outcome in doubt.
#[derive(Clone, Debug)]
pub enum Settlement {
    /// It happened: retries get this answer for so long.
    Happened(Arc<Response>, Duration),
    /// It did not happen: the next request with its key runs it.
    DidNotHappen,
}

/// What became of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is settled.
    Done,
    /// Nothing was changed: it was not in doubt any more, or is gone.
    Skipped,
}

/// Settles one outcome, if it is still in doubt.
pub async fn settle(
    operate: &dyn Operate,
    slot: &Slot,
    settlement: &Settlement,
) -> Result<Settled, StoreError> {
    let resolved = match settlement {
        Settlement::Happened(response, keep_for) => {
            operate.resolve(slot, response, *keep_for).await?
        }
        Settlement::DidNotHappen => operate.discard(slot).await?,
    };
    Ok(match resolved {
        Resolved::Stored => Settled::Done,
        Resolved::Found(_) | Resolved::Absent => Settled::Skipped,
    })
}

/// A holder that was only slow can complete its record until it is settled. So a slot is not freed by
/// forgetting it at once, which would drop such an answer: an interim answer ("try again") is stored
/// first, which the store does only if the outcome is still in doubt, and which the holder cannot
/// overwrite. A retry in between gets that one.
pub(super) async fn discard_in_two_steps<O>(
    operate: &O,
    slot: &Slot,
) -> Result<Resolved, StoreError>
where
    O: Operate + ?Sized,
{
    let interim = Arc::new(interim());
    let resolved = operate.resolve(slot, &interim, Duration::ZERO).await?;
    if matches!(resolved, Resolved::Stored) {
        operate.forget(slot).await?;
    }
    Ok(resolved)
}

fn interim() -> Response {
    let text = "an operator has just decided that this did not happen: retry with the same key";
    let mut response = Response::new(StatusCode::SERVICE_UNAVAILABLE, text);
    let soon = HeaderValue::from_static("1");
    response.headers.insert(RETRY_AFTER, soon);
    response
}
