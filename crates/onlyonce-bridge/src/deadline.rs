//! Tells a host that its handler has to be stopped: the engine dropped the future that waits for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

#[derive(Default)]
struct State {
    is_passed: bool,
    waker: Option<Waker>,
}

type Shared = Arc<Mutex<State>>;

/// The host's side.
pub(crate) struct Deadline(Shared);

impl Deadline {
    /// Wakes `waker` once nobody waits for the handler any more.
    pub(crate) fn when_passed(&self, waker: Waker) {
        let mut state = lock(&self.0);
        if state.is_passed {
            drop(state);
            waker.wake();
        } else {
            state.waker = Some(waker);
        }
    }
}

/// The side of the future that waits for the handler.
pub(crate) struct Waiting(Shared);

impl Waiting {
    pub(crate) fn start() -> (Self, Deadline) {
        let shared = Shared::default();
        (Self(Arc::clone(&shared)), Deadline(shared))
    }

    /// The handler has ended: there is nothing to stop.
    pub(crate) fn end(self) {
        lock(&self.0).waker = None;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.is_passed = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
