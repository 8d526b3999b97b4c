//! The operators' side: reads go to the disk by themselves, changes through the writer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::operate::{Filter, Newest, NewestPage, Page, Resolved, StateName, Stats, Swept};
use onlyonce_core::{Operate, Record, Response, Slot, StoreError, StoreErrorKind, async_trait};

use super::index::{Indexed, SHARDS, Tag};
use super::shared::{self, Shared};
use super::sweeper::Nudge;
use super::writer::{Answer, Question};
use super::{FileStore, NAME, check_size, lock};

#[async_trait]
impl Operate for FileStore {
    async fn get(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        self.shared.check()?;
        let entry = self.shared.entry(slot)?;
        Ok(entry.get(self.shared.now()))
    }

    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<(Slot, Record)>, StoreError> {
        self.shared.check()?;
        let (filter, page) = (filter.clone(), *page);
        self.aside(move |shared| shared.list(&filter, &page)).await
    }

    /// Reads the records of the page and few more, as far as they began while the store was open and
    /// not too long ago; or else all there are.
    async fn newest(
        &self,
        filter: &Filter,
        page: &Newest,
    ) -> Result<Vec<(Slot, Record)>, StoreError> {
        self.shared.check()?;
        let (filter, page) = (filter.clone(), *page);
        self.aside(move |shared| shared.newest(&filter, page)).await
    }

    async fn forget(&self, slot: &Slot) -> Result<bool, StoreError> {
        let Answer::Did(was_there) = self.ask(Question::Forget(*slot)).await? else {
            return Err(shared::ended());
        };
        Ok(was_there)
    }

    async fn extend(&self, slot: &Slot, extra: Duration) -> Result<bool, StoreError> {
        let Answer::Did(was_there) = self.ask(Question::Extend(*slot, extra)).await? else {
            return Err(shared::ended());
        };
        Ok(was_there)
    }

    async fn resolve(
        &self,
        slot: &Slot,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Resolved, StoreError> {
        check_size(response)?;
        let question = Question::Resolve(*slot, Arc::clone(response), keep_for);
        let Answer::Resolved(resolved) = self.ask(question).await? else {
            return Err(shared::ended());
        };
        Ok(resolved)
    }

    async fn discard(&self, slot: &Slot) -> Result<Resolved, StoreError> {
        let Answer::Resolved(resolved) = self.ask(Question::Discard(*slot)).await? else {
            return Err(shared::ended());
        };
        Ok(resolved)
    }

    async fn sweep(&self, records_max: usize) -> Result<usize, StoreError> {
        Ok(self.sweep_ended(records_max).await?.records)
    }

    /// Hands over what ended while no process had the store open. Of what ends while one has, that one
    /// knows.
    async fn sweep_ended(&self, records_max: usize) -> Result<Swept, StoreError> {
        self.shared.check()?;
        let swept = self.aside(move |shared| {
            if let Err(error) = shared.watch() {
                shared.fail(error.to_string());
                shared.check()?;
            }
            let ended = shared.take_missed(records_max);
            let swept = shared.sweep(records_max - ended.len().min(records_max));
            let swept = swept.map_err(|error| {
                StoreError::new(NAME, StoreErrorKind::Unavailable).caused_by(error)
            });
            let records = swept? + ended.len();
            Ok(Swept { records, ended })
        });
        let swept = swept.await?;
        drop(self.sweeper.send(Nudge::Look));
        Ok(swept)
    }

    /// What has just expired may be counted for a part in 256 of its time.
    async fn stats(&self) -> Result<Stats, StoreError> {
        self.shared.check()?;
        let (live, _) = self.shared.tally();
        Ok(Stats {
            records: live.records,
            pending: live.pending,
            bytes: live.bytes,
            // What has expired is dropped with its segment.
            expired: 0,
        })
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.ask(Question::Ping).await.map(drop)
    }

    async fn count_replays(&self, replays: &[(Slot, u64)]) -> Result<(), StoreError> {
        self.number_replays(replays).await.map(drop)
    }

    async fn number_replays(
        &self,
        replays: &[(Slot, u64)],
    ) -> Result<Vec<(Slot, u64)>, StoreError> {
        let question = Question::CountReplays(replays.to_vec());
        let Answer::Counted(numbers) = self.ask(question).await? else {
            return Err(shared::ended());
        };
        Ok(numbers)
    }

    async fn agree(&self, name: &str, offer: &[u8]) -> Result<Vec<u8>, StoreError> {
        let question = Question::Agree(name.to_owned(), offer.to_vec());
        let Answer::Agreed(value) = self.ask(question).await? else {
            return Err(shared::ended());
        };
        Ok(value)
    }

    async fn agreed(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let question = Question::WhatAgreed(name.to_owned());
        let Answer::WasAgreed(value) = self.ask(question).await? else {
            return Err(shared::ended());
        };
        Ok(value)
    }
}

impl FileStore {
    /// Reads a lot, where nobody is kept waiting by it.
    async fn aside<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Shared) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let shared = Arc::clone(&self.shared);
        let reading = tokio::task::spawn_blocking(move || read(&shared));
        reading.await.unwrap_or_else(|_| Err(shared::ended()))
    }
}

impl Shared {
    fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<(Slot, Record)>, StoreError> {
        let from = page.after.map_or(Tag(0), |after| Tag::of(&after));
        let mut listed = Vec::new();
        for shard in from.shard()..SHARDS {
            let mut indexed = self.index.in_order(shard, from);
            indexed.retain(|it| may_pass(it, filter));
            indexed.dedup_by_key(|it| it.tag);
            for it in indexed {
                if listed.len() >= page.records_max {
                    return Ok(listed);
                }
                let mut records = self.tagged(it.tag)?;
                records.retain(|(slot, record)| {
                    page.after.is_none_or(|after| *slot > after) && filter.admits(record)
                });
                records.truncate(page.records_max - listed.len());
                listed.append(&mut records);
            }
        }
        Ok(listed)
    }

    fn newest(&self, filter: &Filter, asked: Newest) -> Result<Vec<(Slot, Record)>, StoreError> {
        let mut page = NewestPage::new(asked);
        let (since, recent) = lock(&self.recent).known();
        for (began, slot) in recent {
            if page.wants(began, &slot)
                // One that cannot be read must not hide the others; its key tells when it is asked.
                && let Ok(entry) = self.entry(&slot)
                && let Some(record) = entry.get(self.now())
                && filter.admits(&record)
            {
                page.offer(slot, record);
            }
        }
        if page.is_full_since(since) {
            return Ok(page.into_records());
        }
        let mut page = NewestPage::new(asked);
        for shard in 0..SHARDS {
            let mut indexed = self.index.in_order(shard, Tag(0));
            indexed.retain(|it| may_pass(it, filter));
            indexed.dedup_by_key(|it| it.tag);
            for it in indexed {
                for (slot, record) in self.tagged(it.tag)? {
                    if filter.admits(&record) {
                        page.offer(slot, record);
                    }
                }
            }
        }
        Ok(page.into_records())
    }

    /// The live records with this tag, in the order of their slots.
    fn tagged(&self, tag: Tag) -> Result<Vec<(Slot, Record)>, StoreError> {
        let mut records = BTreeMap::new();
        self.read(tag, |place, frame| {
            // One that cannot be read must not hide the others; its key tells when it is asked.
            if let Ok(frame) = frame
                && let slot = frame.head.slot
                && let Ok(found) = self.found(place, frame)
            {
                let now = self.now();
                let live = (!found.kept.is_expired(now)).then(|| found.kept.to_record(now));
                records.extend(live.map(|record| (slot, record)));
            }
            Ok(None::<()>)
        })?;
        Ok(records.into_iter().collect())
    }
}

/// Whether a record may pass, by what the index knows of it.
fn may_pass(it: &Indexed, filter: &Filter) -> bool {
    match filter.state {
        None => true,
        Some(StateName::Done | StateName::Failed) => it.is_finished(),
        Some(StateName::Pending | StateName::Lapsed | StateName::Unknown) => !it.is_finished(),
    }
}
