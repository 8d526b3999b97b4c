//! The conformance suite on simulated servers: on all of them, and without as many as may be gone.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::{Store, async_trait};
use onlyonce_quorum::{QuorumStore, SharedEpoch};
use onlyonce_testkit::conformance::TestBed;

use super::server::{Flaw, Server, Weather, Wire};
use super::world::quorum;

pub(super) struct SimulatedBed {
    store: Arc<QuorumStore>,
    pub(super) wires: Vec<Arc<Wire>>,
}

impl SimulatedBed {
    pub(super) fn new(servers: usize, gone: usize) -> Self {
        let epoch = Arc::new(SharedEpoch::default());
        let weather = Arc::new(Mutex::new(Weather::default()));
        let servers: Vec<_> = (0..servers).map(Server::new).collect();
        for server in &servers[..gone] {
            server.shelf.lock().unwrap().is_up = false;
        }
        let wires = servers.iter().enumerate();
        let wires = wires.map(|(nth, it)| Wire::new(it, &epoch, &weather, Flaw::None, nth as u64));
        let wires: Vec<_> = wires.collect();
        Self {
            store: quorum(&wires, &epoch, 1),
            wires,
        }
    }
}

#[async_trait]
impl TestBed for SimulatedBed {
    fn name(&self) -> &str {
        "simulated quorum"
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as _
    }

    async fn advance(&self, by: Duration) {
        tokio::time::sleep(by).await;
    }

    fn expires_by_itself(&self) -> bool {
        true
    }
}

mod of_five_without_two {
    use super::*;
    onlyonce_testkit::conformance_suite!(SimulatedBed::new(5, 2));
}

mod of_three {
    use super::*;
    onlyonce_testkit::conformance_suite!(SimulatedBed::new(3, 0));
}
