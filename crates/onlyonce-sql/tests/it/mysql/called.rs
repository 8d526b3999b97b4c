//! A record completed by the procedure in the database, which programs in any language call.

use std::sync::Arc;

use onlyonce_core::{Claim, Claimed, Completed, Lease, OnLapse, Operate, Release, State, Store};
use onlyonce_sql::MySqlStore;
use onlyonce_testkit::servers::{Shared, shared};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, Connection, Executor};

use super::table;
use crate::arguments::{HEADERS, WRONG, check, every_byte};
use crate::sql::{LONG, answer, fresh, lease, rival, taken};

struct Shop {
    store: Arc<MySqlStore>,
    table: String,
}

impl Shop {
    async fn new() -> Self {
        let table = table();
        let url = format!("{}?table={table}", shared(Shared::MariaDb));
        let store = Arc::new(MySqlStore::open(&url).await.unwrap());
        let orders = format!("CREATE TABLE {table}_orders (id INT PRIMARY KEY AUTO_INCREMENT)");
        store.pool().execute(AssertSqlSafe(orders)).await.unwrap();
        Self { store, table }
    }

    async fn orders(&self) -> i64 {
        let count = AssertSqlSafe(format!("SELECT COUNT(*) FROM {}_orders", self.table));
        sqlx::query_scalar(count)
            .fetch_one(self.store.pool())
            .await
            .unwrap()
    }

    /// Places an order and completes the record, in one transaction that is committed whatever
    /// the procedure says.
    async fn order(&self, given: Given) -> Result<(), String> {
        let mut connection = self.store.pool().acquire().await.unwrap();
        connection.execute("BEGIN").await.unwrap();
        let order = format!("INSERT INTO {}_orders VALUES ()", self.table);
        connection.execute(AssertSqlSafe(order)).await.unwrap();
        let called = given.call(&self.table, &mut connection).await;
        connection.execute("COMMIT").await.unwrap();
        called
    }
}

/// What a program gives to the procedure.
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

    async fn call(self, table: &str, connection: &mut MySqlConnection) -> Result<(), String> {
        let call = AssertSqlSafe(format!("CALL {table}_complete(?, ?, ?, ?)"));
        let query = sqlx::query(call)
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

#[tokio::test]
async fn what_the_procedure_stores_is_replayed_byte_for_byte() {
    let shop = Shop::new().await;
    let claim = fresh();
    let held = lease(&*shop.store, &claim).await;

    shop.order(Given::by(&held)).await.unwrap();

    assert_eq!(shop.orders().await, 1);
    let record = taken(&*shop.store, &rival(&claim)).await;
    assert!(matches!(record.state, State::Done(_)), "{record:?}");
    check(record.response().unwrap());
    assert!(record.keep_left > LONG / 2 && record.keep_left <= LONG);
    let engines = shop
        .store
        .complete(&held, &answer("mine"), LONG)
        .await
        .unwrap();
    let Completed::Found(found) = engines else {
        panic!("stored twice: {engines:?}");
    };
    assert_eq!(found.token, held.token);
    check(found.response().unwrap());
}

#[tokio::test]
async fn a_failure_can_be_the_answer_and_nothing_but_a_status_is_needed() {
    let shop = Shop::new().await;
    let claim = fresh();
    let held = lease(&*shop.store, &claim).await;
    let given = Given {
        status: Some(422),
        headers: None,
        body: None,
        ..Given::by(&held)
    };

    shop.order(given).await.unwrap();

    let record = taken(&*shop.store, &rival(&claim)).await;
    let State::Failed(response) = record.state else {
        panic!("{record:?}");
    };
    assert_eq!(response.status, 422);
    assert!(response.headers.is_empty() && response.body.is_empty());
}

#[tokio::test]
async fn a_lease_that_is_not_or_no_longer_held_fails_the_transaction() {
    let shop = Shop::new().await;
    let store = &*shop.store;
    let held = lease(store, &fresh()).await;
    let forged = Lease {
        token: rival(&fresh()).token,
        ..held.clone()
    };
    let elsewhere = Lease {
        slot: lease(store, &fresh()).await.slot,
        ..held.clone()
    };
    let overtaken = Claim {
        lease_for: std::time::Duration::ZERO,
        ..fresh()
    };
    lease(store, &overtaken).await;
    lease(store, &rival(&overtaken)).await;
    let released = lease(store, &fresh()).await;
    store.release(&released, Release::NotRun).await.unwrap();
    let in_doubt = lease(
        store,
        &Claim {
            on_lapse: OnLapse::Hold,
            ..fresh()
        },
    )
    .await;
    store.release(&in_doubt, Release::Unknown).await.unwrap();
    let forgotten = lease(store, &fresh()).await;
    store.forget(&forgotten.slot).await.unwrap();
    let used = lease(store, &fresh()).await;
    shop.order(Given::by(&used)).await.unwrap();

    let leases = [
        ("forged", forged),
        ("of another slot", elsewhere),
        ("unknown", fresh().lease()),
        ("overtaken", overtaken.lease()),
        ("released", released),
        ("in doubt", in_doubt),
        ("forgotten", forgotten),
        ("used", used),
    ];
    for (what, lease) in leases {
        let failed = shop.order(Given::by(&lease)).await;
        assert_eq!(failed, Err("ONCE1".to_owned()), "{what}");
        assert_eq!(shop.orders().await, 1, "{what}: its order was rolled back");
    }
    shop.order(Given::by(&held)).await.unwrap();
}

#[tokio::test]
async fn what_makes_no_answer_is_refused_and_the_claim_is_kept() {
    let shop = Shop::new().await;
    let held = lease(&*shop.store, &fresh()).await;
    let by = || Given::by(&held);
    let digits = by().lease.unwrap();
    let wrong_leases = [
        None,
        Some(String::new()),
        Some(digits[1..].to_owned()),
        Some(format!("{digits}0")),
        Some(format!("{digits}\n")),
        Some(format!("{}'--", &digits[..93])),
    ];

    for lease in wrong_leases {
        let failed = shop.order(Given { lease, ..by() }).await;
        assert_eq!(failed, Err("ONCE2".to_owned()));
    }
    for status in [
        None,
        Some(0),
        Some(-1),
        Some(199),
        Some(600),
        Some(i32::MAX),
    ] {
        let failed = shop.order(Given { status, ..by() }).await;
        assert_eq!(failed, Err("ONCE3".to_owned()), "{status:?}");
    }
    let long = format!(r#"{{"a": "{}"}}"#, "b".repeat(1 << 16));
    let zero = r#"{"a": "b\u0000c"}"#;
    for headers in WRONG.into_iter().chain([&*long, zero, "{", ""]) {
        let headers = Some(headers.to_owned());
        let failed = shop
            .order(Given {
                headers: headers.clone(),
                ..by()
            })
            .await;
        assert_eq!(failed, Err("ONCE3".to_owned()), "{headers:?}");
    }
    assert_eq!(shop.orders().await, 0);
    shop.order(by()).await.unwrap();
}

#[tokio::test]
async fn odd_headers_are_stored_in_a_form_that_can_be_read() {
    let shop = Shop::new().await;
    for headers in [
        r#"{"a": "1", "a": "2\u0001"}"#,
        r#"{"a": "\ud800"}"#,
        r#"{"a": "tab\there"}"#,
        r#"{"*": "b", "**": "c"}"#,
    ] {
        let claim = fresh();
        let held = lease(&*shop.store, &claim).await;
        let headers = Some(headers.to_owned());
        let stored = shop
            .order(Given {
                headers,
                ..Given::by(&held)
            })
            .await;

        // Either way nothing is stored that no process can read.
        let record = taken(&*shop.store, &rival(&claim)).await;
        assert_eq!(record.response().is_some(), stored.is_ok(), "{stored:?}");
    }
}

#[tokio::test]
async fn nobody_takes_over_what_an_open_transaction_has_completed() {
    let shop = Shop::new().await;
    let claim = Claim {
        lease_for: std::time::Duration::ZERO,
        ..fresh()
    };
    let held = lease(&*shop.store, &claim).await;

    let mut tx = shop.store.pool().begin().await.unwrap();
    Given::by(&held).call(&shop.table, &mut tx).await.unwrap();
    let meanwhile = shop.store.claim(&rival(&claim)).await.unwrap();
    tx.commit().await.unwrap();

    let Claimed::Taken(record) = meanwhile else {
        panic!("taken over: {meanwhile:?}");
    };
    assert!(!record.is_lapsed(), "its transaction is alive");
    check(
        taken(&*shop.store, &rival(&claim))
            .await
            .response()
            .unwrap(),
    );
}

#[tokio::test]
async fn a_user_needs_execute_on_the_procedure_and_no_right_on_the_tables() {
    let shop = Shop::new().await;
    let (table, user) = (&shop.table, &shop.table[..18]);
    let held = lease(&*shop.store, &fresh()).await;
    let admin = shop.store.pool();
    let create = format!("CREATE USER '{user}'@'%' IDENTIFIED BY 'secret'");
    admin.execute(AssertSqlSafe(create)).await.unwrap();
    let base: MySqlConnectOptions = shared(Shared::MariaDb).parse().unwrap();
    let database = base.get_database().unwrap().to_owned();
    let login = base.username(user).password("secret");
    let refused = MySqlConnection::connect_with(&login).await.is_err();
    let grant = format!("GRANT EXECUTE ON PROCEDURE {database}.{table}_complete TO '{user}'@'%'");
    admin.execute(AssertSqlSafe(grant)).await.unwrap();

    let mut session = MySqlConnection::connect_with(&login).await.unwrap();
    let called = Given::by(&held).call(table, &mut session).await;
    let peek = AssertSqlSafe(format!("SELECT * FROM {table}"));
    let peek = session.execute(peek).await;
    let drop_user = AssertSqlSafe(format!("DROP USER '{user}'@'%'"));
    admin.execute(drop_user).await.unwrap();

    assert!(
        refused,
        "a user without rights does not even see the database"
    );
    assert_eq!(called, Ok(()));
    assert_eq!(
        peek.unwrap_err()
            .as_database_error()
            .unwrap()
            .code()
            .unwrap(),
        "42000"
    );
}
