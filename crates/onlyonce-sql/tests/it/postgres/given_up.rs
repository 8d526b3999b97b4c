//! What a caller no longer waits for: the server is not left with more of it than there are
//! connections.

use onlyonce_core::{Operate, Store, StoreErrorKind};
use onlyonce_sql::PostgresStore;

use super::bed::{Bed, direct_url, with_options};
use super::support::{done, fresh, until};

const CONNECTIONS: i64 = 2;

/// A store with two connections and little patience on the same tables, known by its name.
async fn hasty(bed: &Bed, options: &str) -> PostgresStore {
    let table = &bed.table;
    let options = format!(
        "table={table}&application_name={table}&connections={CONNECTIONS}&timeout_ms=200\
         &notify=false{options}"
    );
    let store = PostgresStore::open(&with_options(&direct_url(), &options)).await;
    store.unwrap()
}

async fn backends(bed: &Bed) -> i64 {
    let name = &bed.table;
    let count = format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}'");
    bed.number(count).await
}

async fn give_up_often(bed: &Bed, store: &PostgresStore) {
    for _ in 0..15 {
        let claimed = store.claim(&fresh()).await;
        assert_eq!(claimed.unwrap_err().kind, StoreErrorKind::Unavailable);
    }
    // One more that cancels. What was closed is gone a moment later.
    until(async || backends(bed).await <= CONNECTIONS + 1).await;
}

#[tokio::test]
async fn behind_a_locked_table_backends_do_not_pile_up() {
    let bed = Bed::direct().await;
    let table = &bed.table;
    for options in ["", "&pooled=true"] {
        let store = hasty(&bed, options).await;
        let mut transaction = bed.pool.begin().await.unwrap();
        let lock = format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE");
        let lock = sqlx::raw_sql(sqlx::AssertSqlSafe(lock));
        lock.execute(&mut *transaction).await.unwrap();

        give_up_often(&bed, &store).await;

        transaction.rollback().await.unwrap();
        until(async || store.claim(&fresh()).await.is_ok()).await;
    }
}

#[tokio::test]
async fn a_statement_that_takes_too_long_is_cancelled() {
    let bed = Bed::direct().await;
    let table = &bed.table;
    let store = hasty(&bed, "").await;
    bed.execute(format!(
        "CREATE FUNCTION {table}_poison() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM pg_sleep(1000); RETURN NEW; END $$;
         CREATE TRIGGER slow BEFORE INSERT ON {table}
            FOR EACH ROW EXECUTE FUNCTION {table}_poison()"
    ))
    .await;

    give_up_often(&bed, &store).await;

    let sleeping = format!(
        "SELECT count(*) FROM pg_stat_activity
         WHERE application_name = '{table}' AND state = 'active'"
    );
    until(async || bed.number(sleeping.clone()).await == 0).await;
    bed.execute(format!("DROP TRIGGER slow ON {table}")).await;
    until(async || store.claim(&fresh()).await.is_ok()).await;
}

/// A caller that goes away drops its question half-way.
#[tokio::test]
async fn a_question_that_is_dropped_is_cancelled() {
    let bed = Bed::direct().await;
    let table = &bed.table;
    let store = hasty(&bed, "&options[lock_timeout]=0").await;
    let known = done(&store, "known").await;
    let mut transaction = bed.pool.begin().await.unwrap();
    let lock = format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE");
    let lock = sqlx::raw_sql(sqlx::AssertSqlSafe(lock));
    lock.execute(&mut *transaction).await.unwrap();
    let waiting = format!(
        "SELECT count(*) FROM pg_stat_activity
         WHERE application_name = '{table}' AND wait_event_type = 'Lock'"
    );

    // A sweep may take a minute.
    let mut sweep = store.sweep(10);
    until(async || {
        assert!(futures_util::poll!(&mut sweep).is_pending());
        bed.number(waiting.clone()).await == 1
    })
    .await;
    drop(sweep);

    until(async || bed.number(waiting.clone()).await == 0).await;
    transaction.rollback().await.unwrap();
    until(async || store.get(&known.slot).await.is_ok()).await;
}
