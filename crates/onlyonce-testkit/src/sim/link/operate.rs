//! A link's operators' side: engines use only the agreement on a secret and the replay counts.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::operate::{Filter, Operate, Page, Resolved, Stats};
use onlyonce_core::{Record, Response, Slot, StoreError, StoreErrorKind, async_trait};

use super::{Link, NAME};
use crate::sim::clock::in_millis;

impl Link {
    /// Reaches the store, or learns that it answers nobody.
    async fn reach(&self) -> Result<&dyn Operate, StoreError> {
        self.process.gate.pass().await;
        if self.world.is_out() {
            return Err(StoreError::new(NAME, StoreErrorKind::Unavailable));
        }
        Ok(self.world.operators())
    }
}

#[async_trait]
impl Operate for Link {
    async fn get(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        self.reach().await?.get(slot).await
    }

    async fn get_durable(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        self.reach().await?.get_durable(slot).await
    }

    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<(Slot, Record)>, StoreError> {
        self.reach().await?.list(filter, page).await
    }

    async fn forget(&self, slot: &Slot) -> Result<bool, StoreError> {
        self.reach().await?;
        self.world.forget(slot).await
    }

    async fn extend(&self, slot: &Slot, extra: Duration) -> Result<bool, StoreError> {
        self.reach().await?;
        self.world.extend(slot, extra).await
    }

    async fn resolve(
        &self,
        slot: &Slot,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Resolved, StoreError> {
        self.reach().await?;
        let keep = in_millis(keep_for);
        self.world.resolve(slot, response, keep).await
    }

    async fn sweep(&self, records_max: usize) -> Result<usize, StoreError> {
        self.reach().await?.sweep(records_max).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.reach().await?.stats().await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.reach().await?.ping().await
    }

    async fn count_replays(&self, replays: &[(Slot, u64)]) -> Result<(), StoreError> {
        self.reach().await?;
        self.world.count_replays(replays).await
    }

    async fn agree(&self, name: &str, offer: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.reach().await?.agree(name, offer).await
    }

    async fn agreed(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.reach().await?.agreed(name).await
    }
}
