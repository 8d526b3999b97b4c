//! Outcomes in doubt: listed, and settled many at a time.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use onlyonce_core::operate::{AttemptId, InDoubt, SettledAll, Settlement, in_doubt, settle_all};
use onlyonce_core::{Deed, Record, Slot, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Admin;
use super::extract::{Body, Query};
use super::operator::{Name, Reason, Via};
use super::problem::Problem;
use super::records::{ATTEMPT_ID, AnswerGiven, RecordsPage, seconds, slot};
use super::view::RecordView;
use crate::config::Count;

/// Outcomes that one request lists or settles, at most.
pub(super) const OUTCOMES_MAX: usize = 1000;
const OUTCOMES: usize = 100;

/// An age in seconds: ten years at most, as long as records are kept.
type Age = Count<0, { 3650 * 24 * 3600 }>;

/// Which outcomes in doubt. Empty means all of them.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DoubtQuery {
    /// Only of this route or job.
    pub(super) operation: Option<String>,
    /// Only by this actor.
    pub(super) actor: Option<String>,
    /// Only of this instance.
    pub(super) holder: Option<String>,
    /// Only first claimed at least this many seconds ago.
    #[schemars(range(max = u32::MAX))]
    pub(super) older_than: Option<u32>,
    /// Only first claimed at most this many seconds ago.
    #[schemars(range(max = u32::MAX))]
    pub(super) younger_than: Option<u32>,
    /// Start after this outcome: the `next` of the page before.
    #[schemars(regex(pattern = "^[0-9]{1,15}-[0-9a-fA-F]{64}$"))]
    pub(super) after: Option<String>,
    /// How many at most; 100 unless asked otherwise, 1000 at most.
    #[schemars(range(max = u32::MAX))]
    pub(super) limit: Option<u32>,
}

/// What was found out about many outcomes in doubt.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SettleMany {
    /// What was found out.
    pub(super) outcome: Outcome,
    /// Only of this route or job.
    pub(super) operation: Option<String>,
    /// Only by this actor.
    pub(super) actor: Option<String>,
    /// Only of this instance.
    pub(super) holder: Option<String>,
    /// Only first claimed at least this many seconds ago.
    pub(super) older_than: Option<Age>,
    /// Only first claimed at most this many seconds ago.
    pub(super) younger_than: Option<Age>,
    /// Only these attempts, as the `attempt_id` of a record names them: what was looked at, and no later
    /// attempt at the same slot.
    #[schemars(
        length(max = OUTCOMES_MAX),
        inner(regex(pattern = ATTEMPT_ID))
    )]
    pub(super) attempts: Option<Vec<String>>,
    /// Only in these slots, whichever attempt is in doubt there now.
    #[schemars(length(max = OUTCOMES_MAX), inner(regex(pattern = "^[0-9a-fA-F]{64}$")))]
    pub(super) slots: Option<Vec<String>>,
    /// Changes nothing, and says what would be settled.
    #[serde(default)]
    pub(super) dry_run: bool,
    /// The operator's name.
    pub(super) by: Option<Name>,
    /// Why: kept in the audit trail.
    pub(super) reason: Reason,
}

/// What was found out about an outcome in doubt.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Outcome {
    /// It happened: retries get this answer.
    Happened(AnswerGiven),
    /// It did not happen: the next request with the key runs it.
    DidNotHappen,
    /// It shall be forgotten, whatever happened: the next request with the key runs it.
    Forget,
}

/// What was settled.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct SettledView {
    /// Whether nothing was changed, because only that was asked.
    pub dry_run: bool,
    /// Outcomes in doubt that were meant.
    pub matched: usize,
    /// Of these, settled.
    pub settled: usize,
    /// Of these, and of those that were named, not in doubt any more when their turn came.
    pub skipped: usize,
    /// What was not settled, or not as a whole; absent if that was nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<UnsettledView>,
    /// Whether there are more than one request settles: send it again.
    pub more: bool,
    /// The outcomes that were meant, the oldest first, as they were before.
    pub records: Vec<RecordView>,
}

/// An outcome that was not settled, or not as a whole.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct UnsettledView {
    /// Where it is.
    pub slot: String,
    /// Why.
    pub why: String,
}

impl SettledView {
    /// What became of the outcomes that were found, or what would.
    pub fn of(found: &[(Slot, Record)], all: Option<SettledAll>, more: bool) -> Self {
        let dry_run = all.is_none();
        let all = all.unwrap_or_default();
        let view = |(slot, record): &(Slot, Record)| RecordView::of(slot, record, false);
        let failed = |(slot, why): (Slot, String)| UnsettledView {
            slot: slot.to_string(),
            why,
        };
        Self {
            dry_run,
            matched: found.len(),
            settled: all.settled,
            skipped: all.skipped,
            failed: all.failed.into_iter().map(failed).collect(),
            more,
            records: found.iter().map(view).collect(),
        }
    }
}

pub(super) async fn list(
    State(admin): State<Admin>,
    Query(query): Query<DoubtQuery>,
) -> Result<Json<RecordsPage>, Problem> {
    let limit = query.limit.and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.unwrap_or(OUTCOMES).clamp(1, OUTCOMES_MAX);
    let mut meant = query.meant();
    meant.behind = query.after.as_deref().map(behind).transpose()?;
    let found = in_doubt(admin.operate()?, &meant, limit).await?;
    let next = found.last().filter(|_| found.len() == limit);
    let next = next.map(|(slot, it)| format!("{}-{slot}", it.created_at.as_millis()));
    let records = found
        .iter()
        .map(|(slot, it)| RecordView::of(slot, it, false));
    Ok(Json(RecordsPage {
        records: records.collect(),
        next,
    }))
}

pub(super) async fn settle_many(
    State(admin): State<Admin>,
    via: Via,
    Body(asked): Body<SettleMany>,
) -> Result<Json<SettledView>, Problem> {
    admin.settle_many(via, asked).await.map(Json)
}

/// Where a page starts.
fn behind(after: &str) -> Result<(Timestamp, Slot), Problem> {
    let wrong = || Problem::bad("`after` is what the page before ended with");
    let (millis, text) = after.split_once('-').ok_or_else(wrong)?;
    let millis = millis.parse().map_err(|_| wrong())?;
    Ok((Timestamp::from_millis(millis), slot(text)?))
}

impl DoubtQuery {
    pub(super) fn meant(&self) -> InDoubt {
        InDoubt {
            operation: self.operation.clone(),
            actor: self.actor.clone(),
            holder: self.holder.clone(),
            age_min: self.older_than.map(seconds),
            age_max: self.younger_than.map(seconds),
            behind: None,
        }
    }
}

impl SettleMany {
    fn meant(&self) -> InDoubt {
        InDoubt {
            operation: self.operation.clone(),
            actor: self.actor.clone(),
            holder: self.holder.clone(),
            age_min: self.older_than.map(|age| Duration::from_secs(age.get())),
            age_max: self.younger_than.map(|age| Duration::from_secs(age.get())),
            behind: None,
        }
    }
}

impl Outcome {
    fn settlement(&self) -> Result<(Settlement, Deed), Problem> {
        Ok(match self {
            Self::Happened(answer) => {
                let (response, keep_for) = answer.read()?;
                let status = response.status.as_u16();
                let settlement = Settlement::Happened(Arc::new(response), keep_for);
                (settlement, Deed::Resolved { status, keep_for })
            }
            Self::DidNotHappen => (Settlement::DidNotHappen, Deed::Discarded),
            Self::Forget => (Settlement::Forget, Deed::Forgot),
        })
    }
}

/// What a request names, and what of it is in doubt.
struct Named {
    count: usize,
    found: Vec<(Slot, Record)>,
}

impl Admin {
    pub(super) async fn settle_many(
        &self,
        via: Via,
        asked: SettleMany,
    ) -> Result<SettledView, Problem> {
        let (settlement, deed) = asked.outcome.settlement()?;
        let Named { count, mut found } = self.meant(&asked).await?;
        let more = found.len() > OUTCOMES_MAX;
        found.truncate(OUTCOMES_MAX);
        let gone = count.saturating_sub(found.len());
        let all = if asked.dry_run {
            None
        } else {
            let operated = via.operated(deed, asked.by, Some(asked.reason));
            let note = |slot: &Slot, record: &Record| {
                self.observers.operated(slot, record, operated.clone());
                Ok(())
            };
            let all = settle_all(self.operate()?, &found, &settlement, note).await;
            self.sizes.are_stale();
            Some(all)
        };
        let mut view = SettledView::of(&found, all, more);
        view.skipped += gone;
        match view.failed.first() {
            Some(first) if view.settled == 0 => {
                let why = format!("nothing was settled: {}", first.why);
                Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, why))
            }
            Some(_) | None => Ok(view),
        }
    }

    /// The outcomes that a request means, the oldest first, and one more if there are too many.
    async fn meant(&self, asked: &SettleMany) -> Result<Named, Problem> {
        let (operate, meant) = (self.operate()?, asked.meant());
        let attempts = parsed(asked.attempts.as_deref(), |text| {
            text.parse::<AttemptId>()
                .map_err(|error| Problem::bad(error.to_string()))
        })?;
        let slots = parsed(asked.slots.as_deref(), slot)?;
        if attempts.is_none() && slots.is_none() {
            let found = in_doubt(operate, &meant, OUTCOMES_MAX + 1).await?;
            let count = found.len();
            return Ok(Named { count, found });
        }
        // Both at once: an attempt at one of these slots.
        let named: Vec<(Slot, Option<AttemptId>)> = match (&attempts, &slots) {
            (Some(attempts), None) => attempts.iter().map(|it| (*it.slot(), Some(*it))).collect(),
            (Some(attempts), Some(slots)) => {
                let is_meant = |it: &&AttemptId| slots.contains(it.slot());
                let attempts = attempts.iter().filter(is_meant);
                attempts.map(|it| (*it.slot(), Some(*it))).collect()
            }
            (None, slots) => slots.iter().flatten().map(|it| (*it, None)).collect(),
        };
        let mut found = Vec::new();
        for (slot, attempt) in &named {
            let record = operate.get(slot).await?;
            let is_it = |it: &Record| attempt.is_none_or(|id| id == AttemptId::of(slot, it));
            let record = record.filter(|it| meant.admits(it) && is_it(it));
            found.extend(record.map(|it| (*slot, it)));
        }
        found.sort_by_key(|(slot, it)| (it.created_at.as_millis(), *slot));
        found.dedup_by_key(|(slot, _)| *slot);
        let mut named: Vec<_> = named.into_iter().map(|(slot, _)| slot).collect();
        named.sort_unstable();
        named.dedup();
        let count = named.len();
        Ok(Named { count, found })
    }
}

/// What a list names, if one was given.
fn parsed<T>(
    texts: Option<&[String]>,
    parse: impl Fn(&str) -> Result<T, Problem>,
) -> Result<Option<Vec<T>>, Problem> {
    let Some(texts) = texts else {
        return Ok(None);
    };
    if texts.len() > OUTCOMES_MAX {
        let why = format!("at most {OUTCOMES_MAX} outcomes are settled at a time");
        return Err(Problem::bad(why));
    }
    texts
        .iter()
        .map(|text| parse(text))
        .collect::<Result<_, _>>()
        .map(Some)
}
