//! The operators' side.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::operate::{Filter, Newest, Page, Resolved, Stats, Swept};
use onlyonce_core::{Operate, Record, Response, Slot, StoreError, StoreErrorKind, async_trait};
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Row as _, Sqlite};

use super::statements::archive;
use super::writer::begin;
use super::{SqliteStore, trouble};
use crate::steps::{
    Columns, Dropped, READ_COLUMNS, ended_columns, in_state, read_held, read_slot, to_millis, whole,
};

/// How many rows one transaction of a sweep drops: others wait for it no longer than that takes.
const SWEEP_ROWS_MAX: usize = 200;

#[async_trait]
impl Operate for SqliteStore {
    async fn get(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        let Some((held, now)) = self.look(slot).await? else {
            return Ok(None);
        };
        Ok(held.entry.get(now))
    }

    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<(Slot, Record)>, StoreError> {
        let mut query = self.passing(filter);
        if let Some(after) = &page.after {
            let after = after.as_bytes().to_vec();
            query.push(" AND slot > ").push_bind(after);
        }
        query.push(" ORDER BY slot LIMIT ");
        self.read_all(query, page.records_max).await
    }

    /// The file is looked through; what is read of it is the page.
    async fn newest(
        &self,
        filter: &Filter,
        page: &Newest,
    ) -> Result<Vec<(Slot, Record)>, StoreError> {
        let mut query = self.passing(filter);
        if let Some((at, slot)) = &page.before {
            let at = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
            query.push(" AND (created_at, slot) < (").push_bind(at);
            query
                .push(", ")
                .push_bind(slot.as_bytes().to_vec())
                .push(")");
        }
        query.push(" ORDER BY created_at DESC, slot DESC LIMIT ");
        self.read_all(query, page.records_max).await
    }

    async fn forget(&self, slot: &Slot) -> Result<bool, StoreError> {
        let forgotten = self.step(*slot, |held, now| held.entry.forget(now)).await;
        match forgotten {
            // What cannot be read can still be dropped, dead tokens and all.
            Err(error) if error.kind == StoreErrorKind::Corrupt => {
                let mut connection = self.writer.connection().await.map_err(trouble::failed)?;
                let delete = sqlx::query(self.statements.delete()).bind(slot.as_bytes().to_vec());
                let deleted = delete.execute(connection.get()).await;
                let deleted = deleted.map_err(trouble::failed)?;
                self.waiters.wake(slot);
                Ok(deleted.rows_affected() > 0)
            }
            forgotten => forgotten,
        }
    }

    async fn extend(&self, slot: &Slot, extra: Duration) -> Result<bool, StoreError> {
        let extra = whole(extra);
        self.step(*slot, move |held, now| held.entry.extend(extra, now))
            .await
    }

    async fn resolve(
        &self,
        slot: &Slot,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Resolved, StoreError> {
        let (response, keep_for) = (Arc::clone(response), whole(keep_for));
        self.step(*slot, move |held, now| {
            held.entry.resolve(&response, keep_for, now)
        })
        .await
    }

    async fn discard(&self, slot: &Slot) -> Result<Resolved, StoreError> {
        self.step(*slot, |held, now| held.entry.discard(now)).await
    }

    async fn sweep(&self, records_max: usize) -> Result<usize, StoreError> {
        drop(self.writer.replaced.take());
        let is_record = |row: &SqliteRow, _| row.try_get::<bool, _>(0);
        let dropped = self.sweep_all(records_max, "state <> 'R'", is_record, |it| *it);
        Ok(dropped.await?.into_iter().filter(|record| *record).count())
    }

    async fn sweep_ended(&self, records_max: usize) -> Result<Swept, StoreError> {
        let columns = ended_columns();
        let dropped = self.sweep_all(records_max, &columns, Dropped::read, |it| it.is_record);
        Ok(Dropped::swept(dropped.await?, self.writer.replaced.take()))
    }

    fn hands_over_ended(&self) -> bool {
        true
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        let stats = self.statements.rare(
            "SELECT COUNT(*), COALESCE(SUM(state = 'P'), 0), COALESCE(SUM(bytes), 0), \
             (SELECT COUNT(*) FROM {table} \
                 WHERE sweep_at <= ?1 AND expires_at <= ?1 AND state <> 'R') \
             FROM {table} WHERE sweep_at > ?1 AND expires_at > ?1 AND state <> 'R'",
        );
        let stats = sqlx::query(stats).bind(to_millis(self.writer.time.now()));
        let row = stats.fetch_one(&self.readers).await;
        let row = row.map_err(trouble::failed)?;
        let number = |at: usize| -> Result<u64, StoreError> {
            let number = row.int(at).map_err(trouble::failed)?;
            Ok(u64::try_from(number).unwrap_or(0))
        };
        Ok(Stats {
            records: number(0)?,
            pending: number(1)?,
            bytes: number(2)?,
            expired: number(3)?,
        })
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.check_place().await
    }

    async fn count_replays(&self, replays: &[(Slot, u64)]) -> Result<(), StoreError> {
        if replays.is_empty() {
            return Ok(());
        }
        self.count(replays).await.map(drop).map_err(trouble::failed)
    }

    async fn number_replays(
        &self,
        replays: &[(Slot, u64)],
    ) -> Result<Vec<(Slot, u64)>, StoreError> {
        if replays.is_empty() {
            return Ok(Vec::new());
        }
        self.count(replays).await.map_err(trouble::failed)
    }

    async fn agree(&self, name: &str, offer: &[u8]) -> Result<Vec<u8>, StoreError> {
        if let Some(agreed) = self.agreed(name).await? {
            return Ok(agreed);
        }
        let offering = self
            .statements
            .rare("INSERT INTO {table}_agreed (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING");
        let mut connection = self.writer.connection().await.map_err(trouble::failed)?;
        let offering = sqlx::query(offering).bind(name).bind(offer);
        let offered = offering.execute(connection.get()).await;
        offered.map_err(trouble::failed)?;
        self.writer.place.check().map_err(trouble::failed)?;
        drop(connection);
        // Nothing ever drops it.
        let agreed = self.agreed(name).await?;
        agreed.ok_or_else(|| StoreError::new(trouble::NAME, StoreErrorKind::Unavailable))
    }

    async fn agreed(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let agreed = self
            .statements
            .rare("SELECT value FROM {table}_agreed WHERE name = ?");
        let agreed = sqlx::query_scalar(agreed).bind(name);
        agreed
            .fetch_optional(&self.readers)
            .await
            .map_err(trouble::failed)
    }
}

impl SqliteStore {
    /// Checks that the tables can be read, and that the file is still the one that was opened. The
    /// connection that has read holds its log meanwhile; it waits for nobody who writes.
    async fn check_place(&self) -> Result<(), StoreError> {
        let one = self.statements.rare("SELECT 1 FROM {table} LIMIT 1");
        let connected = self.readers.acquire().await;
        // A file that is gone is the cause of whatever else goes wrong.
        self.writer.place.check_file().map_err(trouble::failed)?;
        let mut connection = connected.map_err(trouble::failed)?;
        let answered = sqlx::query(one).fetch_optional(&mut *connection).await;
        answered.map_err(trouble::failed)?;
        self.writer.place.check().map_err(trouble::failed)
    }

    /// The live records of a query that waits for how many there shall be.
    async fn read_all(
        &self,
        mut query: QueryBuilder<Sqlite>,
        records_max: usize,
    ) -> Result<Vec<(Slot, Record)>, StoreError> {
        query.push_bind(i64::try_from(records_max).unwrap_or(i64::MAX));
        // Its text has the time in it: nothing to keep for the next one.
        let rows = query.build().persistent(false).fetch_all(&self.readers);
        let rows = rows.await.map_err(trouble::failed)?;
        let now = self.writer.time.now();
        let mut listed = Vec::new();
        for row in rows {
            let read = || Ok((read_slot(&row)?, read_held(&row)?));
            let (slot, held) = read().map_err(|why| trouble::unreadable(&why))?;
            // Its time may have come between the row and the clock behind it.
            listed.extend(held.entry.get(now).map(|record| (slot, record)));
        }
        Ok(listed)
    }

    /// Reads the live records that the filter lets through.
    fn passing(&self, filter: &Filter) -> QueryBuilder<Sqlite> {
        let now = to_millis(self.writer.time.now());
        let select = format!(
            "SELECT {READ_COLUMNS} FROM {} WHERE state <> 'R' AND expires_at > {now}",
            self.table
        );
        let mut query = QueryBuilder::new(select);
        if let Some(state) = filter.state {
            query.push(format!(" AND {}", in_state(state, &now.to_string())));
        }
        if let Some(operation) = &filter.operation {
            query.push(" AND operation = ").push_bind(operation.clone());
        }
        if let Some(actor) = &filter.actor {
            query.push(" AND actor = ").push_bind(actor.clone());
        }
        if let Some(hint) = filter.hint {
            query.push(" AND hint = ").push_bind(hint.to_text());
        }
        if let Some(age) = filter.age_min {
            query.push(format!(" AND created_at <= {now} - "));
            query.push_bind(to_millis(age));
        }
        if let Some(age) = filter.age_max {
            query.push(format!(" AND created_at >= {now} - "));
            query.push_bind(to_millis(age));
        }
        query
    }

    /// Drops rows until `records_max` records are dropped, or nothing is over any more: what `read`
    /// makes of the `columns` of each.
    async fn sweep_all<T>(
        &self,
        records_max: usize,
        columns: &str,
        read: impl Fn(&SqliteRow, Duration) -> Result<T, sqlx::Error>,
        is_record: impl Fn(&T) -> bool,
    ) -> Result<Vec<T>, StoreError> {
        self.check_place().await?;
        let (mut dropped, mut swept) = (Vec::new(), 0);
        while swept < records_max {
            let most = SWEEP_ROWS_MAX.min(records_max - swept);
            let (rows, now) = match self.sweep_some(most, columns).await {
                Ok(some) => some,
                // What was dropped before is handed over; the next sweep says what is wrong.
                Err(_) if !dropped.is_empty() => break,
                Err(error) => return Err(trouble::failed(error)),
            };
            for row in &rows {
                let row = read(row, now).map_err(trouble::failed)?;
                swept += usize::from(is_record(&row));
                dropped.push(row);
            }
            if rows.len() < most {
                break;
            }
        }
        Ok(dropped)
    }

    /// Drops at most `most` rows: these columns of them, and when that was.
    async fn sweep_some(
        &self,
        most: usize,
        columns: &str,
    ) -> Result<(Vec<SqliteRow>, Duration), sqlx::Error> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let mut connection = self.writer.connection().await?;
        let mut transaction = begin(connection.get()).await?;
        let at = self.writer.time.now();
        let now = to_millis(at);
        self.writer
            .time
            .keep(&mut transaction, &self.statements)
            .await?;
        let due =
            "rowid IN (SELECT rowid FROM {table} WHERE sweep_at <= ? ORDER BY sweep_at LIMIT ?)";
        if self.archive {
            let archive = sqlx::query(self.statements.rare(&archive(due)));
            let archive = archive.bind(now).bind(now).bind(most);
            archive.execute(&mut *transaction).await?;
        }
        let delete = format!("DELETE FROM {{table}} WHERE {due} RETURNING {columns}");
        let delete = sqlx::query(self.statements.rare(&delete));
        let deleted = delete
            .bind(now)
            .bind(most)
            .fetch_all(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok((deleted, at))
    }

    /// Adds counts in one transaction; says what they are then.
    async fn count(&self, replays: &[(Slot, u64)]) -> Result<Vec<(Slot, u64)>, sqlx::Error> {
        let count = "UPDATE {table} SET replays = replays + ? \
                     WHERE slot = ? AND state <> 'R' AND expires_at > ? RETURNING replays";
        let now = to_millis(self.writer.time.now());
        let mut connection = self.writer.connection().await?;
        let mut transaction = begin(connection.get()).await?;
        let mut numbers = Vec::with_capacity(replays.len());
        for (slot, times) in replays {
            let count = sqlx::query_scalar::<_, i64>(self.statements.rare(count))
                .bind(i64::try_from(*times).unwrap_or(i64::MAX))
                .bind(slot.as_bytes().to_vec())
                .bind(now);
            let number = count.fetch_optional(&mut *transaction).await?;
            let number = number.and_then(|number| u64::try_from(number).ok());
            numbers.extend(number.map(|number| (*slot, number)));
        }
        transaction.commit().await?;
        Ok(numbers)
    }
}
