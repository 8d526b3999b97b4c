//! What a store keeps for one server: its connections at hand, and how much may be asked of it at once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::lines::Line;
use super::standing::Chosen;
use super::trouble::{Then, Trouble};

/// Replaced as a whole when another server takes writes: statements that hang on the former one hold no
/// place of the new one, and no connection to the former one is used again.
pub(super) struct Places {
    /// Which of several servers.
    pub(super) chosen: Option<Chosen>,
    pub(super) idle: Mutex<Vec<Line>>,
    /// A statement keeps its place until the server has ended it, also after its caller gave up:
    /// what the server can be made to do at the same time is bounded. Closed when it is replaced.
    pub(super) free: Arc<Semaphore>,
    /// Held while a statement is cancelled, on one more connection: never on two.
    pub(super) cancelling: tokio::sync::Mutex<()>,
}

impl Places {
    pub(super) fn new(chosen: Option<Chosen>, connections: usize) -> Arc<Self> {
        Arc::new(Self {
            chosen,
            idle: Mutex::default(),
            free: Arc::new(Semaphore::new(connections)),
            cancelling: tokio::sync::Mutex::default(),
        })
    }

    /// Waits for a place.
    pub(super) async fn turn(&self, at_most: Duration) -> Result<OwnedSemaphorePermit, Trouble> {
        let turn = timeout(at_most, Arc::clone(&self.free).acquire_owned()).await;
        let turn = turn.map_err(|_| Trouble::late())?;
        turn.map_err(|_| moved())
    }
}

/// Another server is to be asked: what may be repeated is asked there.
pub(super) fn moved() -> Trouble {
    Trouble::unavailable(Then::Reconnect, "another server takes writes now")
}
