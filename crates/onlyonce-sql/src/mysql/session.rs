//! What every session of ours needs, whatever the defaults of the server and the user are.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};

use super::statements::BEGAN;

/// Locks of rows are not waited for long: a row that is locked for more than a moment is one that
/// its holder works on.
const SETTINGS: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE; \
     SET SESSION innodb_lock_wait_timeout = 1, SESSION autocommit = 1, \
     SESSION completion_type = 'NO_CHAIN', SESSION sql_select_limit = 18446744073709551615, \
     SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'";

/// The smallest `max_allowed_packet` that takes every statement but the largest answers.
const PACKET_BYTES_MIN: usize = 1 << 20;

/// What it takes to see on one node of a Galera cluster what another one acknowledged: a read waits
/// until the node has all that the cluster had agreed on when it was asked, and a node that is cut
/// off answers nothing. What the server asks for beyond that stays. Tables are made on all nodes.
const CAUSAL: &str = "SET SESSION wsrep_sync_wait = @@SESSION.wsrep_sync_wait | 1, \
     SESSION wsrep_dirty_reads = OFF, SESSION wsrep_osu_method = 'TOI'";

/// What tells whether the server is a node of a Galera cluster, and how that one stands.
const STANDING: &str = "SHOW STATUS WHERE Variable_name IN \
     ('wsrep_ready', 'wsrep_cluster_status', 'wsrep_local_state'); \
     SHOW VARIABLES WHERE Variable_name IN ('wsrep_on', 'wsrep_provider')";
const NO_PROVIDER: &str = "none";
const SYNCED: &str = "4";

/// A session that is set up.
pub(super) struct Begun {
    /// How large a statement it takes.
    pub(super) packet_bytes_max: usize,
    /// Whether the server takes writes, or why not.
    pub(super) standing: Result<Standing, &'static str>,
    /// The server's clock, in milliseconds since 1970.
    pub(super) now: i64,
}

/// How a server stands that takes writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// A server of its own, outside of any cluster.
    Alone,
    /// A node that has all of what its cluster has.
    Ready,
    /// A node that is behind its cluster, because it just joined or helps another one to join.
    Behind,
}

/// Sets up a session. With `at_most`, the server ends its statements by itself, a little before that
/// where it can: what is given up does not go on for long.
pub(super) async fn begin(
    connection: &mut MySqlConnection,
    at_most: Option<Duration>,
) -> Result<Begun, sqlx::Error> {
    let ended = at_most.map(bounds).unwrap_or_default();
    let text =
        format!("{SETTINGS}{ended}; SELECT @@SESSION.max_allowed_packet, {BEGAN}; {STANDING}");
    let rows = sqlx::raw_sql(AssertSqlSafe(text))
        .fetch_all(&mut *connection)
        .await?;
    let (first, named) = rows.split_first().ok_or(sqlx::Error::RowNotFound)?;
    let packet: u64 = first.try_get(0)?;
    let now = first.try_get(1)?;
    let mut values = BTreeMap::new();
    for row in named {
        values.insert(row.try_get::<String, _>(0)?, row.try_get::<String, _>(1)?);
    }
    let is_node = values
        .get("wsrep_provider")
        .is_some_and(|it| it != NO_PROVIDER);
    let standing = match is_node {
        true => standing(&values),
        false => Ok(Standing::Alone),
    };
    if is_node && standing.is_ok() {
        sqlx::raw_sql(CAUSAL).execute(connection).await?;
    }
    Ok(Begun {
        packet_bytes_max: usize::try_from(packet).unwrap_or(usize::MAX),
        standing,
        now,
    })
}

/// The settings that end a statement. Of the two comments, MariaDB reads the first as a statement and
/// MySQL the second, where only reading can be bounded.
fn bounds(at_most: Duration) -> String {
    let soon = (at_most - at_most / 10).max(Duration::from_millis(1));
    let seconds = soon.as_secs_f64();
    let millis = soon.as_millis();
    let locks = at_most.as_secs().clamp(1, 31_536_000);
    format!(
        ", SESSION lock_wait_timeout = {locks} \
         /*M! , SESSION max_statement_time = {seconds:.3} */ \
         /*!80000 , SESSION max_execution_time = {millis} */"
    )
}

/// How a node of a Galera cluster stands.
fn standing(values: &BTreeMap<String, String>) -> Result<Standing, &'static str> {
    let is = |name: &str, wanted: &str| values.get(name).is_some_and(|it| it == wanted);
    if !is("wsrep_on", "ON") {
        return Err("the node has wsrep_on=OFF: no other node would get what is written there");
    }
    if !is("wsrep_cluster_status", "Primary") {
        return Err("the node is cut off from the majority of its cluster");
    }
    if !is("wsrep_ready", "ON") {
        return Err("the node has wsrep_ready=OFF: it is joining its cluster, or leaving it");
    }
    Ok(match is("wsrep_local_state", SYNCED) {
        true => Standing::Ready,
        false => Standing::Behind,
    })
}

/// What is wrong with a `max_allowed_packet`, if anything is.
pub(super) fn check_packet(packet_bytes_max: usize) -> Result<(), String> {
    if packet_bytes_max >= PACKET_BYTES_MIN {
        return Ok(());
    }
    Err(format!(
        "the server's max_allowed_packet is {packet_bytes_max} bytes: set it to at least \
         {PACKET_BYTES_MIN}, and to 64 KiB more than the largest answer that is to be stored"
    ))
}
