//! The operators' side of a sealed store. What is readable goes straight through; answers are
//! opened on their way out and sealed on their way in.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::operate::{Ended, Filter, Newest, Page, Resolved, Swept};
use onlyonce_core::{Operate, Record, Response, Slot, StoreError, async_trait};

use crate::wrap::{forward, operators};

use super::seal::{self, Bound};
use super::{NAME, SealError, Sealed, corrupt};

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Operate for Sealed {
    async fn get(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        let found = operators(&*self.inner, NAME)?.get(slot).await?;
        found.map(|it| self.opened(slot, None, it)).transpose()
    }

    async fn get_durable(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        let found = operators(&*self.inner, NAME)?.get_durable(slot).await?;
        found.map(|it| self.opened(slot, None, it)).transpose()
    }

    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<(Slot, Record)>, StoreError> {
        let found = operators(&*self.inner, NAME)?.list(filter, page).await?;
        self.all_opened(found)
    }

    async fn newest(
        &self,
        filter: &Filter,
        page: &Newest,
    ) -> Result<Vec<(Slot, Record)>, StoreError> {
        let found = operators(&*self.inner, NAME)?.newest(filter, page).await?;
        self.all_opened(found)
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

    async fn discard(&self, slot: &Slot) -> Result<Resolved, StoreError> {
        match operators(&*self.inner, NAME)?.discard(slot).await? {
            Resolved::Found(record) => Ok(Resolved::Found(self.opened(slot, None, record)?)),
            done @ (Resolved::Stored | Resolved::Absent) => Ok(done),
        }
    }

    /// What cannot be opened any more is told without its answer: it is gone either way.
    async fn sweep_ended(&self, records_max: usize) -> Result<Swept, StoreError> {
        let mut swept = operators(&*self.inner, NAME)?
            .sweep_ended(records_max)
            .await?;
        for ended in &mut swept.ended {
            self.open_ended(ended);
        }
        Ok(swept)
    }

    forward!(straight: forget, extend, sweep, stats, ping, recheck, count_replays, number_replays, agree, agreed);
    forward!(straight: connected, connections, is_on_a_server, hands_over_ended);
}

impl Sealed {
    fn open_ended(&self, ended: &mut Ended) {
        let stored = ended.fingerprint;
        ended.fingerprint = self.ring.first().cover().off(&ended.slot, stored);
        let Some(response) = ended.response.take() else {
            return;
        };
        if let Ok(opened) = seal::open(&self.ring, &ended.slot, &ended.token, stored, &response) {
            ended.fingerprint = opened.fingerprint;
            ended.response = Some(opened.response);
        }
    }

    fn all_opened(&self, found: Vec<(Slot, Record)>) -> Result<Vec<(Slot, Record)>, StoreError> {
        let opened = found.into_iter().map(|(slot, record)| {
            let record = self.opened(&slot, None, record)?;
            Ok((slot, record))
        });
        opened.collect()
    }
}
