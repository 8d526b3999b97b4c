//! What an operator does to one half of an operation is done to both.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{Rotating, is_in_doubt};
use crate::operate::{Connections, Filter, Operate, Page, Resolved, Stats};
use crate::record::Record;
use crate::response::Response;
use crate::slot::Slot;
use crate::store::StoreError;

impl Rotating {
    fn operators(&self) -> &dyn Operate {
        let operators = self.inner.operate();
        operators.expect("asked only of a store that has an operators' side")
    }

    /// What is in a slot, and where its other half is, if it has one.
    async fn halves(&self, slot: &Slot) -> Result<Option<(Record, Option<Slot>)>, StoreError> {
        let record = self.operators().get(slot).await?;
        Ok(record.map(|record| {
            let twin = record.meta.twin;
            (record, twin)
        }))
    }
}

#[async_trait]
impl Operate for Rotating {
    async fn get(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        self.operators().get(slot).await
    }

    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<(Slot, Record)>, StoreError> {
        self.operators().list(filter, page).await
    }

    async fn forget(&self, slot: &Slot) -> Result<bool, StoreError> {
        if let Some((_, Some(twin))) = self.halves(slot).await? {
            self.operators().forget(&twin).await?;
        }
        self.operators().forget(slot).await
    }

    async fn extend(&self, slot: &Slot, extra: Duration) -> Result<bool, StoreError> {
        if let Some((_, Some(twin))) = self.halves(slot).await? {
            self.operators().extend(&twin, extra).await?;
        }
        self.operators().extend(slot, extra).await
    }

    /// If one half has an answer already, the other gets that one.
    async fn resolve(
        &self,
        slot: &Slot,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Resolved, StoreError> {
        let operators = self.operators();
        let Some((record, Some(twin))) = self.halves(slot).await? else {
            return operators.resolve(slot, response, keep_for).await;
        };
        let Some(other) = operators.get(&twin).await? else {
            return operators.resolve(slot, response, keep_for).await;
        };
        let is_one = record.token == other.token || record.fingerprint == other.fingerprint;
        if !is_one {
            return operators.resolve(slot, response, keep_for).await;
        }
        if let Some(stored) = other.response() {
            operators.resolve(slot, stored, other.keep_left).await?;
            return Ok(Resolved::Found(other));
        }
        let resolved = operators.resolve(slot, response, keep_for).await?;
        if let Resolved::Stored = resolved
            && is_in_doubt(&other)
        {
            operators.resolve(&twin, response, keep_for).await?;
        }
        Ok(resolved)
    }

    async fn sweep(&self, records_max: usize) -> Result<usize, StoreError> {
        self.operators().sweep(records_max).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.operators().stats().await
    }

    fn connections(&self) -> Option<Connections> {
        self.operators().connections()
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.operators().ping().await
    }

    async fn recheck(&self) -> Result<(), StoreError> {
        self.operators().recheck().await
    }

    fn connected(&self) -> u64 {
        self.operators().connected()
    }

    async fn count_replays(&self, replays: &[(Slot, u64)]) -> Result<(), StoreError> {
        self.operators().count_replays(replays).await
    }

    async fn number_replays(
        &self,
        replays: &[(Slot, u64)],
    ) -> Result<Vec<(Slot, u64)>, StoreError> {
        self.operators().number_replays(replays).await
    }

    async fn agree(&self, name: &str, offer: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.operators().agree(name, offer).await
    }

    async fn agreed(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.operators().agreed(name).await
    }
}
