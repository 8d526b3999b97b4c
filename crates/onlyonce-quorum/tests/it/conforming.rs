//! The conformance suite on simulated servers, one of them gone from the start.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::{Store, async_trait};
use onlyonce_quorum::QuorumStore;
use onlyonce_testkit::conformance::TestBed;

use super::server::{Server, Weather, Wire};
use super::world::quorum;

pub(super) struct SimulatedBed {
    store: Arc<QuorumStore>,
    pub(super) wires: Vec<Arc<Wire>>,
}

impl SimulatedBed {
    pub(super) fn new(servers: usize, gone: usize) -> Self {
        let epoch = Arc::new(AtomicU64::new(1));
        let weather = Arc::new(Mutex::new(Weather::default()));
        let servers: Vec<_> = (0..servers).map(|_| Server::new()).collect();
        for server in &servers[..gone] {
            server.shelf.lock().unwrap().is_up = false;
        }
        let wires = servers.iter().enumerate();
        let wires = wires.map(|(nth, it)| Wire::new(it, &epoch, &weather, nth as u64));
        let wires: Vec<_> = wires.collect();
        Self {
            store: quorum(&wires, 1),
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

mod of_three {
    use super::*;
    onlyonce_testkit::conformance_suite!(SimulatedBed::new(3, 0));
}
