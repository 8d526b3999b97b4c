//! Waiting for something to become true, with an end.

use std::thread;
use std::time::{Duration, Instant};

use super::ServerError;

/// How long anything may take before it counts as failed. Far more than it takes on a busy
/// machine, so that no test is decided by it.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);
/// How long a server that nobody needs any more may take to end by itself.
const BRIEF: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// A point in time after which we stop waiting.
pub(super) struct Deadline(Instant);

impl Deadline {
    pub(super) fn new() -> Self {
        Self(now() + PATIENCE)
    }

    pub(super) fn brief() -> Self {
        Self(now() + BRIEF)
    }

    /// Waits a little; false once the time is over.
    pub(super) fn wait(&self) -> bool {
        thread::sleep(PAUSE);
        now() < self.0
    }
}

/// Asks until the answer is `Ok`, and passes on the last `Err` when the time is over.
pub(super) fn until<T>(
    what: &str,
    mut ask: impl FnMut() -> Result<T, String>,
) -> Result<T, ServerError> {
    let deadline = Deadline::new();
    loop {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(_) if deadline.wait() => {}
            Err(seen) => {
                let what = what.to_owned();
                return Err(ServerError::Patience { what, seen });
            }
        }
    }
}

/// The machine's own clock: a server does not run on virtual time.
#[expect(
    clippy::disallowed_methods,
    reason = "how long a real server takes is real time, which no clock of ours can move"
)]
pub(super) fn now() -> Instant {
    Instant::now()
}
