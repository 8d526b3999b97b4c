//! Outcomes in doubt: listed, and settled many at a time.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use onlyonce_core::operate::{InDoubt, Settled, Settlement, in_doubt, settle};
use onlyonce_core::{Deed, Record, Slot};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Admin;
use super::extract::{Body, Query};
use super::operator::{Name, Reason, Via};
use super::problem::Problem;
use super::records::{self, AnswerGiven, RecordsPage, seconds, slot};
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
    /// Only these.
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
    /// Of these, not in doubt any more when their turn came.
    pub skipped: usize,
    /// Whether there are more than one request settles: send it again.
    pub more: bool,
    /// The outcomes that were meant, the oldest first, as they were before.
    pub records: Vec<RecordView>,
}

pub(super) async fn list(
    State(admin): State<Admin>,
    Query(query): Query<DoubtQuery>,
) -> Result<Json<RecordsPage>, Problem> {
    let limit = query.limit.and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.unwrap_or(OUTCOMES).clamp(1, OUTCOMES_MAX);
    let found = in_doubt(admin.operate()?, &query.meant(), limit).await?;
    let records = found
        .iter()
        .map(|(slot, it)| RecordView::of(slot, it, false));
    Ok(Json(RecordsPage {
        records: records.collect(),
        next: None,
    }))
}

pub(super) async fn settle_many(
    State(admin): State<Admin>,
    via: Via,
    Body(asked): Body<SettleMany>,
) -> Result<Json<SettledView>, Problem> {
    admin.settle_many(via, asked).await.map(Json)
}

impl DoubtQuery {
    pub(super) fn meant(&self) -> InDoubt {
        InDoubt {
            operation: self.operation.clone(),
            actor: self.actor.clone(),
            holder: self.holder.clone(),
            age_min: self.older_than.map(seconds),
            age_max: self.younger_than.map(seconds),
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
            Self::Forget => (Settlement::DidNotHappen, Deed::Forgot),
        })
    }
}

impl Admin {
    pub(super) async fn settle_many(
        &self,
        via: Via,
        asked: SettleMany,
    ) -> Result<SettledView, Problem> {
        let (settlement, deed) = asked.outcome.settlement()?;
        let mut found = self.meant(&asked).await?;
        let more = found.len() > OUTCOMES_MAX;
        found.truncate(OUTCOMES_MAX);
        let mut settled = 0;
        if !asked.dry_run {
            let operated = via.operated(deed, asked.by, Some(asked.reason));
            for (slot, record) in &found {
                if deed == Deed::Forgot {
                    records::forget_steps(self.operate()?, slot, record).await?;
                }
                if settle(self.operate()?, slot, &settlement).await? == Settled::Done {
                    settled += 1;
                    self.observers.operated(slot, record, operated.clone());
                }
            }
            self.sizes.are_stale();
        }
        let view = |(slot, record): &(Slot, Record)| RecordView::of(slot, record, false);
        Ok(SettledView {
            dry_run: asked.dry_run,
            matched: found.len(),
            settled,
            skipped: if asked.dry_run {
                0
            } else {
                found.len() - settled
            },
            more,
            records: found.iter().map(view).collect(),
        })
    }

    /// The outcomes that a request means, and one more if there are too many.
    async fn meant(&self, asked: &SettleMany) -> Result<Vec<(Slot, Record)>, Problem> {
        let (operate, meant) = (self.operate()?, asked.meant());
        let Some(slots) = &asked.slots else {
            return Ok(in_doubt(operate, &meant, OUTCOMES_MAX + 1).await?);
        };
        if slots.len() > OUTCOMES_MAX {
            let why = format!("at most {OUTCOMES_MAX} slots are settled at a time");
            return Err(Problem::bad(why));
        }
        let mut found = Vec::new();
        for text in slots {
            let slot = slot(text)?;
            let record = operate.get(&slot).await?;
            found.extend(record.filter(|it| meant.admits(it)).map(|it| (slot, it)));
        }
        found.sort_by_key(|(slot, _)| *slot);
        found.dedup_by_key(|(slot, _)| *slot);
        Ok(found)
    }
}
