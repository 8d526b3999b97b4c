//! The one clock of a run, and who notices when the machine stands still.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use onlyonce_core::{Clock as _, SystemClock};

use crate::history::{Micros, Stall};

const BEAT: Duration = Duration::from_millis(50);
/// A beat that comes later than this is a stall.
const LATE: Micros = 500_000;

/// The clock of a run.
#[derive(Clone, Default)]
pub(crate) struct Watch {
    clock: Arc<SystemClock>,
    stalls: Arc<Mutex<Vec<Stall>>>,
}

impl Watch {
    /// A clock that notices stalls from now on, for as long as it is used.
    pub(crate) fn start() -> Self {
        let watch = Self::default();
        let (clock, stalls) = (Arc::clone(&watch.clock), Arc::downgrade(&watch.stalls));
        thread::spawn(move || {
            let mut from = micros(clock.now());
            loop {
                thread::sleep(BEAT);
                let to = micros(clock.now());
                let Some(stalls) = stalls.upgrade() else {
                    return;
                };
                if to - from > LATE {
                    let mut stalls = stalls.lock().unwrap_or_else(PoisonError::into_inner);
                    stalls.push(Stall { from, to });
                }
                from = to;
            }
        });
        watch
    }

    pub(crate) fn now(&self) -> Micros {
        micros(self.clock.now())
    }

    pub(crate) fn stalls(&self) -> Vec<Stall> {
        let stalls = self.stalls.lock().unwrap_or_else(PoisonError::into_inner);
        stalls.clone()
    }
}

fn micros(moment: Duration) -> Micros {
    u64::try_from(moment.as_micros()).unwrap_or(u64::MAX)
}
