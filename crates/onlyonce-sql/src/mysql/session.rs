//! What every session of ours needs, whatever the defaults of the server and the user are.

use std::time::Duration;

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};

/// Locks of rows are not waited for long: a row that is locked for more than a moment is one that
/// its holder works on.
const SETTINGS: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE; \
     SET SESSION innodb_lock_wait_timeout = 1, SESSION autocommit = 1, \
     SESSION completion_type = 'NO_CHAIN', SESSION sql_select_limit = 18446744073709551615, \
     SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'";

/// The smallest `max_allowed_packet` that takes every statement but the largest answers.
const PACKET_BYTES_MIN: usize = 1 << 20;

/// Sets up a session whose statements the server ends by itself, a little before `at_most` where it
/// can: what is given up does not go on for long. Returns how large a statement it takes.
///
/// Of the two comments, MariaDB reads the first as a statement and MySQL the second, where only
/// reading can be bounded.
pub(super) async fn begin(
    connection: &mut MySqlConnection,
    at_most: Duration,
) -> Result<usize, sqlx::Error> {
    let soon = (at_most - at_most / 10).max(Duration::from_millis(1));
    let seconds = soon.as_secs_f64();
    let millis = soon.as_millis();
    let locks = at_most.as_secs().clamp(1, 31_536_000);
    let text = format!(
        "{SETTINGS}, SESSION lock_wait_timeout = {locks} \
         /*M! , SESSION max_statement_time = {seconds:.3} */ \
         /*!80000 , SESSION max_execution_time = {millis} */; \
         SELECT @@SESSION.max_allowed_packet"
    );
    let row = sqlx::raw_sql(AssertSqlSafe(text)).fetch_one(connection);
    let packet: u64 = row.await?.try_get(0)?;
    Ok(usize::try_from(packet).unwrap_or(usize::MAX))
}

/// Sets up a session for what may take its time.
pub(super) async fn begin_patient(connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(SETTINGS).execute(connection).await.map(drop)
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
