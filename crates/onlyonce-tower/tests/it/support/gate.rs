//! A gate in front of a handler: it has started, and goes on only when told.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Where handlers wait.
pub(crate) struct Gate {
    entered: Semaphore,
    open: Semaphore,
}

impl Gate {
    /// A closed gate.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            entered: Semaphore::new(0),
            open: Semaphore::new(0),
        })
    }

    /// What a handler does here.
    pub(super) async fn pass(&self) {
        self.entered.add_permits(1);
        let _open = self.open.acquire().await;
    }

    /// Returns when one more handler stands at the gate.
    pub(crate) async fn entered(&self) {
        self.entered
            .acquire()
            .await
            .expect("a gate is never closed for good")
            .forget();
    }

    /// Lets everybody through, now and later.
    pub(crate) fn open(&self) {
        self.open.add_permits(1);
    }
}
