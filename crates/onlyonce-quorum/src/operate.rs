//! The operators' side. Listing and counting read every register: fine for people, not for the path
//! of a request.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::future::{join_all, try_join_all};
use onlyonce_core::entry::Phase;
use onlyonce_core::operate::{Filter, Newest, NewestPage, Operate, Page, Resolved, Stats};
use onlyonce_core::{Record, Response, Slot, StoreError, StoreErrorKind, async_trait};

use crate::NAME;
use crate::acceptor::{Acceptor, Fault};
use crate::finding::Found;
use crate::proposer::{Decision, Manner};
use crate::register::{Counting, Discarding, Extending, Forgetting, Resolving};
use crate::store::QuorumStore;

/// How many registers are read at a time.
pub(crate) const REGISTERS_AT_ONCE: usize = 32;
/// What the value of an agreement begins with.
const AGREED_MARK: &[u8] = b"A1";
/// What the name of an agreement's register begins with.
pub(crate) const AGREED_NAME: &[u8] = b"agreed:";

#[async_trait]
impl Operate for QuorumStore {
    async fn get(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        self.record(slot).await
    }

    /// Reads the names of all registers first.
    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<(Slot, Record)>, StoreError> {
        let mut listed = Vec::new();
        if page.records_max == 0 {
            return Ok(listed);
        }
        let slots: Vec<Slot> = self.slots().await?.into_iter().collect();
        let is_behind = |slot: &&Slot| page.after.is_none_or(|after| **slot > after);
        let slots: Vec<&Slot> = slots.iter().filter(is_behind).collect();
        for some in slots.chunks(REGISTERS_AT_ONCE) {
            let read = some.iter().map(|slot| self.record(slot));
            for (slot, record) in some.iter().zip(try_join_all(read).await?) {
                listed.extend(record.filter(|it| filter.admits(it)).map(|it| (**slot, it)));
            }
            if listed.len() >= page.records_max {
                break;
            }
        }
        listed.truncate(page.records_max);
        Ok(listed)
    }

    /// Reads every register once, and keeps no more records than the page holds.
    async fn newest(
        &self,
        filter: &Filter,
        page: &Newest,
    ) -> Result<Vec<(Slot, Record)>, StoreError> {
        let mut newest = NewestPage::new(*page);
        let slots: Vec<Slot> = self.slots().await?.into_iter().collect();
        for some in slots.chunks(REGISTERS_AT_ONCE) {
            let read = some.iter().map(|slot| self.record(slot));
            for (slot, record) in some.iter().zip(try_join_all(read).await?) {
                if let Some(record) = record.filter(|it| filter.admits(it)) {
                    newest.offer(*slot, record);
                }
            }
        }
        Ok(newest.into_records())
    }

    async fn forget(&self, slot: &Slot) -> Result<bool, StoreError> {
        let mut forgetting = Forgetting::default();
        self.step(slot, Manner::Plain, |register, now| {
            forgetting.step(register, now)
        })
        .await
    }

    async fn extend(&self, slot: &Slot, extra: Duration) -> Result<bool, StoreError> {
        let mut extending = Extending::new(self.proposer.token(), extra);
        self.step(slot, Manner::Plain, |register, now| {
            extending.step(register, now)
        })
        .await
    }

    async fn resolve(
        &self,
        slot: &Slot,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Resolved, StoreError> {
        let mut resolving = Resolving::new(response, keep_for);
        self.step(slot, Manner::Plain, |register, now| {
            resolving.step(register, now)
        })
        .await
    }

    async fn discard(&self, slot: &Slot) -> Result<Resolved, StoreError> {
        let mut discarding = Discarding::default();
        self.step(slot, Manner::Plain, |register, now| {
            discarding.step(register, now)
        })
        .await
    }

    /// Servers drop what has expired by themselves.
    async fn sweep(&self, _records_max: usize) -> Result<usize, StoreError> {
        self.upkeep.tend(self).await?;
        Ok(0)
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        let mut stats = Stats::default();
        let slots: Vec<Slot> = self.slots().await?.into_iter().collect();
        for some in slots.chunks(REGISTERS_AT_ONCE) {
            let read = some.iter().map(|slot| {
                self.read(slot, |register, now| {
                    let kept = register.entry.live(now)?;
                    let is_pending = matches!(kept.phase, Phase::Pending { .. });
                    Some((is_pending, kept.bytes() + 2 * Slot::BYTES))
                })
            });
            for (is_pending, bytes) in try_join_all(read).await?.into_iter().flatten() {
                stats.records += 1;
                stats.pending += u64::from(is_pending);
                stats.bytes += bytes as u64;
            }
        }
        Ok(stats)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.answers().await
    }

    async fn recheck(&self) -> Result<(), StoreError> {
        self.upkeep.recheck().await
    }

    fn connected(&self) -> u64 {
        self.upkeep.connected()
    }

    async fn count_replays(&self, replays: &[(Slot, u64)]) -> Result<(), StoreError> {
        self.number_replays(replays).await.map(drop)
    }

    async fn number_replays(
        &self,
        replays: &[(Slot, u64)],
    ) -> Result<Vec<(Slot, u64)>, StoreError> {
        let mut numbers = Vec::with_capacity(replays.len());
        for some in replays.chunks(REGISTERS_AT_ONCE) {
            let counted = some.iter().map(|(slot, count)| async move {
                let mut counting = Counting::new(self.proposer.token(), *count);
                let number = self.step(slot, Manner::Plain, |register, now| {
                    counting.step(register, now)
                });
                Ok::<_, StoreError>(number.await?.map(|number| (*slot, number)))
            });
            numbers.extend(try_join_all(counted).await?.into_iter().flatten());
        }
        Ok(numbers)
    }

    async fn agree(&self, name: &str, offer: &[u8]) -> Result<Vec<u8>, StoreError> {
        let offered = |found: &Found| {
            let (answer, value) = match agreed_on(found)? {
                Some(agreed) => (agreed, None),
                None => (offer.to_vec(), Some(agreeing(offer))),
            };
            Ok(forever(answer, value))
        };
        let key = agreement(name);
        self.proposer.run(&key, Manner::Plain, offered).await
    }

    async fn agreed(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let key = agreement(name);
        if let Some(found) = self.proposer.look(&key).await? {
            return agreed_on(&found);
        }
        let read = |found: &Found| Ok(forever(agreed_on(found)?, None));
        self.proposer.run(&key, Manner::Plain, read).await
    }
}

impl QuorumStore {
    /// Every slot that has a register on any of the servers that answer: at least a majority.
    async fn slots(&self) -> Result<BTreeSet<Slot>, StoreError> {
        let names = match self.names().await {
            // Perhaps the epoch was raised meanwhile.
            Err(_) => self.names().await?,
            Ok(names) => names,
        };
        let slot = |name: &Vec<u8>| Slot::from_hex(str::from_utf8(name).ok()?);
        Ok(names.iter().filter_map(slot).collect())
    }

    /// The names of all registers on the servers that answer: at least a majority.
    pub(crate) async fn names(&self) -> Result<BTreeSet<Vec<u8>>, StoreError> {
        let walks = self.proposer.acceptors().iter();
        let epoch = self.proposer.epoch();
        let walks = walks.map(|it| walk(&**it, epoch));
        let (mut all, mut faults) = (BTreeSet::new(), Vec::new());
        for walked in join_all(walks).await {
            match walked {
                Ok(names) => all.extend(names),
                Err(fault) => faults.push(fault),
            }
        }
        self.proposer.is_enough(faults)?;
        Ok(all)
    }
}

/// All that one server has.
async fn walk(acceptor: &dyn Acceptor, epoch: u64) -> Result<Vec<Vec<u8>>, Fault> {
    let (mut all, mut from) = (Vec::new(), None);
    loop {
        let names = acceptor.names(epoch, from).await?;
        all.extend(names.keys);
        match names.next {
            Some(next) => from = Some(next),
            None => return Ok(all),
        }
    }
}

fn agreement(name: &str) -> Arc<[u8]> {
    let mut key = AGREED_NAME.to_vec();
    key.extend_from_slice(name.as_bytes());
    Arc::from(key)
}

fn agreed_on(found: &Found) -> Result<Option<Vec<u8>>, StoreError> {
    match &found.value {
        None => Ok(None),
        Some(value) => match value.strip_prefix(AGREED_MARK) {
            Some(agreed) => Ok(Some(agreed.to_vec())),
            None => Err(StoreError::new(NAME, StoreErrorKind::Corrupt)),
        },
    }
}

fn agreeing(offer: &[u8]) -> Bytes {
    let mut value = BytesMut::with_capacity(AGREED_MARK.len() + offer.len());
    value.put_slice(AGREED_MARK);
    value.put_slice(offer);
    value.freeze()
}

pub(crate) fn forever<T>(answer: T, value: Option<Bytes>) -> Decision<T> {
    Decision {
        answer,
        value,
        keep_for: None,
        wake: false,
    }
}
