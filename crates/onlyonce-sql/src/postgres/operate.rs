//! The operators' side.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::operate::{
    Connections, Filter, Newest, Page, Resolved, StateName, Stats, Swept,
};
use onlyonce_core::{Operate, Record, Response, Slot, StoreError, async_trait, codec};
use sqlx::postgres::PgRow;

use super::PostgresStore;
use super::arg::Arg;
use super::row::{column, dropped, micros, record, slot as slot_of, text};
use super::statements::Statement;
use super::trouble::{Then, Trouble, corrupt};
use super::verbs::finished;

/// How many rows one statement of a sweep drops, so that none takes long.
const SWEEP_ROWS_MAX: usize = 1_000;
/// How long may take what looks at the whole table.
const WHOLE_TABLE: Duration = Duration::from_secs(60);
/// How often a statement is repeated that met others in the wrong order, or a changing row.
const REPEATS_MAX: usize = 100;
const PAUSE: Duration = Duration::from_millis(2);

impl PostgresStore {
    /// Runs a statement, again where it only met others at the wrong moment.
    async fn operators(
        &self,
        at_most: Duration,
        what: &Statement,
        args: impl Into<Arc<[Arg]>>,
    ) -> Result<Vec<PgRow>, StoreError> {
        let args = args.into();
        let at_most = at_most.max(self.server.lines.terms().timeout);
        let mut repeats = 0;
        loop {
            let args = Arc::clone(&args);
            match self.server.lines.ask_within(at_most, what, args).await {
                Ok(rows) => return Ok(rows),
                Err(trouble) if trouble.then == Then::Repeat && repeats < REPEATS_MAX => {
                    repeats += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(trouble) => return Err(trouble.into()),
            }
        }
    }

    /// The records that a statement finds in the whole table.
    async fn read_all(
        &self,
        what: &Statement,
        args: Vec<Arg>,
    ) -> Result<Vec<(Slot, Record)>, StoreError> {
        let rows = self.operators(WHOLE_TABLE, what, args).await?;
        rows.iter()
            .map(|row| Ok((slot_of(row)?, record(row)?)))
            .collect()
    }

    /// Runs a statement on an outcome in doubt, which finds out whether it is one.
    async fn settles(
        &self,
        slot: &Slot,
        what: &Statement,
        args: &Arc<[Arg]>,
    ) -> Result<Resolved, StoreError> {
        for _ in 0..REPEATS_MAX {
            let rows = self.soon(what, Arc::clone(args)).await?;
            let Some(row) = rows.first() else {
                // Somebody has it in their hands.
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let verdict: &str = column(row, "verdict")?;
            return match verdict {
                "S" => {
                    self.server.settled(*slot);
                    Ok(Resolved::Stored)
                }
                "F" => Ok(Resolved::Found(record(row)?)),
                _ => Ok(Resolved::Absent),
            };
        }
        Err(Trouble::locked().into())
    }

    async fn soon(
        &self,
        what: &Statement,
        args: impl Into<Arc<[Arg]>>,
    ) -> Result<Vec<PgRow>, StoreError> {
        self.operators(Duration::ZERO, what, args).await
    }
}

fn address(slot: &Slot) -> Arg {
    Arg::Bytes(Bytes::copy_from_slice(slot.as_bytes()))
}

fn number(count: usize) -> Arg {
    Arg::Int(i64::try_from(count).unwrap_or(i64::MAX))
}

/// Where a page starts, what it lets through, and how much of it.
fn passing(slot: Vec<u8>, filter: &Filter, records_max: usize) -> Vec<Arg> {
    vec![
        Arg::Bytes(slot.into()),
        Arg::Text(filter.state.map(|name| state(name).to_owned())),
        Arg::Text(filter.operation.as_deref().map(text)),
        Arg::Text(filter.actor.as_deref().map(text)),
        Arg::Text(filter.hint.map(|hint| text(&hint.to_text()))),
        Arg::Int(filter.age_min.map_or(-micros(Duration::MAX), micros)),
        Arg::Int(micros(filter.age_max.unwrap_or(Duration::MAX))),
        number(records_max),
    ]
}

fn state(name: StateName) -> &'static str {
    match name {
        StateName::Pending => "P",
        StateName::Lapsed => "L",
        StateName::Done => "D",
        StateName::Failed => "F",
        StateName::Unknown => "U",
    }
}

fn only(rows: &[PgRow]) -> Result<&PgRow, StoreError> {
    rows.first()
        .ok_or_else(|| corrupt("a statement answered nothing"))
}

fn count(row: &PgRow, name: &str) -> Result<u64, StoreError> {
    let count: i64 = column(row, name)?;
    Ok(u64::try_from(count).unwrap_or(0))
}

#[async_trait]
impl Operate for PostgresStore {
    async fn get(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        let rows = self
            .soon(&self.server.statements.get, [address(slot)])
            .await?;
        rows.first().map(record).transpose()
    }

    async fn get_durable(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        let rows = self
            .soon(&self.server.statements.get_durable, [address(slot)])
            .await?;
        rows.first().map(record).transpose()
    }

    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<(Slot, Record)>, StoreError> {
        let after = page.after.map(|slot| slot.as_bytes().to_vec());
        let after = after.unwrap_or_default();
        let args = passing(after, filter, page.records_max);
        self.read_all(&self.server.statements.list, args).await
    }

    /// The server looks through its table; what comes from it is the page.
    async fn newest(
        &self,
        filter: &Filter,
        page: &Newest,
    ) -> Result<Vec<(Slot, Record)>, StoreError> {
        let before = page.before.map(|(at, slot)| (at.as_millis(), slot));
        let slot = before.map(|(_, slot)| slot.as_bytes().to_vec());
        let at = before.and_then(|(at, _)| i64::try_from(at).ok());
        let mut args = passing(slot.unwrap_or_default(), filter, page.records_max);
        args.push(Arg::Int(at.unwrap_or(i64::MAX)));
        self.read_all(&self.server.statements.newest, args).await
    }

    async fn forget(&self, slot: &Slot) -> Result<bool, StoreError> {
        let forget = &self.server.statements.forget;
        let forgotten = !self.soon(forget, [address(slot)]).await?.is_empty();
        if forgotten {
            self.server.settled(*slot);
        }
        Ok(forgotten)
    }

    async fn extend(&self, slot: &Slot, extra: Duration) -> Result<bool, StoreError> {
        let args = [address(slot), Arg::Int(micros(extra))];
        let extended = self.soon(&self.server.statements.extend, args).await?;
        Ok(!extended.is_empty())
    }

    async fn resolve(
        &self,
        slot: &Slot,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Resolved, StoreError> {
        let args: Arc<[Arg]> = Arc::new([
            address(slot),
            Arg::Text(Some(finished(response).to_owned())),
            Arg::Bytes(codec::encode_response(response)),
            Arg::Int(micros(keep_for)),
        ]);
        self.settles(slot, &self.server.statements.resolve, &args)
            .await
    }

    async fn discard(&self, slot: &Slot) -> Result<Resolved, StoreError> {
        let args: Arc<[Arg]> = Arc::new([address(slot)]);
        self.settles(slot, &self.server.statements.discard, &args)
            .await
    }

    async fn sweep(&self, records_max: usize) -> Result<usize, StoreError> {
        drop(self.server.replaced.take());
        let mut swept = 0;
        while swept < records_max {
            let rows_max = SWEEP_ROWS_MAX.min(records_max - swept);
            let sweep = &self.server.statements.sweep;
            let rows = self
                .operators(WHOLE_TABLE, sweep, [number(rows_max)])
                .await?;
            let row = only(&rows)?;
            swept += usize::try_from(count(row, "records")?).unwrap_or(usize::MAX);
            // What was only kept for its dead tokens is no record, and does not count.
            if usize::try_from(count(row, "rows")?).unwrap_or(0) < rows_max {
                break;
            }
        }
        Ok(swept)
    }

    async fn sweep_ended(&self, records_max: usize) -> Result<Swept, StoreError> {
        let mut swept = Swept::default();
        while swept.records < records_max {
            let rows_max = SWEEP_ROWS_MAX.min(records_max - swept.records);
            let sweep = &self.server.statements.sweep_ended;
            let asked = self.operators(WHOLE_TABLE, sweep, [number(rows_max)]);
            let rows = match asked.await {
                Ok(rows) => rows,
                // What was dropped before is handed over; the next sweep says what is wrong.
                Err(_) if swept.records > 0 => break,
                Err(error) => return Err(error),
            };
            for row in &rows {
                let (is_record, ended) = dropped(row)?;
                swept.records += usize::from(is_record);
                swept.ended.extend(ended);
            }
            if rows.len() < rows_max {
                break;
            }
        }
        swept.ended.extend(self.server.replaced.take());
        Ok(swept)
    }

    fn hands_over_ended(&self) -> bool {
        true
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        let stats = &self.server.statements.stats;
        let rows = self.operators(WHOLE_TABLE, stats, []).await?;
        let row = only(&rows)?;
        Ok(Stats {
            records: count(row, "records")?,
            pending: count(row, "pending")?,
            bytes: count(row, "bytes")?,
            expired: count(row, "expired")?,
        })
    }

    fn connections(&self) -> Option<Connections> {
        Some(self.server.lines.connections())
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.soon(&self.server.statements.ping, []).await.map(drop)
    }

    async fn count_replays(&self, replays: &[(Slot, u64)]) -> Result<(), StoreError> {
        self.number_replays(replays).await.map(drop)
    }

    async fn number_replays(
        &self,
        replays: &[(Slot, u64)],
    ) -> Result<Vec<(Slot, u64)>, StoreError> {
        // In the order of the slots, and each once.
        let mut sums: BTreeMap<Slot, u64> = BTreeMap::new();
        for (slot, count) in replays {
            let sum = sums.entry(*slot).or_default();
            *sum = sum.saturating_add(*count);
        }
        if sums.is_empty() {
            return Ok(Vec::new());
        }
        let slots = sums
            .keys()
            .map(|slot| Bytes::copy_from_slice(slot.as_bytes()));
        let counts = sums
            .values()
            .map(|count| i64::try_from(*count).unwrap_or(i64::MAX));
        let args = [Arg::Bytess(slots.collect()), Arg::Ints(counts.collect())];
        let rows = self.soon(&self.server.statements.count, args).await?;
        let number = |row| {
            let count: i64 = column(row, "r_replays")?;
            Ok((slot_of(row)?, u64::try_from(count).unwrap_or(0)))
        };
        rows.iter().map(number).collect()
    }

    fn is_on_a_server(&self) -> bool {
        true
    }

    async fn agree(&self, name: &str, offer: &[u8]) -> Result<Vec<u8>, StoreError> {
        let called = || Arg::Text(Some(text(name)));
        let offer = [called(), Arg::Bytes(Bytes::copy_from_slice(offer))];
        self.soon(&self.server.statements.offer, offer).await?;
        let rows = self
            .soon(&self.server.statements.agreed, [called()])
            .await?;
        column(only(&rows)?, "value")
    }

    async fn agreed(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let name = [Arg::Text(Some(text(name)))];
        let rows = self.soon(&self.server.statements.agreed, name).await?;
        rows.first().map(|row| column(row, "value")).transpose()
    }
}
