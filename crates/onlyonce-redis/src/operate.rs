//! The operators' side. Listing and counting read every key of the store: fine for people, not
//! for the path of a request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ::redis::{Cmd, Pipeline, Value};
use futures_util::future::{join_all, try_join_all};
use onlyonce_core::operate::{Filter, Newest, NewestPage, Operate, Page, Resolved, Stats};
use onlyonce_core::{Record, Response, Slot, StoreError, async_trait, codec};

use super::RedisStore;
use super::fleet::Ask;
use super::node::Want;
use super::reply::Reply;
use super::scan::Scan;
use super::scripts::Step;
use super::trouble::{Trouble, refusal};
use super::value::{self, HEAD_BYTES, Head, Standing, millis};

/// How many records are counted at a time.
const KEYS_AT_ONCE: usize = 256;
/// Records may be large: fewer at a time.
const RECORDS_AT_ONCE: usize = 32;
/// What a key costs beyond its name and value, near enough.
const KEY_OVERHEAD_BYTES: u64 = 96;

#[async_trait]
impl Operate for RedisStore {
    async fn get(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        self.look(slot).await
    }

    async fn get_durable(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        self.look_by(&self.scripts.look_durable, Want::Confirmed, slot)
            .await
    }

    /// Reads the names of all keys, and keeps no more records than the page holds.
    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<(Slot, Record)>, StoreError> {
        let mut best = BTreeMap::new();
        if page.records_max == 0 {
            return Ok(Vec::new());
        }
        for master in self.fleet.masters().await? {
            let mut scan = Scan::of(&self.prefix, master);
            while let Some(slots) = scan.next().await? {
                let slots = slots
                    .into_iter()
                    .filter(|slot| page.after.is_none_or(|it| *slot > it));
                let slots: Vec<_> = slots.collect();
                for some in slots.chunks(RECORDS_AT_ONCE) {
                    self.keep_best(some, filter, page.records_max, &mut best)
                        .await?;
                }
            }
        }
        Ok(best.into_iter().collect())
    }

    /// Reads every record once, and keeps no more of them than the page holds.
    async fn newest(
        &self,
        filter: &Filter,
        page: &Newest,
    ) -> Result<Vec<(Slot, Record)>, StoreError> {
        let mut newest = NewestPage::new(*page);
        for master in self.fleet.masters().await? {
            let mut scan = Scan::of(&self.prefix, master);
            while let Some(slots) = scan.next().await? {
                for some in slots.chunks(RECORDS_AT_ONCE) {
                    for (slot, record) in self.look_at(some.iter()).await? {
                        if filter.admits(&record) {
                            newest.offer(slot, record);
                        }
                    }
                }
            }
        }
        Ok(newest.into_records())
    }

    async fn forget(&self, slot: &Slot) -> Result<bool, StoreError> {
        self.acts_on(slot, &self.scripts.forget, &[]).await
    }

    async fn extend(&self, slot: &Slot, extra: Duration) -> Result<bool, StoreError> {
        let extra = millis(extra).to_string();
        self.acts_on(slot, &self.scripts.extend, &[extra.as_bytes()])
            .await
    }

    async fn resolve(
        &self,
        slot: &Slot,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Resolved, StoreError> {
        let (keep_for, answer) = (
            millis(keep_for).to_string(),
            codec::encode_response(response),
        );
        let state = value::finished_as(response).as_bytes();
        let args: [&[u8]; 3] = [keep_for.as_bytes(), state, &answer];
        self.settles(slot, &self.scripts.resolve, &args).await
    }

    async fn discard(&self, slot: &Slot) -> Result<Resolved, StoreError> {
        self.settles(slot, &self.scripts.discard, &[]).await
    }

    /// Redis drops what has expired by itself.
    async fn sweep(&self, _records_max: usize) -> Result<usize, StoreError> {
        Ok(0)
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        let mut stats = Stats::default();
        for master in self.fleet.masters().await? {
            let mut scan = Scan::of(&self.prefix, master);
            while let Some(slots) = scan.next().await? {
                let sizes = join_all(slots.iter().map(|slot| self.size(slot))).await;
                for size in sizes {
                    let Some((standing, bytes)) = size? else {
                        continue;
                    };
                    stats.records += 1;
                    stats.pending += u64::from(standing == Standing::Pending);
                    stats.bytes += bytes;
                }
            }
        }
        Ok(stats)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        let mut commands = Pipeline::new();
        commands.add_command(::redis::cmd("PING"));
        let commands = Arc::new(commands);
        for master in self.fleet.masters().await? {
            let answers = master.ask(&commands, Want::Plain).await?;
            if let Some(trouble) = answers.iter().find_map(refusal) {
                return Err(trouble.into());
            }
        }
        Ok(())
    }

    /// What a lost connection leaves open is not counted twice.
    async fn count_replays(&self, replays: &[(Slot, u64)]) -> Result<(), StoreError> {
        self.number_replays(replays).await.map(drop)
    }

    async fn number_replays(
        &self,
        replays: &[(Slot, u64)],
    ) -> Result<Vec<(Slot, u64)>, StoreError> {
        let mut numbers = Vec::with_capacity(replays.len());
        for some in replays.chunks(KEYS_AT_ONCE) {
            // Asked at the same time, they go together.
            let counted = some.iter().map(|(slot, count)| self.count(slot, *count));
            numbers.extend(try_join_all(counted).await?.into_iter().flatten());
        }
        Ok(numbers)
    }

    async fn agree(&self, name: &str, offer: &[u8]) -> Result<Vec<u8>, StoreError> {
        let agreed = self.agreement(name, &[offer]).await?;
        agreed.ok_or_else(|| Trouble::Odd.into())
    }

    async fn agreed(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.agreement(name, &[]).await
    }

    async fn recheck(&self) -> Result<(), StoreError> {
        self.eviction.check(&self.fleet).await
    }

    fn connected(&self) -> u64 {
        self.fleet.connected()
    }
}

impl RedisStore {
    fn agreed_key(&self, name: &str) -> Vec<u8> {
        let mut key = self.prefix.clone();
        key.extend_from_slice(b"agreed:");
        key.extend_from_slice(name.as_bytes());
        key
    }

    /// What is agreed on under `name`, after the offer, if there is one.
    async fn agreement(&self, name: &str, offer: &[&[u8]]) -> Result<Option<Vec<u8>>, StoreError> {
        let (key, step) = (self.agreed_key(name), &self.scripts.agree);
        let told = self.fleet.run(step, &key, offer, Want::Confirmed, true);
        let told = told.await?;
        if told == Value::Nil {
            return Ok(None);
        }
        if let Value::BulkString(agreed) = told {
            return Ok(Some(agreed));
        }
        Err(refusal(&told).unwrap_or(Trouble::Odd).into())
    }

    /// Runs a script that says whether there was something to act on.
    async fn acts_on(&self, slot: &Slot, step: &Step, args: &[&[u8]]) -> Result<bool, StoreError> {
        match self.run(step, &self.key(slot), args).await? {
            Reply::Acted(_) => Ok(true),
            Reply::Absent => Ok(false),
            Reply::Found(_) | Reply::Dead | Reply::Full => Err(Trouble::Odd.into()),
        }
    }

    /// Runs a script on an outcome in doubt, which finds out whether it is one.
    async fn settles(
        &self,
        slot: &Slot,
        step: &Step,
        args: &[&[u8]],
    ) -> Result<Resolved, StoreError> {
        match self.run(step, &self.key(slot), args).await? {
            Reply::Acted(_) => Ok(Resolved::Stored),
            Reply::Found(record) => Ok(Resolved::Found(record)),
            Reply::Absent => Ok(Resolved::Absent),
            Reply::Dead | Reply::Full => Err(Trouble::Odd.into()),
        }
    }

    async fn count(&self, slot: &Slot, count: u64) -> Result<Option<(Slot, u64)>, StoreError> {
        let (key, count) = (self.key(slot), count.to_string());
        let (step, args) = (&self.scripts.count, [count.as_bytes()]);
        let counted = self.fleet.run(step, &key, &args, Want::Plain, false);
        match Reply::read(counted.await?)? {
            Reply::Acted(told) => Ok(Some((*slot, told.number(0)?))),
            Reply::Absent | Reply::Found(_) | Reply::Dead | Reply::Full => Ok(None),
        }
    }

    /// Reads those of `slots` that may be among the first `records_max`, and keeps those that are.
    async fn keep_best(
        &self,
        slots: &[Slot],
        filter: &Filter,
        records_max: usize,
        best: &mut BTreeMap<Slot, Record>,
    ) -> Result<(), StoreError> {
        let full = best.len() >= records_max;
        let last = best
            .last_key_value()
            .map(|(slot, _)| *slot)
            .filter(|_| full);
        let wanted = slots
            .iter()
            .filter(|slot| last.is_none_or(|last| **slot < last));
        let found = self.look_at(wanted).await?;
        best.extend(found.into_iter().filter(|(_, it)| filter.admits(it)));
        while best.len() > records_max {
            best.pop_last();
        }
        Ok(())
    }

    /// The live records of these slots, read at the same time.
    async fn look_at<'a>(
        &self,
        slots: impl Iterator<Item = &'a Slot>,
    ) -> Result<Vec<(Slot, Record)>, StoreError> {
        let read =
            slots.map(|slot| async move { Ok::<_, StoreError>((*slot, self.look(slot).await?)) });
        let found = try_join_all(read).await?;
        let live = |(slot, record): (Slot, Option<Record>)| Some((slot, record?));
        Ok(found.into_iter().filter_map(live).collect())
    }

    /// The state of a live record and the room it takes.
    async fn size(&self, slot: &Slot) -> Result<Option<(Standing, u64)>, StoreError> {
        let key = self.key(slot);
        let (mut head, mut length, mut pttl) = (Cmd::new(), Cmd::new(), Cmd::new());
        head.arg("GETRANGE").arg(&key).arg(0).arg(HEAD_BYTES - 1);
        length.arg("STRLEN").arg(&key);
        pttl.arg("PTTL").arg(&key);
        let ask = Ask::new([head, length, pttl], Want::Plain);
        let answers = self.fleet.ask(&key, &ask).await?;
        if let Some(trouble) = answers.iter().find_map(refusal) {
            return Err(trouble.into());
        }
        let [
            Value::BulkString(head),
            Value::Int(length),
            Value::Int(pttl),
        ] = &answers[..]
        else {
            return Err(Trouble::Odd.into());
        };
        // Gone since it was listed.
        if head.is_empty() || *pttl == -2 {
            return Ok(None);
        }
        let head = Head::read(head)?;
        let bytes = u64::try_from(*length).unwrap_or(0) + key.len() as u64 + KEY_OVERHEAD_BYTES;
        Ok(head.keep_left(*pttl).map(|_| (head.standing, bytes)))
    }
}
