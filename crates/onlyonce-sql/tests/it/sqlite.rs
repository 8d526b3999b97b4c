//! The SQLite store: the whole conformance suite, each test on a file of its own.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Store, async_trait};
use onlyonce_sql::SqliteStore;
use onlyonce_testkit::conformance::TestBed;
use tempfile::TempDir;

struct SqliteBed {
    store: Arc<SqliteStore>,
    /// Gone with the bed.
    _folder: TempDir,
}

impl SqliteBed {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("records.db").display());
        Self {
            store: Arc::new(SqliteStore::open(&url).await.unwrap()),
            _folder: folder,
        }
    }
}

#[async_trait]
impl TestBed for SqliteBed {
    fn name(&self) -> &str {
        "sqlite"
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as _
    }

    async fn advance(&self, by: Duration) {
        tokio::time::sleep(by).await;
    }
}

onlyonce_testkit::conformance_suite!(SqliteBed::new().await);

mod called;
mod clocks;
mod crashing;
mod losing;
mod opening;
mod sharing;
mod stepping;
mod within;
