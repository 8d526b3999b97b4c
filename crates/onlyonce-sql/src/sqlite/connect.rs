//! From a URL to a database file that is ready: in write-ahead mode, with our tables.

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, SqliteConnection};

use super::place::Place;
use super::statements::Statements;
use super::time::Time;
use super::trouble::{self, NAME, refused, unopened};
use super::writer::begin;
use crate::shared::{Migrations, SqlOptions, Table, split};
use onlyonce_storekit::OpenError;

const MIGRATIONS: Migrations = Migrations {
    store: NAME,
    all: &[
        include_str!("../../migrations/sqlite/0001_records.sql"),
        include_str!("../../migrations/sqlite/0002_archive.sql"),
        include_str!("../../migrations/sqlite/0003_clock.sql"),
        include_str!("../../migrations/sqlite/0004_complete.sql"),
    ],
};

/// Changing to write-ahead mode does not wait by itself: tried this often, with pauses.
const MODE_TRIES: u32 = 200;
const MODE_PAUSE: Duration = Duration::from_millis(20);

/// Options of the driver that a URL may have.
const DRIVERS: [&str; 2] = ["mode", "vfs"];

/// The options of a URL, and whether a file that is missing is to be created.
pub(super) fn parse(url: &str) -> Result<(SqlOptions, SqliteConnectOptions, bool), OpenError> {
    let (ours, url) = split(url, &DRIVERS)?;
    let (address, query) = url.split_once('?').unwrap_or((&url, ""));
    let path = address
        .trim_start_matches("sqlite:")
        .trim_start_matches("//");
    if path.is_empty() {
        let why = "it names no file, as in sqlite:./onlyonce.db".to_owned();
        return Err(OpenError::Url { why });
    }
    let has = |option: &str| query.split('&').any(|it| it == option);
    if path == ":memory:" || has("mode=memory") {
        return Err(refused(
            "a database in memory is of no use to another process: name a file, or use memory: instead",
        ));
    }
    if has("mode=ro") {
        return Err(refused("it must be written: leave out mode=ro"));
    }
    let options = SqliteConnectOptions::from_str(&url).map_err(|error| OpenError::Url {
        why: error.to_string(),
    })?;
    let creates = !has("mode=rw");
    Ok((ours, options.create_if_missing(creates), creates))
}

/// A file that cannot be looked at.
pub(super) fn unusable(path: &Path, error: &io::Error) -> OpenError {
    refused(format!("file {} cannot be used: {error}", path.display()))
}

/// What every connection of ours needs: an answer is durable once its commit is, and a lock that
/// another holds is waited for.
pub(super) fn durable(options: SqliteConnectOptions, timeout: Duration) -> SqliteConnectOptions {
    options
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(timeout)
        .disable_statement_logging()
}

/// A pool of connections that read.
pub(super) fn readers(connections: u32, options: SqliteConnectOptions) -> SqlitePool {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .test_before_acquire(false)
        .connect_lazy_with(options)
}

/// A database that is ready.
pub(super) struct Ready {
    pub(super) place: Place,
    pub(super) time: Time,
}

/// Makes the database ready: safe with many processes at once.
pub(super) async fn prepare(
    options: &SqliteConnectOptions,
    statements: &Statements,
    table: &Table,
) -> Result<Ready, OpenError> {
    let mut connection = options.connect().await.map_err(unopened)?;
    let files: Vec<String> = sqlx::query_scalar("SELECT file FROM pragma_database_list")
        .fetch_all(&mut connection)
        .await
        .map_err(unopened)?;
    let Some(file) = files.into_iter().next().filter(|file| !file.is_empty()) else {
        return Err(refused(
            "a database in memory is of no use to another process: use a file, or a MemoryStore",
        ));
    };
    let file = PathBuf::from(file);
    write_ahead(&mut connection).await?;
    migrate(&mut connection, statements, table).await?;
    let time = Time::resume(&mut connection, statements).await;
    Ok(Ready {
        time: time.map_err(unopened)?,
        place: Place::of(file.clone()).map_err(|error| unusable(&file, &error))?,
    })
}

/// With a write-ahead log readers do not wait for who writes, nor the other way round.
async fn write_ahead(connection: &mut SqliteConnection) -> Result<(), OpenError> {
    for _ in 0..MODE_TRIES {
        let mode = sqlx::query_scalar::<_, String>("PRAGMA journal_mode = WAL");
        match mode.fetch_one(&mut *connection).await {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(_) => {
                return Err(refused(
                    "its file cannot have a write-ahead log: put it on a local disk",
                ));
            }
            Err(error) if trouble::is_busy(&error) => tokio::time::sleep(MODE_PAUSE).await,
            Err(error) => return Err(unopened(error)),
        }
    }
    Err(refused(
        "another process has its file locked: wait for it, or stop it",
    ))
}

async fn migrate(
    connection: &mut SqliteConnection,
    statements: &Statements,
    table: &Table,
) -> Result<(), OpenError> {
    if version(connection, statements).await.map_err(unopened)? == Some(MIGRATIONS.latest()) {
        return Ok(());
    }
    let mut transaction = begin(connection).await.map_err(unopened)?;
    let found = version(&mut transaction, statements)
        .await
        .map_err(unopened)?;
    for (to, sql) in MIGRATIONS.from(found.unwrap_or(0), table)? {
        let sql = format!(
            "{sql};
             CREATE TABLE IF NOT EXISTS {{table}}_schema (version INTEGER NOT NULL);
             DELETE FROM {{table}}_schema;
             INSERT INTO {{table}}_schema (version) VALUES ({to})"
        );
        let migration = sqlx::raw_sql(statements.rare(&sql));
        migration
            .execute(&mut *transaction)
            .await
            .map_err(unopened)?;
    }
    transaction.commit().await.map_err(unopened)
}

/// The version of the schema; nothing if there is none yet.
async fn version(
    connection: &mut SqliteConnection,
    statements: &Statements,
) -> Result<Option<i64>, sqlx::Error> {
    let known = statements.rare(
        "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = '{table}_schema'",
    );
    let known: i64 = sqlx::query_scalar(known)
        .fetch_one(&mut *connection)
        .await?;
    if known == 0 {
        return Ok(None);
    }
    let version = statements.rare("SELECT MAX(version) FROM {table}_schema");
    sqlx::query_scalar(version).fetch_one(connection).await
}
