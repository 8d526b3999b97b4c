//! Outcomes in doubt: which ones wait for an operator's decision, and how one is settled.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, StatusCode, header::RETRY_AFTER};

use super::{Filter, Operate, Page, Resolved, StateName};
use crate::clock::Timestamp;
use crate::engine::steps_of;
use crate::record::{OnLapse, Record, State};
use crate::response::Response;
use crate::slot::Slot;
use crate::store::StoreError;

/// Records that are read at a time.
const PAGE_RECORDS: usize = 500;
/// When so many fail in a row, the store is down, and the rest would only take long to fail too.
const FAILURES_MAX: u32 = 3;

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
    /// Only behind this one, by when it was claimed first and then by its slot: where a list goes on.
    pub behind: Option<(Timestamp, Slot)>,
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
    let behind = meant.behind.map(|(at, slot)| (at.as_millis(), slot));
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
                let place = (record.created_at.as_millis(), slot);
                if behind.is_some_and(|behind| place <= behind) {
                    continue;
                }
                oldest.insert(place, record);
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
    /// It did not happen: the next request with its key runs it, and goes on behind the steps that
    /// were finished.
    DidNotHappen,
    /// Nothing of it shall be left, whatever happened: the next request with its key runs all of it.
    Forget,
}

/// What became of a settlement.
#[derive(Debug)]
pub enum Settled {
    /// It is settled.
    Done,
    /// It is settled, but this failed before its slot was free: until it is forgotten, or its record ends,
    /// retries get "try again".
    Unfreed(StoreError),
    /// Nothing was changed: it was not in doubt any more, or is gone, or another attempt is there.
    Skipped,
}

/// What became of many settlements.
#[derive(Debug, Default)]
pub struct SettledAll {
    /// How many are settled.
    pub settled: usize,
    /// How many were not in doubt any more.
    pub skipped: usize,
    /// Which were not settled, or not as a whole, and why.
    pub failed: Vec<(Slot, String)>,
}

/// Settles the outcome that was `seen` in `slot`, if it is still in doubt and no other attempt was made
/// since: what was found out about one says nothing about the next.
///
/// A holder that was only slow can complete its record until it is settled. So a slot is freed by
/// [discarding](Operate::discard) it, which keeps such an answer. Where its steps go too, an interim answer
/// ("try again") is stored first, which the holder cannot overwrite, and they are forgotten behind it: those
/// of an execution that runs stay.
pub async fn settle(
    operate: &dyn Operate,
    slot: &Slot,
    seen: &Record,
    settlement: &Settlement,
) -> Result<Settled, StoreError> {
    let now = operate.get(slot).await?;
    if now.is_none_or(|now| now.token != seen.token) {
        return Ok(Settled::Skipped);
    }
    match settlement {
        Settlement::Happened(response, keep_for) => {
            let is_stored = is_stored(operate, slot, seen, response, *keep_for).await?;
            Ok(if is_stored {
                Settled::Done
            } else {
                Settled::Skipped
            })
        }
        Settlement::DidNotHappen => discard(operate, slot, seen).await,
        Settlement::Forget => {
            let steps = steps_of(operate, slot, seen).await?;
            if steps.is_empty() {
                return discard(operate, slot, seen).await;
            }
            let interim = Arc::new(interim());
            if !is_stored(operate, slot, seen, &interim, Duration::ZERO).await? {
                return Ok(Settled::Skipped);
            }
            Ok(match free(operate, slot, &steps).await {
                Ok(()) => Settled::Done,
                Err(error) => Settled::Unfreed(error),
            })
        }
    }
}

/// Drops an outcome that is in doubt, with nothing else of it.
async fn discard(operate: &dyn Operate, slot: &Slot, seen: &Record) -> Result<Settled, StoreError> {
    let error = match operate.discard(slot).await {
        Ok(Resolved::Stored) => return Ok(Settled::Done),
        Ok(Resolved::Found(_) | Resolved::Absent) => return Ok(Settled::Skipped),
        Err(error) => error,
    };
    // Perhaps only the reply was lost, and it has to be known who settled it: what is there tells.
    match operate.get(slot).await {
        Ok(None) => Ok(Settled::Done),
        Ok(Some(now)) if is_answered(&now, seen, &interim()) => {
            Ok(match operate.forget(slot).await {
                Ok(_) => Settled::Done,
                Err(error) => Settled::Unfreed(error),
            })
        }
        Ok(Some(_)) | Err(_) => Err(error),
    }
}

/// Settles each of the outcomes that were found, and goes on behind one that fails. `note` is told each
/// that is settled, before anything else is done; where it fails, or the store does again and again,
/// nothing more is settled.
pub async fn settle_all(
    operate: &dyn Operate,
    found: &[(Slot, Record)],
    settlement: &Settlement,
    mut note: impl FnMut(&Slot, &Record) -> Result<(), String> + Send,
) -> SettledAll {
    let mut all = SettledAll::default();
    let mut failures = 0;
    for (index, (slot, record)) in found.iter().enumerate() {
        let is_settled = match settle(operate, slot, record, settlement).await {
            Ok(Settled::Done) => true,
            Ok(Settled::Unfreed(error)) => {
                let why = format!("it is settled, but was not freed at once: {error}");
                all.failed.push((*slot, why));
                true
            }
            Ok(Settled::Skipped) => {
                all.skipped += 1;
                false
            }
            Err(error) => {
                failures += 1;
                all.failed.push((*slot, error.to_string()));
                if failures == FAILURES_MAX {
                    all.leave(
                        &found[index + 1..],
                        "it was not tried: the store failed before",
                    );
                    return all;
                }
                continue;
            }
        };
        failures = 0;
        all.settled += usize::from(is_settled);
        if let Some(Err(why)) = is_settled.then(|| note(slot, record)) {
            all.failed.push((*slot, why));
            all.leave(
                &found[index + 1..],
                "it was not tried: the one before could not be noted",
            );
            return all;
        }
    }
    all
}

impl SettledAll {
    fn leave(&mut self, rest: &[(Slot, Record)], why: &str) {
        let left = |(slot, _): &(Slot, Record)| (*slot, why.to_owned());
        self.failed.extend(rest.iter().map(left));
    }
}

/// Stores an answer if the outcome is in doubt; whether it did.
async fn is_stored(
    operate: &dyn Operate,
    slot: &Slot,
    seen: &Record,
    response: &Arc<Response>,
    keep_for: Duration,
) -> Result<bool, StoreError> {
    let error = match operate.resolve(slot, response, keep_for).await {
        Ok(Resolved::Stored) => return Ok(true),
        Ok(Resolved::Found(_) | Resolved::Absent) => return Ok(false),
        Err(error) => error,
    };
    match operate.get(slot).await {
        Ok(Some(now)) if is_answered(&now, seen, response) => Ok(true),
        Ok(_) | Err(_) => Err(error),
    }
}

/// Forgets the steps first: if they stayed, the next run would not run them.
async fn free(
    operate: &dyn Operate,
    slot: &Slot,
    steps: &[(String, Slot, Record)],
) -> Result<(), StoreError> {
    for (_, step, _) in steps {
        operate.forget(step).await?;
    }
    operate.forget(slot).await.map(drop)
}

/// Whether the attempt that was `seen` has this answer.
fn is_answered(now: &Record, seen: &Record, response: &Response) -> bool {
    let same = |it: &Arc<Response>| it.status == response.status && it.body == response.body;
    now.token == seen.token && now.response().is_some_and(same)
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
    let text = "an operator is about to free this key: retry with it";
    let mut response = Response::new(StatusCode::SERVICE_UNAVAILABLE, text);
    let soon = HeaderValue::from_static("1");
    response.headers.insert(RETRY_AFTER, soon);
    response
}
