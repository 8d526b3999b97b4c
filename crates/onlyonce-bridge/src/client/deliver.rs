//! Sending what is queued, in the background, and the log of it.

use std::time::Duration;

use onlyonce_client::{AttemptOutcome, Attempted, Queue, QueueError};
use tokio::time::sleep;
use tracing::{info, warn};

/// How soon it is tried to go on where another process was sending.
const TAKE_OVER_AFTER: Duration = Duration::from_secs(1);
/// The pause after the queue itself failed.
const FAILED_PAUSE: Duration = Duration::from_secs(5);

/// Sends for as long as it is polled.
pub(super) async fn run(queue: Queue) {
    loop {
        let pause = match queue.run().await {
            Ok(never) => match never {},
            Err(QueueError::Sending { .. }) => TAKE_OVER_AFTER,
            Err(error) => {
                warn!(target: "onlyonce", %error, "queue.stopped");
                FAILED_PAUSE
            }
        };
        sleep(pause).await;
    }
}

/// A line per attempt.
pub(super) fn log(attempted: &Attempted) {
    let (id, attempts) = (attempted.id.number(), attempted.attempts);
    match &attempted.outcome {
        AttemptOutcome::Done {
            status,
            is_replayed,
        } => info!(target: "onlyonce", id, attempts, status, is_replayed, "queue.done"),
        AttemptOutcome::Later {
            cause,
            detail,
            again_in,
        } => {
            let cause = cause.name();
            info!(target: "onlyonce", id, attempts, cause, detail, ?again_in, "queue.later");
        }
        AttemptOutcome::Failed { cause, detail } => {
            let cause = cause.name();
            warn!(target: "onlyonce", id, attempts, cause, detail, "queue.failed");
        }
    }
}
