//! A record completed by the function in the database, which programs in any language call.

use onlyonce_core::{Claim, Claimed, Completed, Lease, OnLapse, Operate, Release, State, Store};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::bed::{Bed, direct_url, random_name, with_options};
use super::support::{LONG, SHORT, answer, fresh, granted, lapsed, rival, stored, taken};
use crate::arguments::{BODY_BYTES_MAX, HEADERS, WRONG, check, every_byte};

/// What a program gives to the function.
struct Given {
    lease: Option<String>,
    status: Option<i32>,
    headers: Option<String>,
    body: Option<Vec<u8>>,
}

impl Given {
    fn by(lease: &Lease) -> Self {
        Self {
            lease: Some(lease.capability().expose().to_owned()),
            status: Some(201),
            headers: Some(HEADERS.to_owned()),
            body: Some(every_byte()),
        }
    }

    async fn call(self, bed: &Bed, connection: &mut PgConnection) -> Result<(), String> {
        let text = format!("SELECT {}_complete($1, $2, $3::text::jsonb, $4)", bed.table);
        let query = sqlx::query(AssertSqlSafe(text))
            .bind(self.lease)
            .bind(self.status)
            .bind(self.headers)
            .bind(self.body);
        match query.execute(connection).await {
            Ok(_) => Ok(()),
            Err(error) => Err(error.as_database_error().unwrap().code().unwrap().into()),
        }
    }
}

async fn called(bed: &Bed, given: Given) -> Result<(), String> {
    let mut connection = bed.pool.acquire().await.unwrap();
    given.call(bed, &mut connection).await
}

#[tokio::test]
async fn what_the_function_stores_is_replayed_byte_for_byte() {
    for bed in [Bed::direct().await, Bed::pooled().await] {
        let claim = fresh();
        let lease = granted(&bed.store, &claim).await;

        let mut tx = bed.pool.begin().await.unwrap();
        Given::by(&lease).call(&bed, &mut tx).await.unwrap();
        let before = bed.store.get(&claim.slot).await.unwrap().unwrap();
        tx.commit().await.unwrap();

        assert!(
            before.response().is_none(),
            "nothing is there before the commit"
        );
        let record = taken(&bed.store, &rival(&claim)).await;
        assert!(matches!(record.state, State::Done(_)), "{record:?}");
        check(record.response().unwrap());
        assert!(record.keep_left > LONG / 2 && record.keep_left <= LONG);
        let engines = bed
            .store
            .complete(&lease, &answer("mine"), LONG)
            .await
            .unwrap();
        let Completed::Found(found) = engines else {
            panic!("stored twice: {engines:?}");
        };
        assert_eq!(found.token, lease.token);
        check(found.response().unwrap());
    }
}

#[tokio::test]
async fn a_failure_can_be_the_answer_and_nothing_but_a_status_is_needed() {
    let bed = Bed::direct().await;
    let claim = fresh();
    let lease = granted(&bed.store, &claim).await;
    let given = Given {
        status: Some(422),
        headers: None,
        body: None,
        ..Given::by(&lease)
    };

    called(&bed, given).await.unwrap();

    let record = taken(&bed.store, &rival(&claim)).await;
    let State::Failed(response) = record.state else {
        panic!("{record:?}");
    };
    assert_eq!(response.status, 422);
    assert!(response.headers.is_empty() && response.body.is_empty());
}

#[tokio::test]
async fn a_rollback_takes_the_answer_back() {
    let bed = Bed::direct().await;
    let claim = fresh();
    let lease = granted(&bed.store, &claim).await;

    let mut tx = bed.pool.begin().await.unwrap();
    Given::by(&lease).call(&bed, &mut tx).await.unwrap();
    tx.rollback().await.unwrap();

    assert!(taken(&bed.store, &rival(&claim)).await.response().is_none());
    stored(&bed.store, &lease, "after all").await;
}

#[tokio::test]
async fn a_lease_that_is_not_or_no_longer_held_fails_the_transaction() {
    let bed = Bed::direct().await;
    let store = &bed.store;
    let held = granted(store, &fresh()).await;
    let forged = Lease {
        token: rival(&fresh()).token,
        ..held.clone()
    };
    let elsewhere = Lease {
        slot: granted(store, &fresh()).await.slot,
        ..held.clone()
    };
    let unknown = fresh().lease();
    let overtaken = lapsed(store, OnLapse::Rerun).await;
    granted(store, &rival(&overtaken)).await;
    let released = granted(store, &fresh()).await;
    store.release(&released, Release::NotRun).await.unwrap();
    let in_doubt = granted(
        store,
        &Claim {
            on_lapse: OnLapse::Hold,
            ..fresh()
        },
    )
    .await;
    store.release(&in_doubt, Release::Unknown).await.unwrap();
    let forgotten = granted(store, &fresh()).await;
    store.forget(&forgotten.slot).await.unwrap();
    let used = granted(store, &fresh()).await;
    called(&bed, Given::by(&used)).await.unwrap();
    let by_engine = granted(store, &fresh()).await;
    stored(store, &by_engine, "the engine's").await;

    let leases = [
        ("forged", forged),
        ("of another slot", elsewhere),
        ("unknown", unknown),
        ("overtaken", overtaken.lease()),
        ("released", released),
        ("in doubt", in_doubt),
        ("forgotten", forgotten),
        ("used", used),
        ("completed by the engine", by_engine),
    ];
    for (what, lease) in leases {
        let mut tx = bed.pool.begin().await.unwrap();
        let failed = Given::by(&lease).call(&bed, &mut tx).await;
        assert_eq!(failed, Err("ONCE1".to_owned()), "{what}");
        let next = sqlx::query("SELECT 1").execute(&mut *tx).await;
        assert!(next.is_err(), "{what}: the transaction has failed");
    }
    called(&bed, Given::by(&held)).await.unwrap();
}

#[tokio::test]
async fn what_makes_no_answer_is_refused_and_the_claim_is_kept() {
    let bed = Bed::direct().await;
    let claim = fresh();
    let lease = granted(&bed.store, &claim).await;
    let by = || Given::by(&lease);
    let digits = by().lease.unwrap();
    let wrong_leases = [
        None,
        Some(String::new()),
        Some(digits[1..].to_owned()),
        Some(format!("{digits}0")),
        Some(format!("{digits}\n")),
        Some(digits.to_uppercase()),
        Some(format!("{}'--", &digits[..93])),
    ];

    for lease in wrong_leases {
        let failed = called(&bed, Given { lease, ..by() }).await;
        assert_eq!(failed, Err("ONCE2".to_owned()));
    }
    for status in [
        None,
        Some(0),
        Some(-1),
        Some(100),
        Some(199),
        Some(600),
        Some(i32::MAX),
    ] {
        let failed = called(&bed, Given { status, ..by() }).await;
        assert_eq!(failed, Err("ONCE3".to_owned()), "{status:?}");
    }
    let long = format!(r#"{{"a": "{}"}}"#, "b".repeat(1 << 16));
    for headers in WRONG.into_iter().chain([&*long]) {
        let headers = Some(headers.to_owned());
        let failed = called(
            &bed,
            Given {
                headers: headers.clone(),
                ..by()
            },
        )
        .await;
        assert_eq!(failed, Err("ONCE3".to_owned()), "{headers:?}");
    }
    let body = Some(vec![0; BODY_BYTES_MAX + 1]);
    assert_eq!(
        called(&bed, Given { body, ..by() }).await,
        Err("ONCE3".to_owned())
    );
    let body = Some(vec![0; BODY_BYTES_MAX]);
    called(&bed, Given { body, ..by() }).await.unwrap();
    let record = taken(&bed.store, &rival(&claim)).await;
    assert_eq!(record.response().unwrap().body.len(), BODY_BYTES_MAX);
}

#[tokio::test]
async fn nobody_takes_over_what_an_open_transaction_has_completed() {
    let bed = Bed::direct().await;
    let claim = lapsed(&bed.store, OnLapse::Rerun).await;

    let mut tx = bed.pool.begin().await.unwrap();
    Given::by(&claim.lease()).call(&bed, &mut tx).await.unwrap();
    let meanwhile = bed.store.claim(&rival(&claim)).await.unwrap();
    tx.commit().await.unwrap();

    let Claimed::Taken(record) = meanwhile else {
        panic!("taken over: {meanwhile:?}");
    };
    assert!(!record.is_lapsed(), "its transaction is alive");
    check(taken(&bed.store, &rival(&claim)).await.response().unwrap());
}

#[tokio::test]
async fn a_snapshot_from_before_a_renewal_is_a_serialization_failure() {
    let bed = Bed::direct().await;
    let lease = granted(&bed.store, &fresh()).await;

    let mut tx = bed
        .pool
        .begin_with("BEGIN ISOLATION LEVEL SERIALIZABLE")
        .await
        .unwrap();
    sqlx::query("SELECT 1").execute(&mut *tx).await.unwrap();
    bed.store.renew(&lease, LONG).await.unwrap();
    let failed = Given::by(&lease).call(&bed, &mut tx).await;
    drop(tx);

    assert_eq!(failed, Err("40001".to_owned()));
    let mut tx = bed
        .pool
        .begin_with("BEGIN ISOLATION LEVEL SERIALIZABLE")
        .await
        .unwrap();
    Given::by(&lease).call(&bed, &mut tx).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_role_needs_execute_on_the_function_and_no_right_on_the_tables() {
    let bed = Bed::direct().await;
    let (table, role) = (&bed.table, random_name());
    let claim = fresh();
    let lease = granted(&bed.store, &claim).await;
    bed.execute(format!("CREATE ROLE {role} LOGIN PASSWORD 'secret'"))
        .await;
    let base: sqlx::postgres::PgConnectOptions = direct_url().parse().unwrap();
    let mut session = PgConnection::connect_with(&base.username(&role).password("secret"))
        .await
        .unwrap();
    // Found before the store's own table, if the function looked where its caller says.
    let bait = format!("CREATE TEMP TABLE {table} (slot bytea, token bytea, state text)");
    sqlx::raw_sql(AssertSqlSafe(bait))
        .execute(&mut session)
        .await
        .unwrap();

    let without = Given::by(&lease).call(&bed, &mut session).await;
    let grant = format!(
        "GRANT EXECUTE ON FUNCTION {table}_complete(text, integer, jsonb, bytea) TO {role}"
    );
    bed.execute(grant).await;
    let with = Given::by(&lease).call(&bed, &mut session).await;
    let peek = format!("SELECT * FROM public.{table}");
    let peek = sqlx::raw_sql(AssertSqlSafe(peek))
        .execute(&mut session)
        .await;
    bed.execute(format!("DROP OWNED BY {role}; DROP ROLE {role}"))
        .await;

    assert_eq!(without, Err("42501".to_owned()));
    assert_eq!(with, Ok(()));
    assert_eq!(
        peek.unwrap_err()
            .as_database_error()
            .unwrap()
            .code()
            .unwrap(),
        "42501"
    );
    check(taken(&bed.store, &rival(&claim)).await.response().unwrap());
}

#[tokio::test]
async fn tables_of_the_version_before_get_the_function() {
    let bed = Bed::direct().await;
    let table = &bed.table;
    bed.execute(format!(
        "DROP FUNCTION {table}_complete(text, integer, jsonb, bytea);
         DELETE FROM {table}_migrations WHERE version = 3"
    ))
    .await;

    let opened = futures_util::future::join_all((0..4).map(|_| bed.another())).await;

    let lease = granted(
        &opened[0],
        &Claim {
            lease_for: SHORT,
            ..fresh()
        },
    )
    .await;
    called(&bed, Given::by(&lease)).await.unwrap();
    let url = with_options(&direct_url(), &format!("table={table}"));
    assert!(onlyonce_sql::PostgresStore::open(&url).await.is_ok());
}
