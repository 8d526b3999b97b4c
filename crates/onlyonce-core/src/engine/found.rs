//! When the end of a claim finds its slot finished or taken: what is stored is the answer.

use std::sync::Arc;
use std::time::Duration;

use crate::event::{Event, Verb};
use crate::record::{Record, Replay};
use crate::response::Response;
use crate::store::{Completed, Lease, Receipt, Release, Released};

use super::Engine;
use super::begin::{in_progress, mismatched};
use super::call::{Answer, Call};
use super::finish::{in_doubt, not_stored};
use super::judge::{Met, judge_end};

/// How a claim was to end when the store turned out to hold something else.
#[derive(Clone, Copy)]
pub(super) enum End {
    /// With an answer, kept for so long.
    Complete(Duration),
    /// Without one.
    Release(Release),
}

impl Engine {
    /// The slot holds something else: our own earlier complete, or what overtook us. Waits for
    /// the latter to finish, asking again by the verb that found it.
    pub(super) async fn found(
        &self,
        call: &Call,
        lease: &Lease,
        response: Arc<Response>,
        end: End,
        mut record: Record,
    ) -> Answer {
        let started = self.now();
        loop {
            match judge_end(&record, call, lease) {
                Met::Ours(replay) => {
                    return self.found_own(call, response, &record, replay);
                }
                Met::Overtaken(replay) => {
                    self.emit(call, &Event::Overtaken);
                    return Answer::Replayed(replay);
                }
                Met::Mismatch => return Answer::Refused(mismatched(&record, call)),
                Met::InDoubt => return Answer::Refused(in_doubt(call)),
                Met::Running => {}
            }
            let patience = call.policy.duplicate.patience();
            let left = patience.saturating_sub(self.now().saturating_sub(started));
            if left.is_zero() || self.is_closing() {
                return Answer::Refused(in_progress(call));
            }
            self.await_change(call, &record, left).await;
            // Repeated with our dead token, both verbs only read.
            let again = match end {
                End::Complete(keep_for) => {
                    self.inner.store.complete(lease, &response, keep_for).await
                }
                End::Release(why) => {
                    self.inner
                        .store
                        .release(lease, why)
                        .await
                        .map(|released| match released {
                            Released::Found(record) => Completed::Found(record),
                            Released::Ended => Completed::Absent,
                        })
                }
            };
            match again {
                Ok(Completed::Found(now)) => record = now,
                Ok(Completed::Stored(receipt)) => return self.stored(call, response, receipt),
                Ok(Completed::Absent) if matches!(end, End::Release(_)) => {
                    return Answer::Ran {
                        response,
                        receipt: None,
                        in_doubt: false,
                        as_returned: true,
                    };
                }
                Ok(Completed::Absent) => return Answer::Refused(not_stored(call)),
                Err(error) => self.store_failed(call, Verb::Complete, 1, &error),
            }
        }
    }

    fn found_own(
        &self,
        call: &Call,
        response: Arc<Response>,
        record: &Record,
        replay: Replay,
    ) -> Answer {
        // Our own: the reply was lost, or the handler completed it in its own transaction.
        let is_as_returned = *replay.response == *response;
        // How long it took, a handler that stored it could not know to the end: we do.
        let mut answer = self.completed_by_handler(call, record, replay, response.took);
        if let Answer::Ran { as_returned, .. } = &mut answer {
            *as_returned = is_as_returned;
        }
        answer
    }

    /// What is stored is the answer of this very attempt, whatever became of its handler since.
    pub(super) fn completed_by_handler(
        &self,
        call: &Call,
        record: &Record,
        replay: Replay,
        took: Duration,
    ) -> Answer {
        let receipt = Receipt {
            created_at: record.created_at,
            completed_at: record.completed_at.unwrap_or(record.created_at),
            expires_at: record.expires_at,
        };
        let took = took.max(replay.response.took);
        self.emit_stored(call, &replay.response, took, &receipt);
        Answer::Ran {
            response: replay.response,
            receipt: Some(receipt),
            in_doubt: false,
            as_returned: false,
        }
    }
}
