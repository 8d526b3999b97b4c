//! Operations that lapsed are settled without waiting for a retry, on the routes that ask for it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use onlyonce_core::engine::settler::Settler;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// One route's background.
pub(crate) struct Chore {
    pub(crate) route: String,
    pub(crate) every: Duration,
    pub(crate) settler: Settler,
}

/// The backgrounds of the settings in force, in tasks that end when they are replaced or this is dropped.
pub(crate) struct Settling {
    runtime: Handle,
    /// Its tasks run until this is dropped.
    alive: Mutex<watch::Sender<()>>,
}

impl Settling {
    /// Starts them on this runtime.
    pub(crate) fn start(chores: Vec<Chore>) -> Self {
        let runtime = Handle::current();
        let alive = Mutex::new(spawn(&runtime, chores));
        Self { runtime, alive }
    }

    /// Ends those that run, after the round that they are in, and starts these.
    pub(crate) fn replace(&self, chores: Vec<Chore>) {
        let alive = spawn(&self.runtime, chores);
        *self.alive.lock().unwrap_or_else(PoisonError::into_inner) = alive;
    }
}

fn spawn(runtime: &Handle, chores: Vec<Chore>) -> watch::Sender<()> {
    let (alive, ended) = watch::channel(());
    for chore in chores {
        runtime.spawn(chore.run(ended.clone()));
    }
    alive
}

impl Chore {
    async fn run(mut self, mut ended: watch::Receiver<()>) {
        let mut pause = self.settler.first();
        loop {
            tokio::select! {
                biased;
                _ = ended.changed() => return,
                () = tokio::time::sleep(pause) => {}
            }
            if let Err(error) = self.settler.round().await {
                tracing::warn!(
                    target: "onlyonce",
                    event = "idempotency.background.failed",
                    route = self.route,
                    %error,
                    "operations that lapsed could not be read: none is settled in the background now"
                );
            }
            pause = self.every;
        }
    }
}
