//! The operators' side of a sealed store. What is readable goes straight through; answers are
//! opened on their way out and sealed on their way in.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::operate::{Filter, Page, Resolved, Stats};
use onlyonce_core::{Operate, Record, Response, Slot, StoreError, async_trait};

use crate::wrap::operators;

use super::seal::Bound;
use super::{NAME, SealError, Sealed, corrupt};

#[async_trait]
impl Operate for Sealed {
    async fn get(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        let found = operators(&*self.inner, NAME)?.get(slot).await?;
        found.map(|it| self.opened(slot, None, it)).transpose()
    }

    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<(Slot, Record)>, StoreError> {
        let found = operators(&*self.inner, NAME)?.list(filter, page).await?;
        let opened = found.into_iter().map(|(slot, record)| {
            let record = self.opened(&slot, None, record)?;
            Ok((slot, record))
        });
        opened.collect()
    }

    async fn forget(&self, slot: &Slot) -> Result<bool, StoreError> {
        operators(&*self.inner, NAME)?.forget(slot).await
    }

    async fn extend(&self, slot: &Slot, extra: Duration) -> Result<bool, StoreError> {
        operators(&*self.inner, NAME)?.extend(slot, extra).await
    }

    /// Looks first whose record it is, because an answer is sealed for one token; and again
    /// afterwards, because the record may have changed hands in between.
    async fn resolve(
        &self,
        slot: &Slot,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Resolved, StoreError> {
        let inside = operators(&*self.inner, NAME)?;
        let Some(found) = inside.get(slot).await? else {
            return Ok(Resolved::Absent);
        };
        let bound = Bound {
            slot,
            token: &found.token,
            fingerprint: self.ring.first().cover().off(slot, found.fingerprint),
        };
        let sealed = self.seal_bound(&bound, response);
        match inside.resolve(slot, &sealed, keep_for).await? {
            Resolved::Found(record) => Ok(Resolved::Found(self.opened(slot, None, record)?)),
            Resolved::Absent => Ok(Resolved::Absent),
            Resolved::Stored => match inside.get(slot).await {
                Ok(Some(now)) if now.token != found.token => {
                    Err(corrupt(SealError::ChangedHands { slot: *slot }))
                }
                Ok(_) | Err(_) => Ok(Resolved::Stored),
            },
        }
    }

    async fn sweep(&self, records_max: usize) -> Result<usize, StoreError> {
        operators(&*self.inner, NAME)?.sweep(records_max).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        operators(&*self.inner, NAME)?.stats().await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        operators(&*self.inner, NAME)?.ping().await
    }

    async fn recheck(&self) -> Result<(), StoreError> {
        operators(&*self.inner, NAME)?.recheck().await
    }

    fn connected(&self) -> u64 {
        self.inner.operate().map_or(0, Operate::connected)
    }

    async fn count_replays(&self, replays: &[(Slot, u64)]) -> Result<(), StoreError> {
        operators(&*self.inner, NAME)?.count_replays(replays).await
    }

    async fn agree(&self, name: &str, offer: &[u8]) -> Result<Vec<u8>, StoreError> {
        operators(&*self.inner, NAME)?.agree(name, offer).await
    }

    async fn agreed(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        operators(&*self.inner, NAME)?.agreed(name).await
    }
}
