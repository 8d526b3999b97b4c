//! Steps of an earlier operation. A key may be used again once its answer has expired, and the steps
//! that led to that answer are kept a little longer than it: they are none of the new operation's.

use std::time::Duration;

use crate::operate::Operate;
use crate::record::Record;
use crate::refusal::Reason;
use crate::store::{Lease, Renewed, StoreError};

use super::super::Engine;
use super::super::call::{Call, Verdict};
use super::kept_longer;

/// Times of records are told in whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(2);

/// Whether what was found at a step's slot may be from before its operation began.
pub(super) fn may_be_former(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Replay(_) => true,
        Verdict::Refuse(refusal) => {
            matches!(refusal.reason, Reason::Mismatch | Reason::OutcomeUnknown)
        }
        Verdict::Execute(_) | Verdict::PassThrough(_) => false,
    }
}

impl Engine {
    /// Forgets what an earlier operation with the key of `parent` left of this step; returns whether it
    /// left something. Only the holder of the operation does so: `lease` must be its own still.
    pub(super) async fn forget_former(
        &self,
        parent: &Call,
        lease: &Lease,
        step: &Call,
    ) -> Result<bool, StoreError> {
        let Some(operate) = self.inner.store.operate() else {
            return Ok(false);
        };
        let mut is_forgotten = false;
        for step in [Some(step), step.former.as_deref()].into_iter().flatten() {
            let Some(record) = operate.get(&step.slot).await? else {
                continue;
            };
            if record.keep_left > kept_longer(parent) {
                continue;
            }
            let age = age_of(operate, parent).await?;
            if !age.is_some_and(|age| is_former(&record, parent, age)) {
                continue;
            }
            match self.inner.store.renew(lease, lease.lease_for).await? {
                Renewed::Kept => is_forgotten |= operate.forget(&step.slot).await?,
                Renewed::Lost | Renewed::Busy => return Ok(is_forgotten),
            }
        }
        Ok(is_forgotten)
    }
}

/// How long ago an operation was first claimed, under either secret.
async fn age_of(operate: &dyn Operate, parent: &Call) -> Result<Option<Duration>, StoreError> {
    let mut age: Option<Duration> = None;
    for call in [Some(parent), parent.former.as_deref()]
        .into_iter()
        .flatten()
    {
        let record = operate.get(&call.slot).await?;
        age = age.max(record.map(|it| it.age()));
    }
    Ok(age)
}

/// Whether the record of a step was of no more use when its operation was first claimed, `age` ago: by
/// how long it is kept, and by when it ended. An operator may have settled it for a shorter time.
fn is_former(step: &Record, parent: &Call, age: Duration) -> bool {
    let kept_then = step.keep_left.saturating_add(age);
    let ended_at = step.completed_at.unwrap_or(step.created_at);
    let ended = step
        .expires_at
        .since(ended_at)
        .saturating_sub(step.keep_left);
    let ended_before = ended.saturating_add(ROUNDING).saturating_sub(age);
    kept_then <= kept_longer(parent).saturating_add(ROUNDING) && ended_before >= parent.keep_for
}
