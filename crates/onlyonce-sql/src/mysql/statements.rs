//! Every statement about one table.

use std::time::Duration;

use onlyonce_core::operate::{Filter, Newest};
use onlyonce_core::{Claim, Slot, Token};
use sqlx::AssertSqlSafe;

use super::text::Text;
use super::verbs::{Claiming, Completing};
use crate::shared::Table;
use crate::steps::{Cells, Held, READ_COLUMNS, WRITTEN, in_state, to_millis};

/// When a statement began, in milliseconds since 1970, whatever the session's time zone. For
/// reading: what it reads was true then or later, so what it finds lapsed had lapsed.
pub(super) const BEGAN: &str =
    "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)";

/// The very moment, likewise. For writing: a statement may have waited for a lock.
pub(super) const NOW: &str = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) DIV 1000 \
     - TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), NOW()) * 1000)";

/// How much a single value adds to a statement besides its digits, near enough.
pub(super) const SPELLING_BYTES: usize = 1024;

pub(super) struct Statements {
    pub(super) table: Table,
    claim_head: String,
    claim_tail: String,
    complete: String,
    select: String,
}

impl Statements {
    pub(super) fn new(table: Table) -> Self {
        let columns = WRITTEN.join(", ");
        Self {
            claim_head: table.fill(&format!(
                "INSERT INTO {{table}} (slot, revision, {columns}) \
                 SELECT v.slot, v.revision, 'P', v.token, v.fingerprint, v.rerun, 1, n.now, NULL, \
                 n.now + v.lease, n.now + v.keep, v.tail, 0, v.operation, v.actor, v.hint, \
                 v.meta, '', n.now + v.keep, 0, NULL \
                 FROM (SELECT {NOW} AS now) AS n CROSS JOIN ("
            )),
            claim_tail: table.fill(
                ") AS v WHERE NOT EXISTS (SELECT 1 FROM {table} AS r WHERE r.slot = v.slot) \
                 ORDER BY v.slot ON DUPLICATE KEY UPDATE {table}.revision = {table}.revision;",
            ),
            // Assignments are made from left to right: later ones see the earlier ones.
            complete: table.fill(&format!(
                "UPDATE {{table}} SET completed_at = {NOW}, lease_until = NULL, \
                 revision = revision + 1, "
            )),
            select: table.fill(&format!(
                "SELECT {READ_COLUMNS}, revision, {BEGAN} FROM {{table}} "
            )),
            table,
        }
    }

    pub(super) fn fill(&self, sql: &str) -> String {
        self.table.fill(sql)
    }

    /// Claims slots that have no row, and reads all their rows. A row that is there is left alone:
    /// a replay locks nothing, and waits for nobody. Sorted by slot, or batches would get into
    /// each other's way.
    pub(super) fn claim(&self, claims: &[&Claiming]) -> Text {
        let mut text = Text::of(&*self.claim_head);
        let mut last = None;
        for it in claims {
            // Further claims for the same slot are judged by what is read.
            if last == Some(it.claim.slot) {
                continue;
            }
            if last.is_some() {
                text.sql(" UNION ALL ");
            }
            last = Some(it.claim.slot);
            spell(&mut text, &it.claim, it.revision);
        }
        text.sql(&self.claim_tail);
        self.append_read(&mut text, claims.iter().map(|it| &it.claim.slot));
        text
    }

    /// Reads the clock, and one row.
    pub(super) fn read_one(&self, slot: &Slot) -> Text {
        let mut text = Text::of(format!("SELECT {BEGAN};"));
        self.append_read(&mut text, [slot]);
        text
    }

    /// The same, and once more unless somebody has the row locked.
    pub(super) fn read_and_probe(&self, slot: &Slot) -> Text {
        let mut text = self.read_one(slot);
        text.sql(&self.fill("; SELECT state FROM {table} WHERE slot = "));
        text.bytes(slot.as_bytes()).sql(" FOR UPDATE SKIP LOCKED");
        text
    }

    fn append_read<'a>(&self, text: &mut Text, slots: impl IntoIterator<Item = &'a Slot>) {
        text.sql(&self.select).sql("WHERE slot IN (");
        text.list(slots, |text, slot| text.bytes(slot.as_bytes()));
        text.sql(")");
    }

    /// Reads a pending claim, and once more unless somebody has its row locked.
    pub(super) fn probe(&self, slot: &Slot, token: &Token) -> Text {
        let mut text = Text::default();
        for skip in [";", " FOR UPDATE SKIP LOCKED"] {
            text.sql(&self.fill("SELECT state FROM {table} WHERE slot = "));
            text.bytes(slot.as_bytes()).sql(" AND token = ");
            text.bytes(token.as_bytes())
                .sql(" AND state = 'P' AND expires_at > ");
            text.sql(BEGAN).sql(skip);
        }
        text
    }

    /// Completes claims that are still held, each by a statement of its own that says whether it
    /// did, and reads when; all in one transaction.
    pub(super) fn complete(&self, completions: &[&Completing]) -> Text {
        let mut text = Text::transaction();
        for it in completions {
            text.sql(&self.complete).sql(match it.is_failure {
                true => "state = 'F', response = ",
                false => "state = 'D', response = ",
            });
            text.bytes(&it.response);
            text.sql(", bytes = LENGTH(response), expires_at = completed_at + ");
            // What an operator has added while it ran counts on.
            text.int(it.keep_for).sql(" + GREATEST(0, tail - ");
            text.int(it.asked_for).sql(")");
            text.sql(", sweep_at = IF(dead = '', expires_at, GREATEST(expires_at, sweep_at))");
            text.sql(" WHERE slot = ").bytes(it.lease.slot.as_bytes());
            text.sql(" AND token = ").bytes(it.lease.token.as_bytes());
            text.sql(" AND state = 'P' AND expires_at > ")
                .sql(NOW)
                .sql(";");
        }
        text.sql(&self.fill(
            "SELECT slot, created_at, completed_at, expires_at FROM {table} WHERE slot IN (",
        ));
        text.list(completions, |text, it| text.bytes(it.lease.slot.as_bytes()));
        text.sql("); COMMIT");
        text
    }

    /// Reads whose claims these slots hold, and until when.
    pub(super) fn look(&self, slots: &[&Slot]) -> Text {
        let mut text = Text::of(self.fill(&format!(
            "SELECT slot, token, lease_until - {BEGAN} FROM {{table}} \
             WHERE state = 'P' AND lease_until > {BEGAN} AND expires_at > {BEGAN} AND slot IN ("
        )));
        text.list(slots, |text, slot| text.bytes(slot.as_bytes()));
        text.sql(")");
        text
    }

    /// Locks a claim that is held, inside somebody's transaction.
    pub(super) fn lock_in(&self) -> AssertSqlSafe<String> {
        AssertSqlSafe(self.fill(&format!(
            "SELECT state FROM {{table}} \
             WHERE slot = ? AND token = ? AND state = 'P' AND expires_at > {NOW} FOR UPDATE"
        )))
    }

    /// Reads and locks a row inside somebody's transaction.
    pub(super) fn read_locked(&self) -> AssertSqlSafe<String> {
        AssertSqlSafe(format!("{}WHERE slot = ? FOR UPDATE", self.select))
    }

    pub(super) fn clock(&self) -> AssertSqlSafe<String> {
        AssertSqlSafe(format!("SELECT {NOW}"))
    }

    /// Reads a page of live records in the order of their slots.
    pub(super) fn list(&self, filter: &Filter, after: Option<&Slot>, records_max: i64) -> Text {
        let mut text = self.passing(filter);
        if let Some(after) = after {
            text.sql(" AND slot > ").bytes(after.as_bytes());
        }
        text.sql(" ORDER BY slot LIMIT ").int(records_max);
        text
    }

    /// Reads a page of live records, the newest first.
    pub(super) fn newest(&self, filter: &Filter, page: &Newest, records_max: i64) -> Text {
        let mut text = self.passing(filter);
        if let Some((at, slot)) = &page.before {
            let at = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
            text.sql(" AND (created_at < ").int(at);
            text.sql(" OR created_at = ").int(at);
            text.sql(" AND slot < ").bytes(slot.as_bytes()).sql(")");
        }
        text.sql(" ORDER BY created_at DESC, slot DESC LIMIT ");
        text.int(records_max);
        text
    }

    /// Reads the live records that the filter lets through.
    fn passing(&self, filter: &Filter) -> Text {
        let mut text = Text::of(&*self.select);
        text.sql("WHERE state <> 'R' AND expires_at > ").sql(BEGAN);
        if let Some(state) = filter.state {
            text.sql(" AND ").sql(&in_state(state, BEGAN));
        }
        // Its collation takes texts that differ in spaces at their ends for the same.
        for (column, wanted) in [("operation", &filter.operation), ("actor", &filter.actor)] {
            if let Some(wanted) = wanted {
                text.sql(" AND CAST(").sql(column).sql(" AS BINARY) = ");
                text.bytes(wanted.as_bytes());
            }
        }
        if let Some(hint) = filter.hint {
            text.sql(" AND hint = ").text(&hint.to_text());
        }
        if let Some(age) = filter.age_min {
            text.sql(" AND created_at <= ").sql(BEGAN).sql(" - ");
            text.int(to_millis(age));
        }
        if let Some(age) = filter.age_max {
            text.sql(" AND created_at >= ").sql(BEGAN).sql(" - ");
            text.int(to_millis(age));
        }
        text
    }
}

/// Copies finished records to the archive.
pub(super) const ARCHIVE: &str = "INSERT INTO {table}_archive (archived_at, slot, state, token, \
     fingerprint, attempt, created_at, completed_at, expired_at, replays, operation, actor, hint, \
     meta, response) SELECT {now}, slot, state, token, fingerprint, attempt, created_at, \
     completed_at, expires_at, replays, operation, actor, hint, meta, response FROM {table} \
     WHERE state IN ('D', 'F') AND ";

/// The row that `claim` would make, with its deadlines counted from its claim.
fn spell(text: &mut Text, claim: &Claim, revision: i64) {
    let mut held = Held::default();
    held.claim(claim, Duration::ZERO);
    let Some(cells) = Cells::of(&held, Duration::ZERO) else {
        return;
    };
    text.sql("SELECT ")
        .bytes(claim.slot.as_bytes())
        .sql(" AS slot,");
    text.int(revision).sql(" AS revision,");
    text.bytes(&cells.token).sql(" AS token,");
    text.bytes(&cells.fingerprint).sql(" AS fingerprint,");
    text.int(i64::from(cells.rerun)).sql(" AS rerun,");
    text.int(cells.lease_until.unwrap_or(0)).sql(" AS lease,");
    text.int(cells.expires_at).sql(" AS keep,");
    text.int(cells.tail).sql(" AS tail,");
    text.text(&cells.operation).sql(" AS operation,");
    match &cells.actor {
        Some(actor) => text.text(actor),
        None => text.sql("NULL"),
    };
    text.sql(" AS actor,").text(&cells.hint).sql(" AS hint,");
    text.bytes(&cells.meta).sql(" AS meta");
}
