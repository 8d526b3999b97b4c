//! What came of an attempt, for the one who watches a queue: a progress bar, a log.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::OperationId;
use super::rows::Row;
use crate::cause::Cause;
use crate::operation::Operation;

/// An attempt that is over, and what is on disk about it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Attempted {
    /// The operation's name in the queue.
    pub id: OperationId,
    /// The operation, as it was sent.
    pub operation: Operation,
    /// How often it was sent, this time included.
    pub attempts: u32,
    /// What came of it.
    pub outcome: AttemptOutcome,
}

/// What came of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The operation is done.
    Done {
        /// The status of the service's answer.
        status: u16,
        /// Whether the service had kept it from an earlier attempt.
        is_replayed: bool,
    },
    /// It will be sent again.
    Later {
        /// Why it is not done.
        cause: Cause,
        /// What the service or the network said.
        detail: String,
        /// After which time.
        again_in: Duration,
    },
    /// It failed for good.
    Failed {
        /// Why.
        cause: Cause,
        /// What the service or the network said.
        detail: String,
    },
}

impl Attempted {
    pub(super) fn new(row: &Row, outcome: AttemptOutcome) -> Self {
        Self {
            id: row.id,
            operation: row.operation.clone(),
            attempts: row.attempts.saturating_add(1),
            outcome,
        }
    }
}

type Observe = dyn Fn(&Attempted) + Send + Sync;

/// The one who watches, if there is one.
#[derive(Default)]
pub(super) struct Observer(RwLock<Option<Arc<Observe>>>);

impl Observer {
    pub(super) fn set(&self, observer: impl Fn(&Attempted) + Send + Sync + 'static) {
        let mut place = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *place = Some(Arc::new(observer));
    }

    pub(super) fn tell(&self, attempted: &[Attempted]) {
        let observer = self
            .0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(observer) = observer {
            for one in attempted {
                observer(one);
            }
        }
    }
}
