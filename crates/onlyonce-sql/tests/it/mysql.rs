//! The MariaDB store: the whole conformance suite, each test on tables of its own.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Entropy, OsEntropy, Store, async_trait};
use onlyonce_sql::MySqlStore;
use onlyonce_testkit::conformance::TestBed;
use onlyonce_testkit::servers::{Shared, shared};

mod called;
mod crashing;
mod limits;
mod opening;
mod sharing;
mod trips;
mod within;

/// The name of tables that nobody else uses.
fn table() -> String {
    let mut random = [0; 8];
    OsEntropy::new().fill(&mut random);
    format!("t_{:016x}", u64::from_le_bytes(random))
}

/// The shared server, with tables that nobody else uses.
fn url() -> String {
    format!("{}?table={}", shared(Shared::MariaDb), table())
}

struct MySqlBed {
    store: Arc<MySqlStore>,
}

impl MySqlBed {
    async fn new() -> Self {
        let store = MySqlStore::open(&url()).await.unwrap();
        Self {
            store: Arc::new(store),
        }
    }
}

#[async_trait]
impl TestBed for MySqlBed {
    fn name(&self) -> &str {
        "mysql"
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as _
    }

    async fn advance(&self, by: Duration) {
        tokio::time::sleep(by).await;
    }
}

onlyonce_testkit::conformance_suite!(MySqlBed::new().await);
