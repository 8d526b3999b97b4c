//! One atomic step on one row, as the reference store decides it: read the row, decide, and write
//! it if it is still as it was read. Nothing is locked while we decide.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::entry::Change;
use onlyonce_core::operate::Ended;
use onlyonce_core::{Clock, Record, Slot, State, StoreError, SystemClock, Token};

use super::lines::Lines;
use super::rows::{self, Row, Seen, Write};
use super::statements::{ARCHIVE, NOW, Statements};
use super::text::Text;
use super::trouble::{Then, Trouble, too_large, unreadable};
use crate::shared::{Replaced, Waiters};
use crate::steps::{Columns, Held, from_millis};

/// What the store's parts share.
pub(super) struct Server {
    pub(super) lines: Lines,
    pub(super) statements: Statements,
    pub(super) waiters: Arc<Waiters>,
    pub(super) archive: bool,
    pub(super) replaced: Replaced,
    pub(super) clock: SystemClock,
}

/// What became of a step.
pub(super) enum Stepped<T> {
    Took(T),
    /// Somebody has the row locked for more than a moment: it is as good as alive. This is how it
    /// was before, and when.
    Locked(Held, Duration),
}

/// A row as it was last committed.
pub(super) struct Read {
    pub(super) held: Held,
    /// Which of its states that is; nothing if there is no row.
    seen: Option<Seen>,
    /// When it was read.
    pub(super) now: Duration,
    /// Whether somebody had it locked, where that was asked.
    locked: bool,
}

/// A row that is locked for this long is one that its holder works on.
const LOCKED_MIN: Duration = Duration::from_secs(1);
/// How long a step is tried again that others are faster than: less than a caller waits, so that it
/// hears of a race and not of a store that does not answer.
const RACED_MAX: Duration = Duration::from_secs(2);
/// For how long a claim counts as alive whose row is locked: then it is looked at again.
const LOCKED_ALIVE: Duration = Duration::from_secs(1);
/// Between two looks at a row that somebody else was faster to change, or has locked.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// What a row takes besides its answer.
const ROW_SLACK_BYTES: usize = 64 << 10;

impl Server {
    /// The largest answer that fits a statement, together with the rest of its row.
    pub(super) fn response_bytes_max(&self) -> usize {
        self.lines
            .packet_bytes_max()
            .saturating_sub(ROW_SLACK_BYTES)
    }

    /// Takes a step on the slot's row.
    pub(super) async fn step<T>(
        &self,
        slot: &Slot,
        step: impl Fn(&mut Held, Duration) -> (T, Change),
    ) -> Result<Stepped<T>, StoreError> {
        let started = self.clock.now();
        let mut pause = PAUSE_MIN;
        // Since when, and in which state, somebody has had the row locked all the time.
        let mut locked: Option<(Duration, Option<Seen>)> = None;
        loop {
            let read = self
                .read_with(&self.statements.read_and_probe(slot))
                .await?;
            let mut held = read.held.clone();
            let (told, change) = step(&mut held, read.now);
            if change == Change::Nothing {
                return Ok(Stepped::Took(told));
            }
            if !read.locked && self.write(slot, &read, &held).await? {
                if change == Change::Settled {
                    self.waiters.wake(slot);
                }
                return Ok(Stepped::Took(told));
            }
            let now = self.clock.now();
            locked = match locked {
                _ if !read.locked => None,
                Some((since, seen)) if seen == read.seen => Some((since, seen)),
                Some(_) | None => Some((now, read.seen)),
            };
            if matches!(&locked, Some((since, _)) if now.saturating_sub(*since) > LOCKED_MIN) {
                return Ok(Stepped::Locked(read.held, read.now));
            }
            if now.saturating_sub(started) > self.lines.terms().timeout.min(RACED_MAX) {
                return Err(Trouble::raced().to_error());
            }
            tokio::time::sleep(pause).await;
            pause = PAUSE_MAX.min(pause * 2);
        }
    }

    /// The same, for what has to wait until a locked row is free.
    pub(super) async fn step_at_last<T>(
        &self,
        slot: &Slot,
        step: impl Fn(&mut Held, Duration) -> (T, Change),
    ) -> Result<T, StoreError> {
        let started = self.clock.now();
        loop {
            if let Stepped::Took(told) = self.step(slot, &step).await? {
                return Ok(told);
            }
            if self.clock.now().saturating_sub(started) > self.lines.terms().timeout {
                return Err(Trouble::locked().to_error());
            }
        }
    }

    /// The slot's row as it was last committed.
    pub(super) async fn read(&self, slot: &Slot) -> Result<Read, StoreError> {
        self.read_with(&self.statements.read_one(slot)).await
    }

    async fn read_with(&self, text: &Text) -> Result<Read, StoreError> {
        let answered = self.lines.read(text).await?;
        let clock = answered.rows.first().and_then(|row| row.int(0).ok());
        let now = from_millis(clock.ok_or_else(|| Trouble::late().to_error())?);
        let Some((_, row)) = answered.rows.get(1).and_then(Row::read) else {
            return Ok(Read {
                held: Held::default(),
                seen: None,
                now,
                locked: false,
            });
        };
        Ok(Read {
            held: row.held.map_err(|why| unreadable(&why))?,
            seen: Some(row.seen),
            now: row.now,
            locked: answered.rows.len() == 2,
        })
    }

    /// Whether a pending claim of `token` is one whose row somebody has locked.
    pub(super) async fn is_locked(&self, slot: &Slot, token: &Token) -> Result<bool, StoreError> {
        let answered = self.lines.read(&self.statements.probe(slot, token)).await?;
        Ok(answered.rows.len() == 1)
    }

    /// Writes what was decided; false if it has to be decided anew.
    async fn write(&self, slot: &Slot, read: &Read, held: &Held) -> Result<bool, StoreError> {
        let was_live = read.held.entry.live(read.now).is_some();
        let seen = read.seen.as_ref();
        let Some(write) = rows::write(&self.statements, slot, seen, held, was_live, read.now)
        else {
            return Ok(true);
        };
        let answer = held.entry.kept.as_ref().map_or(0, |kept| kept.bytes());
        if answer > self.response_bytes_max() {
            return Err(too_large().to_error());
        }
        let replaced = !was_live && read.held.entry.kept.is_some();
        let written = match seen {
            Some(seen) if self.archive && replaced => self.replace(slot, seen, write).await,
            Some(_) | None => self.run(write).await,
        };
        match written {
            Ok(rows) => {
                let before = read.held.entry.kept.as_ref();
                let ended = before.and_then(|kept| Ended::of_kept(*slot, kept, read.now));
                if let Some(ended) = ended.filter(|_| rows > 0) {
                    self.replaced.add(ended);
                }
                Ok(rows > 0)
            }
            Err(trouble) => match trouble.then {
                // If it was written before the connection broke, reading tells.
                Then::Repeat | Then::Duplicate | Then::Reconnect | Then::Locked => Ok(false),
                Then::Split | Then::Tell => Err(trouble.to_error()),
            },
        }
    }

    async fn run(&self, write: Write) -> Result<u64, Trouble> {
        let mut line = self.lines.line().await?;
        let written = line.run(write).await;
        if written.is_ok() {
            line.keep();
        }
        Ok(written?.rows_affected())
    }

    /// Writes over an expired record once that is in the archive.
    async fn replace(&self, slot: &Slot, seen: &Seen, write: Write) -> Result<u64, Trouble> {
        let mut archive = Text::transaction();
        archive.sql(&self.statements.fill(&ARCHIVE.replace("{now}", NOW)));
        archive.sql("slot = ").bytes(slot.as_bytes());
        archive
            .sql(" AND revision = ")
            .int(seen.revision)
            .sql(" FOR UPDATE");
        let mut line = self.lines.line().await?;
        line.ask(&archive).await?;
        let written = line.run(write).await?.rows_affected();
        let end = if written == 0 { "ROLLBACK" } else { "COMMIT" };
        line.ask(&Text::of(end)).await?;
        line.keep();
        Ok(written)
    }
}

/// A record whose row is locked: its holder works on it, whatever its lease says.
pub(super) fn alive(mut record: Record) -> Record {
    if let State::Pending { lease_left } = &mut record.state {
        *lease_left = LOCKED_ALIVE.max(*lease_left);
    }
    record
}
