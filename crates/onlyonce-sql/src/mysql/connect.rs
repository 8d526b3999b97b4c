//! From a URL to a server that is fit, and tables that are there.

use std::str::FromStr;
use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, Row};

use super::hosts;
use super::nodes::Nodes;
use super::session;
use super::trouble::{NAME, Then, Trouble, refused, unopened};
use crate::shared::{Migrations, SqlOptions, Table, split};
use onlyonce_storekit::OpenError;

const MIGRATIONS: Migrations = Migrations {
    store: NAME,
    all: &[
        include_str!("../../migrations/mysql/0001_records.sql"),
        include_str!("../../migrations/mysql/0002_archive.sql"),
        include_str!("../../migrations/mysql/0003_complete.sql"),
    ],
};

/// Options of the driver that a URL may have.
const DRIVERS: [&str; 14] = [
    "ssl-mode",
    "sslmode",
    "ssl-ca",
    "sslca",
    "ssl-cert",
    "sslcert",
    "ssl-key",
    "sslkey",
    "charset",
    "collation",
    "socket",
    "statement-cache-capacity",
    "timezone",
    "time-zone",
];

/// The oldest servers that can skip locked rows.
const MARIADB_MIN: (u32, u32) = (10, 6);
const MYSQL_MIN: (u32, u32) = (8, 0);

const MIGRATE_LOCK_SECONDS: u32 = 60;
/// How often it is tried again after somebody on another node was faster.
const RACES_MAX: u32 = 20;
const RACE_PAUSE: Duration = Duration::from_millis(20);

/// The options of a URL, and the servers that it names.
pub(super) fn parse(url: &str) -> Result<(SqlOptions, Vec<MySqlConnectOptions>), OpenError> {
    let (ours, url) = split(url, &DRIVERS)?;
    // The URL itself stays untold: it holds credentials.
    let read = |url: &String| {
        MySqlConnectOptions::from_str(url).map_err(|_| OpenError::Url {
            why: "host, port, database or an option of the connection is wrong, as opposed to mysql://user:password@host:3306/database".to_owned(),
        })
    };
    let servers: Result<_, _> = hosts::each(&url)?.iter().map(read).collect();
    Ok((ours, servers?))
}

/// Makes the database ready: safe with many processes at once. Says how large a statement the
/// server takes.
pub(super) async fn prepare(nodes: &Nodes, table: &Table) -> Result<usize, OpenError> {
    let first = nodes.current();
    let reached = nodes.reach(&first, true).await.map_err(unopened)?;
    nodes.settle(&first, &reached);
    let mut connection = reached.connection;
    let packet_bytes_max = check_server(&mut connection).await?;
    let mut races = 0;
    // The lock that keeps processes apart is that of one node: on others they are in each other's
    // way, and see it by the errors of statements that were too late. Each may be run again.
    while let Err(error) = bring_up(&mut connection, table).await {
        match error {
            Raised::Raced(_) if races < RACES_MAX => {
                races += 1;
                tokio::time::sleep(RACE_PAUSE * races).await;
            }
            Raised::Raced(trouble) => return Err(unopened(trouble)),
            Raised::Open(error) => return Err(error),
        }
    }
    Ok(packet_bytes_max)
}

/// Why the tables are not there.
enum Raised {
    /// Somebody else made them at the same time, on another node.
    Raced(Trouble),
    Open(OpenError),
}

impl From<sqlx::Error> for Raised {
    fn from(error: sqlx::Error) -> Self {
        let trouble = Trouble::from(error);
        match trouble.then {
            Then::Repeat | Then::Duplicate => Self::Raced(trouble),
            Then::Reconnect | Then::Locked | Then::Split | Then::Tell => {
                Self::Open(unopened(trouble))
            }
        }
    }
}

impl From<OpenError> for Raised {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

async fn bring_up(connection: &mut MySqlConnection, table: &Table) -> Result<(), Raised> {
    let found = version(connection, table).await?;
    if found == Some(MIGRATIONS.latest()) {
        return Ok(());
    }
    // Known to be of the future, it needs no lock to be refused.
    MIGRATIONS.from(found.unwrap_or(0), table)?;
    migrate(connection, table).await
}

async fn check_server(connection: &mut MySqlConnection) -> Result<usize, OpenError> {
    let asked = "SELECT VERSION(), DATABASE(), @@log_bin, @@binlog_format, @@max_allowed_packet";
    let row = sqlx::raw_sql(asked)
        .fetch_one(connection)
        .await
        .map_err(unopened)?;
    let version: String = row.try_get(0).map_err(unopened)?;
    let database: Option<String> = row.try_get(1).map_err(unopened)?;
    let logs: i64 = row.try_get(2).map_err(unopened)?;
    let format: String = row.try_get(3).map_err(unopened)?;
    let packet: u64 = row.try_get(4).map_err(unopened)?;
    if database.is_none() {
        return Err(refused(
            "the URL names no database, as in mysql://host/database",
        ));
    }
    if is_too_old(&version) {
        return Err(refused(format!(
            "the server is of version {version}: it must be MariaDB 10.6, or MySQL 8.0, or later"
        )));
    }
    if logs != 0 && format.eq_ignore_ascii_case("STATEMENT") {
        return Err(refused(
            "the server's binlog_format is STATEMENT: set it to MIXED or ROW",
        ));
    }
    let packet_bytes_max = usize::try_from(packet).unwrap_or(usize::MAX);
    session::check_packet(packet_bytes_max).map_err(refused)?;
    Ok(packet_bytes_max)
}

/// Whether `version`, as in `10.11.6-MariaDB` or `8.0.36`, is too old. One that cannot be read is
/// taken to be new.
fn is_too_old(version: &str) -> bool {
    let mut numbers = version.split(['.', '-']).map_while(|it| it.parse().ok());
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        return false;
    };
    let oldest = if version.to_ascii_lowercase().contains("mariadb") {
        MARIADB_MIN
    } else {
        MYSQL_MIN
    };
    (major, minor) < oldest
}

/// One process at a time: the server takes no table back with a transaction.
async fn migrate(connection: &mut MySqlConnection, table: &Table) -> Result<(), Raised> {
    // Named after the database too, for these locks are the whole server's; hashed to fit.
    let name = format!("SHA1(CONCAT('onlyonce/', DATABASE(), '/{table}'))");
    let lock = format!("SELECT GET_LOCK({name}, {MIGRATE_LOCK_SECONDS})");
    let locked: Option<i64> = sqlx::query_scalar(AssertSqlSafe(lock))
        .fetch_one(&mut *connection)
        .await?;
    if locked != Some(1) {
        return Err(Raised::Open(refused(
            "another process is making its tables, and does not come to an end: look at it, or try again",
        )));
    }
    let migrated = migrate_locked(connection, table).await;
    let unlock = sqlx::raw_sql(AssertSqlSafe(format!(
        "ROLLBACK; SELECT RELEASE_LOCK({name})"
    )));
    let unlocked = unlock.execute(connection).await;
    migrated?;
    unlocked?;
    Ok(())
}

async fn migrate_locked(connection: &mut MySqlConnection, table: &Table) -> Result<(), Raised> {
    let found = version(connection, table).await?.unwrap_or(0);
    for (to, sql) in MIGRATIONS.from(found, table)? {
        // Never back: on another node of a cluster somebody may be further already.
        let sql = format!(
            "{sql};
             CREATE TABLE IF NOT EXISTS {table}_schema (version BIGINT NOT NULL PRIMARY KEY) ENGINE = InnoDB;
             START TRANSACTION;
             DELETE FROM {table}_schema WHERE version < {to};
             INSERT INTO {table}_schema (version) SELECT {to} FROM DUAL
                 WHERE NOT EXISTS (SELECT 1 FROM {table}_schema WHERE version >= {to});
             COMMIT"
        );
        let migration = sqlx::raw_sql(AssertSqlSafe(sql));
        migration.execute(&mut *connection).await?;
    }
    Ok(())
}

/// The version of the schema; nothing if there is none yet.
async fn version(connection: &mut MySqlConnection, table: &Table) -> Result<Option<i64>, Raised> {
    let known = format!(
        "SELECT COUNT(*) FROM information_schema.tables \
         WHERE table_schema = DATABASE() AND table_name = '{table}_schema'"
    );
    let known: i64 = sqlx::query_scalar(AssertSqlSafe(known))
        .fetch_one(&mut *connection)
        .await?;
    if known == 0 {
        return Ok(None);
    }
    let version = format!("SELECT MAX(version) FROM {table}_schema");
    let version = sqlx::query_scalar(AssertSqlSafe(version));
    Ok(version.fetch_one(connection).await?)
}

#[cfg(test)]
mod tests {
    use super::is_too_old;

    #[test]
    fn servers_that_cannot_skip_locked_rows_are_too_old() {
        for old in [
            "10.5.23-MariaDB",
            "5.7.44-log",
            "10.3.39-MariaDB-0+deb10u2",
            "5.5.68-MariaDB",
        ] {
            assert!(is_too_old(old), "{old}");
        }
        for new in [
            "10.6.1-MariaDB",
            "11.4.2-MariaDB-log",
            "8.0.36",
            "9.1.0",
            "8.4.0-commercial",
            "?",
        ] {
            assert!(!is_too_old(new), "{new}");
        }
    }
}
