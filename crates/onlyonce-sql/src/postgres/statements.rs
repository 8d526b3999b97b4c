//! The texts of the statements. Each decides on one row of `v`, what was asked and when, and on
//! `r`, the record's row: the conditions are written once, here, and spelled into the `.sql` files.

use std::sync::Arc;

use onlyonce_core::operate::Ended;

use crate::shared::Table;

/// One text with numbered parameters, sent prepared or with its values spelled in.
pub(super) struct Statement {
    pub(super) sql: Arc<str>,
    /// Whether repeating it after a lost reply changes nothing more.
    pub(super) repeatable: bool,
}

/// Everything this store says to its server.
pub(super) struct Statements {
    pub(super) claim: Statement,
    pub(super) renew: Statement,
    pub(super) complete: Statement,
    pub(super) complete_in: Statement,
    pub(super) lock_in: Statement,
    pub(super) release: Statement,
    pub(super) look: Statement,
    pub(super) get: Statement,
    pub(super) get_durable: Statement,
    pub(super) list: Statement,
    pub(super) newest: Statement,
    pub(super) forget: Statement,
    pub(super) extend: Statement,
    pub(super) resolve: Statement,
    pub(super) discard: Statement,
    pub(super) sweep: Statement,
    pub(super) sweep_ended: Statement,
    pub(super) stats: Statement,
    pub(super) ping: Statement,
    pub(super) count: Statement,
    pub(super) offer: Statement,
    pub(super) agreed: Statement,
    pub(super) notify: Statement,
}

/// How many dead tokens a slot remembers: the newest.
const DEAD_MAX: usize = 64;

/// What stands in braces in the texts. A later line may be used by an earlier one.
const WORDS: [(&str, &str); 20] = [
    ("record", RECORD),
    ("columns", COLUMNS),
    ("carried", CARRIED),
    ("nulls", NULLS),
    // May a claim begin this slot anew: nothing is there but what is over?
    ("fresh", "(r.expires_at <= v.now OR r.state = 'R')"),
    // May a claim have this pending record: its own again, or lapsed where both sides re-run?
    (
        "yields",
        "(r.state = 'P' AND (r.token = v.token OR (r.lease_until <= v.now AND r.rerun AND v.rerun
            AND r.fingerprint = v.fingerprint)))",
    ),
    // Was this token given back before?
    (
        "dead",
        "(r.dead_until > v.now AND EXISTS (
            SELECT FROM unnest(r.dead_tokens, r.dead_deadlines) AS d (token, deadline)
            WHERE d.token = v.token AND d.deadline > v.now))",
    ),
    (
        "held",
        "(r.state = 'P' AND r.token = v.token AND r.expires_at > v.now)",
    ),
    ("live", "(r.expires_at > v.now AND r.state <> 'R')"),
    ("resolvable", "(r.state = 'U' OR {lapsed})"),
    // Is it in the hands of a transaction of its holder, whatever its lease says? Asked only where
    // it matters: of what could be taken, and of what would be called lapsed.
    (
        "busy",
        "CASE WHEN r.state = 'P' AND (r.token = v.token OR r.lease_until <= v.now)
            THEN {locked} ELSE false END",
    ),
    ("alive", "CASE WHEN {lapsed} THEN {locked} ELSE false END"),
    ("lapsed", "(r.state = 'P' AND r.lease_until <= v.now)"),
    (
        "lease_left",
        "CASE WHEN r.state = 'P' THEN GREATEST(
            (date_part('epoch', r.lease_until - v.now) * 1000000)::int8,
            CASE WHEN busy THEN 1000000 ELSE 0 END) END",
    ),
    ("locked", "NOT pg_try_advisory_xact_lock_shared({key})"),
    ("key", KEY),
    // What is left of a record that is forgotten: its dead tokens.
    (
        "forgotten",
        "state = 'R', expires_at = GREATEST(r.dead_until, v.now), completed_at = NULL,
            operation = '', actor = NULL, hint = '', meta = '', response = NULL",
    ),
    ("promise", PROMISE),
    ("synchronous", SYNCHRONOUS),
    ("us", "interval '1 microsecond'"),
];

/// The advisory lock that tells who holds a record inside a transaction: the slot's first bytes.
const KEY: &str = "('x' || encode(substring(r.slot FROM 1 FOR 8), 'hex'))::bit(64)::int8";
const RECORD: &str = "r.state::text AS r_state, r.token AS r_token,
    r.fingerprint AS r_fingerprint, r.rerun AS r_rerun, r.attempt AS r_attempt, r.meta AS r_meta,
    (date_part('epoch', r.created_at) * 1000)::int8 AS r_created,
    (date_part('epoch', r.completed_at) * 1000)::int8 AS r_completed,
    (date_part('epoch', r.expires_at) * 1000)::int8 AS r_expires,
    (date_part('epoch', r.expires_at - v.now) * 1000000)::int8 AS r_keep_left,
    {lease_left} AS r_lease_left, r.replays AS r_replays, r.response AS r_response";
const COLUMNS: &str = "r_state, r_token, r_fingerprint, r_rerun, r_attempt, r_meta, r_created,
    r_completed, r_expires, r_keep_left, r_lease_left, r_replays, r_response";
const CARRIED: &str = "v.r_state, v.r_token, v.r_fingerprint, v.r_rerun, v.r_attempt, v.r_meta,
    v.r_created, v.r_completed, v.r_expires, v.r_keep_left, v.r_lease_left, v.r_replays,
    v.r_response";
const NULLS: &str = "NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL";

/// A finished answer that is only read is a promise too. Where commits wait for a standby, what was
/// read may have been committed without one: its commit gave up waiting, or the server restarted.
/// A message in the log makes this statement's own commit wait until the standby has all up to it.
const PROMISE: &str = "promise AS MATERIALIZED (
    SELECT count(pg_logical_emit_message(true, 'onlyonce', ''::text)) AS promises
    WHERE {synchronous}
        AND EXISTS (SELECT FROM here WHERE verdict IN ('T', 'F') AND r_state IN ('D', 'F'))
)";
/// Whether a commit waits for a standby, asked each time: both can change at any moment.
const SYNCHRONOUS: &str = "current_setting('synchronous_standby_names') <> ''
        AND current_setting('synchronous_commit') NOT IN ('off', 'local')";

const FORGET: &str = "UPDATE {table} AS r SET {forgotten}
    FROM (SELECT clock_timestamp() AS now OFFSET 0) AS v
    WHERE slot = $1::bytea AND expires_at > now AND state <> 'R'
    RETURNING slot";
const EXTEND: &str = "UPDATE {table} SET
        tail = LEAST(tail + $2::int8 * {us}, interval '35064000 hours'),
        expires_at = LEAST(expires_at + $2::int8 * {us}, timestamptz '20000-01-01 00:00:00Z')
    WHERE slot = $1::bytea AND expires_at > clock_timestamp() AND state <> 'R'
    RETURNING slot";
/// A whole table is read best from its start to its end, which the other statements must not do.
const STATS: &str = "SET LOCAL enable_seqscan = on;
    SELECT count(*) AS records, count(*) FILTER (WHERE state = 'P') AS pending,
        coalesce(sum(octet_length(response)), 0)::int8 AS bytes,
        (SELECT count(*) FROM {table}
            WHERE expires_at <= statement_timestamp() AND state <> 'R') AS expired
    FROM {table} WHERE expires_at > statement_timestamp() AND state <> 'R'";
const OFFER: &str = "INSERT INTO {table}_agreed (name, value) VALUES ($1::text, $2::bytea)
    ON CONFLICT (name) DO NOTHING";
const AGREED: &str = "WITH promise AS MATERIALIZED (
        SELECT count(pg_logical_emit_message(true, 'onlyonce', ''::text)) AS promises
        WHERE {synchronous}
    )
    SELECT value FROM {table}_agreed CROSS JOIN promise WHERE name = $1::text AND promises >= 0";
const SWEPT: &str = "SELECT count(*) AS rows, count(*) FILTER (WHERE state <> 'R') AS records";
const NOTIFY: &str = "SELECT pg_notify($1::text, told) FROM unnest($2::text[]) AS told";

impl Statements {
    /// The texts for the tables whose names begin with `table`.
    pub(super) fn new(table: &Table, archive: bool) -> Self {
        let once = |text: &str| Statement {
            sql: spell(text, table).into(),
            repeatable: false,
        };
        let statement = |text: &str| Statement {
            repeatable: true,
            ..once(text)
        };
        let complete = include_str!("complete.sql");
        let in_batch = complete
            .replace("{also}", "")
            .replace("{wait}", "SKIP LOCKED");
        let inside = complete
            .replace("{also}", ", pg_advisory_xact_lock({key}) AS locked")
            .replace("{wait}", "")
            .replace("{key}", &KEY.replace("r.slot", "v.slot"));
        let lock = include_str!("lock.sql").replace("{lock}", "pg_advisory_xact_lock({key})");
        let kept = if archive {
            include_str!("archive.sql")
        } else {
            ""
        };
        let sweep = include_str!("sweep.sql").replace("{archive}", kept);
        Self {
            claim: statement(include_str!("claim.sql")),
            renew: statement(include_str!("renew.sql")),
            complete: statement(&in_batch),
            complete_in: statement(&inside),
            lock_in: statement(&lock),
            release: statement(include_str!("release.sql")),
            look: statement(include_str!("look.sql")),
            get: statement(include_str!("get.sql")),
            get_durable: statement(include_str!("get_durable.sql")),
            list: statement(include_str!("list.sql")),
            newest: statement(include_str!("newest.sql")),
            forget: statement(FORGET),
            extend: once(EXTEND),
            resolve: statement(include_str!("resolve.sql")),
            discard: statement(include_str!("discard.sql")),
            sweep: statement(&sweep.replace("{told}", SWEPT)),
            sweep_ended: statement(&sweep.replace("{told}", &ended())),
            stats: statement(STATS),
            ping: statement("SELECT 1"),
            count: once(include_str!("count.sql")),
            offer: statement(OFFER),
            agreed: statement(AGREED),
            notify: statement(NOTIFY),
        }
    }
}

/// What is told of a row that a sweep has dropped, with an answer that is not too large.
fn ended() -> String {
    format!(
        "SELECT slot, state::text AS r_state, token AS r_token, fingerprint AS r_fingerprint,
            meta AS r_meta, replays AS r_replays,
            (date_part('epoch', expires_at - COALESCE(completed_at, created_at)) * 1000000)::int8
                AS keep_for,
            (date_part('epoch', statement_timestamp() - COALESCE(completed_at, created_at))
                * 1000000)::int8 AS lifetime,
            CASE WHEN octet_length(response) <= {} THEN response END AS r_response",
        Ended::RESPONSE_BYTES_MAX
    )
}

/// The text with every word in braces spelled out, and without the lines that are comments: not every
/// connection prepares its statements.
fn spell(text: &str, table: &Table) -> String {
    let lines: Vec<_> = text.lines().filter(|line| !is_comment(line)).collect();
    let mut text = table.fill(&lines.join("\n"));
    text = text.replace("{dead_max}", &DEAD_MAX.to_string());
    for (word, meaning) in WORDS {
        text = text.replace(&format!("{{{word}}}"), meaning);
    }
    text
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("--")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_stay_in_the_files_and_every_word_is_spelled_out() {
        for archive in [false, true] {
            let table = Table::parse("onlyonce").unwrap();
            let texts = Statements::new(&table, archive);

            for statement in [&texts.claim, &texts.complete, &texts.release, &texts.sweep] {
                let sql = &*statement.sql;
                assert!(!sql.contains("--"), "{sql}");
                assert!(!sql.contains(['{', '}']), "{sql}");
                assert!(sql.starts_with("WITH "), "{sql}");
            }
            assert_eq!(texts.sweep.sql.contains("_archive"), archive);
        }
    }
}
