//! What a worker's verbs pass on their way to the store and back. For a worker that shares its
//! process with others it is how it is cut off or dies.

use tokio::sync::watch;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stand {
    Open,
    Shut,
    Gone,
}

pub(crate) struct Gate(watch::Sender<Stand>);

impl Gate {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(Stand::Open))
    }

    /// Nothing passes from here until it opens.
    pub(crate) fn shut(&self) {
        self.set(Stand::Shut);
    }

    pub(crate) fn open(&self) {
        self.set(Stand::Open);
    }

    /// Nothing passes any more.
    pub(crate) fn destroy(&self) {
        self.0.send_replace(Stand::Gone);
    }

    fn set(&self, to: Stand) {
        self.0.send_if_modified(|stand| {
            let changes = *stand != Stand::Gone && *stand != to;
            if changes {
                *stand = to;
            }
            changes
        });
    }

    /// Waits until the gate is open: for ever, once it is gone.
    pub(crate) async fn pass(&self) {
        let mut stand = self.0.subscribe();
        // The sender is in `self`: there is always one to wait for.
        let _ = stand.wait_for(|stand| *stand == Stand::Open).await;
    }
}
