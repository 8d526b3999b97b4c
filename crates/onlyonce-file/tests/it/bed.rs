//! The file store on tokio's clock: paused on a runtime of one thread, real on any other.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Store, async_trait};
use onlyonce_file::FileStore;
use onlyonce_testkit::conformance::TestBed;
use tempfile::TempDir;

pub(super) struct FileBed {
    store: Arc<FileStore>,
    _folder: TempDir,
}

impl FileBed {
    pub(super) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::open(folder.path()).await.unwrap();
        Self {
            store: Arc::new(store),
            _folder: folder,
        }
    }
}

#[async_trait]
impl TestBed for FileBed {
    fn name(&self) -> &str {
        "file"
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
