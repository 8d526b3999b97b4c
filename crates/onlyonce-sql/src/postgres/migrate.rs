//! The tables, made and brought up to date when a store is opened. A runner of our own: sqlx's has
//! one fixed table of what it did for a whole database, and fixed texts; here the tables' name is
//! a choice, and several stores may share a database.

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Row};

use super::trouble::{NAME, Trouble};
use crate::shared::{Migrations, Table};
use onlyonce_storekit::OpenError;

const MIGRATIONS: Migrations = Migrations {
    store: NAME,
    all: &[
        include_str!("../../migrations/postgres/0001_records.sql"),
        include_str!("../../migrations/postgres/0002_archive.sql"),
        include_str!("../../migrations/postgres/0003_complete.sql"),
    ],
};
const SERVER_VERSION_MIN: i32 = 120_000;

/// Makes the tables what this build needs. Safe when many processes do it at once: whoever comes
/// second waits, and then finds it done.
pub(super) async fn migrate(connection: &mut PgConnection, table: &Table) -> Result<(), OpenError> {
    check_server(connection).await?;
    let found = version(connection, table).await?;
    if MIGRATIONS.from(found, table)?.is_empty() {
        return Ok(());
    }
    // Whatever the role's default is: what the lock waited for must be seen.
    let begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
    let mut transaction = connection.begin_with(begin).await.map_err(refused)?;
    let lock = format!(
        "SET LOCAL statement_timeout = 0;
         SET LOCAL lock_timeout = 0;
         SELECT pg_advisory_xact_lock(hashtextextended('onlyonce {table}', 0));
         CREATE TABLE IF NOT EXISTS {table}_migrations (
            version    integer     PRIMARY KEY,
            applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
         )"
    );
    run(&mut transaction, lock).await?;
    let found = version(&mut transaction, table).await?;
    for (to, sql) in MIGRATIONS.from(found, table)? {
        let note = format!("INSERT INTO {table}_migrations (version) VALUES ({to})");
        run(&mut transaction, format!("{sql};\n{note}")).await?;
    }
    transaction.commit().await.map_err(refused)
}

async fn check_server(connection: &mut PgConnection) -> Result<(), OpenError> {
    let text = "SELECT current_setting('server_version_num')::int4 AS version,
        current_setting('server_encoding') AS encoding";
    let row = sqlx::raw_sql(text).fetch_one(connection).await;
    let row = row.map_err(refused)?;
    let version: i32 = row.try_get("version").map_err(refused)?;
    let encoding: String = row.try_get("encoding").map_err(refused)?;
    if version < SERVER_VERSION_MIN {
        return Err(unusable(
            "the server is older than PostgreSQL 12: upgrade it",
        ));
    }
    if encoding != "UTF8" && encoding != "SQL_ASCII" {
        return Err(unusable(&format!(
            "the database's encoding is {encoding}, which cannot hold every text: make one with \
             ENCODING 'UTF8'"
        )));
    }
    Ok(())
}

/// The version of the tables; 0 if there are none yet.
async fn version(connection: &mut PgConnection, table: &Table) -> Result<i64, OpenError> {
    let there = format!("SELECT to_regclass('{table}_migrations') IS NOT NULL");
    let there = sqlx::raw_sql(AssertSqlSafe(there)).fetch_one(&mut *connection);
    if !there
        .await
        .and_then(|row| row.try_get(0))
        .map_err(refused)?
    {
        return Ok(0);
    }
    let made = format!("SELECT coalesce(max(version), 0)::int8 FROM {table}_migrations");
    let made = sqlx::raw_sql(AssertSqlSafe(made)).fetch_one(connection);
    made.await.and_then(|row| row.try_get(0)).map_err(refused)
}

async fn run(connection: &mut PgConnection, text: String) -> Result<(), OpenError> {
    let ran = sqlx::raw_sql(AssertSqlSafe(text)).execute(connection).await;
    ran.map(drop).map_err(refused)
}

/// Why a store cannot be opened, without who tried and where.
pub(super) fn refused(error: sqlx::Error) -> OpenError {
    let told = error.as_database_error().and_then(|told| told.code());
    let code = told.unwrap_or_default().into_owned();
    match code.get(..2) {
        Some("28") => unusable("the server refuses the login: check user and password"),
        Some("3D") => unusable("there is no such database: create it first"),
        _ if code == "42501" => unusable(
            "its user may not create the tables: grant CREATE on the schema, or open the store \
             once as a user who may",
        ),
        _ => OpenError::Store(Trouble::from(error).into()),
    }
}

fn unusable(why: &str) -> OpenError {
    OpenError::Refused {
        store: NAME,
        why: why.to_owned(),
    }
}
