//! The operators' side.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::operate::{Connections, Filter, Newest, Page, Resolved, Stats, Swept};
use onlyonce_core::{Operate, Record, Response, Slot, StoreError, StoreErrorKind, async_trait};
use sqlx::mysql::MySqlRow;

use super::MySqlStore;
use super::rows::Row;
use super::server::{Stepped, alive};
use super::statements::{ARCHIVE, BEGAN, NOW};
use super::text::Text;
use super::trouble::{NAME, Then, Trouble, unreadable};
use crate::steps::{Columns, Dropped, ended_columns, from_millis, read_slot, whole};

/// How many rows one transaction of a sweep drops: others wait for it no longer than that takes.
const SWEEP_ROWS_MAX: usize = 200;
/// How many replay counts go into one transaction.
const COUNTS_MAX: usize = 100;
const REPEATS_MAX: usize = 20;
/// The longest name that can be agreed on.
const NAME_BYTES_MAX: usize = 255;

#[async_trait]
impl Operate for MySqlStore {
    async fn get(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        let read = self.server.read(slot).await?;
        Ok(read.held.entry.get(read.now))
    }

    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<(Slot, Record)>, StoreError> {
        let most = i64::try_from(page.records_max).unwrap_or(i64::MAX);
        let text = self
            .server
            .statements
            .list(filter, page.after.as_ref(), most);
        self.read_all(&text).await
    }

    /// The server looks through its table; what comes from it is the page.
    async fn newest(
        &self,
        filter: &Filter,
        page: &Newest,
    ) -> Result<Vec<(Slot, Record)>, StoreError> {
        let most = i64::try_from(page.records_max).unwrap_or(i64::MAX);
        let text = self.server.statements.newest(filter, page, most);
        self.read_all(&text).await
    }

    async fn forget(&self, slot: &Slot) -> Result<bool, StoreError> {
        let forgotten = self
            .server
            .step_at_last(slot, |held, now| held.entry.forget(now))
            .await;
        match forgotten {
            // What cannot be read can still be dropped, dead tokens and all.
            Err(error) if error.kind == StoreErrorKind::Corrupt => {
                let mut text = Text::of(
                    self.server
                        .statements
                        .fill("DELETE FROM {table} WHERE slot = "),
                );
                text.bytes(slot.as_bytes());
                let answered = self.server.lines.read(&text).await?;
                self.server.waiters.wake(slot);
                Ok(answered.changed.first().is_some_and(|dropped| *dropped > 0))
            }
            forgotten => forgotten,
        }
    }

    async fn extend(&self, slot: &Slot, extra: Duration) -> Result<bool, StoreError> {
        let extra = whole(extra);
        self.server
            .step_at_last(slot, |held, now| held.entry.extend(extra, now))
            .await
    }

    async fn resolve(
        &self,
        slot: &Slot,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Resolved, StoreError> {
        let keep_for = whole(keep_for);
        let resolved = self.server.step(slot, |held, now| {
            held.entry.resolve(response, keep_for, now)
        });
        Ok(settled(resolved.await?))
    }

    async fn discard(&self, slot: &Slot) -> Result<Resolved, StoreError> {
        let discarded = self.server.step(slot, |held, now| held.entry.discard(now));
        Ok(settled(discarded.await?))
    }

    async fn sweep(&self, records_max: usize) -> Result<usize, StoreError> {
        drop(self.server.replaced.take());
        let is_record = |row: &MySqlRow, _| Ok(row.text(1)? != "R");
        let dropped = self.sweep_all(records_max, "slot, state", is_record, |it| *it);
        Ok(dropped.await?.into_iter().filter(|record| *record).count())
    }

    async fn sweep_ended(&self, records_max: usize) -> Result<Swept, StoreError> {
        let columns = ended_columns();
        let dropped = self.sweep_all(records_max, &columns, Dropped::read, |it| it.is_record);
        Ok(Dropped::swept(dropped.await?, self.server.replaced.take()))
    }

    fn hands_over_ended(&self) -> bool {
        true
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        let text = Text::of(self.server.statements.fill(&format!(
            "SELECT COUNT(*), CAST(COALESCE(SUM(state = 'P'), 0) AS SIGNED), \
             CAST(COALESCE(SUM(bytes), 0) AS SIGNED), \
             (SELECT COUNT(*) FROM {{table}} WHERE sweep_at <= {BEGAN} \
                 AND expires_at <= {BEGAN} AND state <> 'R') FROM {{table}} \
             WHERE sweep_at > {BEGAN} AND expires_at > {BEGAN} AND state <> 'R'"
        )));
        let answered = self.server.lines.read(&text).await?;
        let row = answered.rows.first().ok_or_else(Trouble::late)?;
        let number =
            |at: usize| -> Result<u64, Trouble> { Ok(u64::try_from(row.int(at)?).unwrap_or(0)) };
        Ok(Stats {
            records: number(0)?,
            pending: number(1)?,
            bytes: number(2)?,
            expired: number(3)?,
        })
    }

    fn connections(&self) -> Option<Connections> {
        Some(self.server.lines.connections())
    }

    async fn ping(&self) -> Result<(), StoreError> {
        let text = Text::of(self.server.statements.fill("SELECT 1 FROM {table} LIMIT 1"));
        self.server.lines.read(&text).await?;
        Ok(())
    }

    async fn count_replays(&self, replays: &[(Slot, u64)]) -> Result<(), StoreError> {
        self.number_replays(replays).await.map(drop)
    }

    async fn number_replays(
        &self,
        replays: &[(Slot, u64)],
    ) -> Result<Vec<(Slot, u64)>, StoreError> {
        let mut numbers = Vec::with_capacity(replays.len());
        let mut sorted = replays.to_vec();
        sorted.sort();
        let mut parts: Vec<_> = sorted.chunks(COUNTS_MAX).collect();
        let mut repeats = 0;
        // One at a time: many that count the same would only get into each other's way.
        let _turn = self.counting.lock().await;
        while let Some(part) = parts.pop() {
            let trouble = match self.count(part).await {
                Ok(counted) => {
                    numbers.extend(counted);
                    continue;
                }
                Err(trouble) => trouble,
            };
            match trouble.then {
                Then::Repeat | Then::Locked if repeats < REPEATS_MAX => {
                    repeats += 1;
                    parts.push(part);
                }
                Then::Locked if part.len() > 1 => {
                    let (one, other) = part.split_at(part.len() / 2);
                    parts.extend([one, other]);
                }
                // A record that its holder works on has hardly been replayed: not worth waiting.
                Then::Locked => {}
                Then::Repeat | Then::Reconnect | Then::Duplicate | Then::Split | Then::Tell => {
                    return Err(trouble.to_error());
                }
            }
        }
        Ok(numbers)
    }

    fn is_on_a_server(&self) -> bool {
        true
    }

    async fn agree(&self, name: &str, offer: &[u8]) -> Result<Vec<u8>, StoreError> {
        if name.len() > NAME_BYTES_MAX {
            let why = format!("a name to agree on has at most {NAME_BYTES_MAX} bytes");
            return Err(StoreError::new(NAME, StoreErrorKind::Full).caused_by(why));
        }
        let statements = &self.server.statements;
        let mut read = Text::of(statements.fill("SELECT value FROM {table}_agreed WHERE name = "));
        read.bytes(name.as_bytes());
        let mut offering = Text::of(statements.fill("INSERT INTO {table}_agreed (name, value) "));
        offering
            .sql("VALUES (")
            .bytes(name.as_bytes())
            .sql(",")
            .bytes(offer);
        offering.sql(") ON DUPLICATE KEY UPDATE name = name");
        for _ in 0..REPEATS_MAX {
            let answered = self.server.lines.read(&read).await?;
            if let Some(row) = answered.rows.first() {
                return Ok(row.bytes(0).map_err(Trouble::from)?);
            }
            match self.server.lines.ask(&offering).await {
                Err(trouble) if trouble.then != Then::Repeat => return Err(trouble.to_error()),
                Ok(_) | Err(_) => {}
            }
        }
        Err(Trouble::raced().to_error())
    }

    async fn agreed(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let statements = &self.server.statements;
        let mut read = Text::of(statements.fill("SELECT value FROM {table}_agreed WHERE name = "));
        read.bytes(name.as_bytes());
        let answered = self.server.lines.read(&read).await?;
        match answered.rows.first() {
            Some(row) => Ok(Some(row.bytes(0).map_err(Trouble::from)?)),
            None => Ok(None),
        }
    }
}

impl MySqlStore {
    async fn read_all(&self, text: &Text) -> Result<Vec<(Slot, Record)>, StoreError> {
        let answered = self.server.lines.ask(text).await?;
        let mut listed = Vec::new();
        for (slot, row) in answered.rows.iter().filter_map(Row::read) {
            let held = row.held.map_err(|why| unreadable(&why))?;
            listed.extend(held.entry.get(row.now).map(|record| (slot, record)));
        }
        Ok(listed)
    }

    /// Drops rows that nobody has locked until `records_max` records are dropped, or nothing is over
    /// any more: what `read` makes of the `columns` of each.
    async fn sweep_all<T>(
        &self,
        records_max: usize,
        columns: &str,
        read: impl Fn(&MySqlRow, Duration) -> Result<T, sqlx::Error>,
        is_record: impl Fn(&T) -> bool,
    ) -> Result<Vec<T>, StoreError> {
        let (mut dropped, mut swept, mut repeats) = (Vec::new(), 0, 0);
        while swept < records_max {
            let most = SWEEP_ROWS_MAX.min(records_max - swept);
            match self.sweep_some(most, columns).await {
                Ok((rows, now)) => {
                    for row in &rows {
                        let row =
                            read(row, now).map_err(|error| Trouble::from(error).to_error())?;
                        swept += usize::from(is_record(&row));
                        dropped.push(row);
                    }
                    if rows.len() < most {
                        break;
                    }
                }
                Err(trouble) if trouble.then == Then::Repeat && repeats < REPEATS_MAX => {
                    repeats += 1;
                }
                // What was dropped before is handed over; the next sweep says what is wrong.
                Err(_) if !dropped.is_empty() => break,
                Err(trouble) => return Err(trouble.to_error()),
            }
        }
        Ok(dropped)
    }

    /// Drops at most `most` rows that nobody has locked: these columns of them, the slot first, and
    /// when that was.
    async fn sweep_some(
        &self,
        most: usize,
        columns: &str,
    ) -> Result<(Vec<MySqlRow>, Duration), Trouble> {
        let statements = &self.server.statements;
        let mut due = Text::transaction();
        due.sql(&format!("SELECT {BEGAN};"));
        due.sql(&statements.fill(&format!(
            "SELECT {columns} FROM {{table}} WHERE sweep_at <= {BEGAN} ORDER BY sweep_at LIMIT "
        )));
        due.int(i64::try_from(most).unwrap_or(i64::MAX));
        due.sql(" FOR UPDATE SKIP LOCKED");
        let mut line = self.server.lines.line().await?;
        let mut found = line.ask(&due).await?.rows;
        let now = match found.first() {
            Some(clock) => from_millis(clock.int(0)?),
            None => return Err(Trouble::late()),
        };
        found.remove(0);
        let slots: Vec<_> = found.iter().filter_map(|row| read_slot(row).ok()).collect();
        let mut drop = Text::default();
        if !slots.is_empty() {
            if self.server.archive {
                drop.sql(&statements.fill(&ARCHIVE.replace("{now}", NOW)))
                    .sql("slot IN (");
                drop.list(&slots, |text, slot| text.bytes(slot.as_bytes()))
                    .sql(");");
            }
            drop.sql(&statements.fill("DELETE FROM {table} WHERE slot IN ("));
            drop.list(&slots, |text, slot| text.bytes(slot.as_bytes()))
                .sql(");");
        }
        line.ask(drop.sql("COMMIT")).await?;
        line.keep();
        Ok((found, now))
    }

    /// Adds counts in one transaction; says what they are then.
    async fn count(&self, replays: &[(Slot, u64)]) -> Result<Vec<(Slot, u64)>, Trouble> {
        let mut text = Text::transaction();
        for (slot, times) in replays {
            let count = "UPDATE {table} SET revision = revision + 1, replays = replays + ";
            text.sql(&self.server.statements.fill(count));
            text.int(i64::try_from(*times).unwrap_or(i64::MAX));
            text.sql(" WHERE slot = ").bytes(slot.as_bytes());
            text.sql(" AND state <> 'R' AND expires_at > ").sql(NOW);
            text.sql(";");
        }
        if !replays.is_empty() {
            text.sql(
                &self
                    .server
                    .statements
                    .fill("SELECT slot, replays FROM {table} WHERE slot IN ("),
            );
            text.list(replays, |text, (slot, _)| text.bytes(slot.as_bytes()));
            text.sql(") AND state <> 'R' AND expires_at > ").sql(NOW);
            text.sql(";");
        }
        text.sql("COMMIT");
        // Not repeated if the connection breaks: it may have been counted already.
        let counted = self.server.lines.ask_once(&text).await?;
        let mut numbers = Vec::with_capacity(counted.rows.len());
        for row in &counted.rows {
            if let Ok(slot) = read_slot(row) {
                numbers.push((slot, u64::try_from(row.int(1)?).unwrap_or(0)));
            }
        }
        Ok(numbers)
    }
}

/// What came of a step on an outcome in doubt. A record in the hands of a transaction is not in doubt.
fn settled(stepped: Stepped<Resolved>) -> Resolved {
    match stepped {
        Stepped::Took(resolved) => resolved,
        Stepped::Locked(held, now) => match held.entry.get(now) {
            Some(record) => Resolved::Found(alive(record)),
            None => Resolved::Absent,
        },
    }
}
