//! A record completed by inserting into the view, which programs in any language do.

use onlyonce_core::{Claim, Completed, Lease, OnLapse, Operate, Release, State, Store};
use onlyonce_sql::SqliteStore;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Executor};
use tempfile::TempDir;

use crate::arguments::{BODY_BYTES_MAX, HEADERS, WRONG, check, every_byte};
use crate::sql::{LONG, answer, fresh, lease, rival, taken};

struct Shop {
    store: SqliteStore,
    /// Another program's connection to the file.
    session: SqliteConnection,
    _folder: TempDir,
}

impl Shop {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop.db");
        let store = SqliteStore::open(&format!("sqlite:{}", path.display())).await;
        let mut session = SqliteConnectOptions::new()
            .filename(path)
            .connect()
            .await
            .unwrap();
        session
            .execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
            .await
            .unwrap();
        Self {
            store: store.unwrap(),
            session,
            _folder: folder,
        }
    }

    async fn orders(&mut self) -> i64 {
        let count = sqlx::query_scalar("SELECT COUNT(*) FROM orders");
        count.fetch_one(&mut self.session).await.unwrap()
    }

    /// Places an order and completes the record in one transaction; says what the database said.
    async fn order(&mut self, given: Given) -> Result<(), String> {
        self.session.execute("BEGIN IMMEDIATE").await.unwrap();
        self.session
            .execute("INSERT INTO orders DEFAULT VALUES")
            .await
            .unwrap();
        let insert =
            "INSERT INTO onlyonce_complete (lease, status, headers, body) VALUES (?, ?, ?, ?)";
        let insert = sqlx::query(insert)
            .bind(given.lease)
            .bind(given.status)
            .bind(given.headers)
            .bind(given.body);
        match insert.execute(&mut self.session).await {
            Ok(_) => {
                self.session.execute("COMMIT").await.unwrap();
                Ok(())
            }
            Err(error) => {
                let committed = self.session.execute("COMMIT").await;
                assert!(committed.is_err(), "it has rolled the transaction back");
                Err(error.as_database_error().unwrap().message().to_owned())
            }
        }
    }

    async fn refuses(&mut self, given: Given, why: &str) {
        let before = self.orders().await;
        let said = self.order(given).await.unwrap_err();
        assert!(
            said.starts_with("onlyonce: ") && said.contains(why),
            "{said}"
        );
        assert_eq!(self.orders().await, before);
    }
}

/// What a program inserts.
struct Given {
    lease: Option<Vec<u8>>,
    status: Option<i32>,
    headers: Option<String>,
    body: Option<Vec<u8>>,
}

impl Given {
    fn by(lease: &Lease) -> Self {
        let lease = [&lease.slot.as_bytes()[..], lease.token.as_bytes()].concat();
        Self {
            lease: Some(lease),
            status: Some(201),
            headers: Some(HEADERS.to_owned()),
            body: Some(every_byte()),
        }
    }
}

#[tokio::test]
async fn what_is_inserted_is_replayed_byte_for_byte() {
    let mut shop = Shop::new().await;
    let claim = fresh();
    let held = lease(&shop.store, &claim).await;

    shop.order(Given::by(&held)).await.unwrap();

    assert_eq!(shop.orders().await, 1);
    let record = taken(&shop.store, &rival(&claim)).await;
    assert!(matches!(record.state, State::Done(_)), "{record:?}");
    check(record.response().unwrap());
    // As long as was promised with the claim: its lease and the retention.
    assert!(record.keep_left > LONG && record.keep_left <= 2 * LONG);
    let engines = shop
        .store
        .complete(&held, &answer("mine"), LONG)
        .await
        .unwrap();
    let Completed::Found(found) = engines else {
        panic!("stored twice: {engines:?}");
    };
    assert_eq!(found.token, held.token);
}

#[tokio::test]
async fn a_failure_can_be_the_answer_and_nothing_but_a_status_is_needed() {
    let mut shop = Shop::new().await;
    let claim = fresh();
    let held = lease(&shop.store, &claim).await;
    let given = Given {
        status: Some(422),
        headers: None,
        body: None,
        ..Given::by(&held)
    };

    shop.order(given).await.unwrap();

    let record = taken(&shop.store, &rival(&claim)).await;
    let State::Failed(response) = record.state else {
        panic!("{record:?}");
    };
    assert_eq!(response.status, 422);
    assert!(response.headers.is_empty() && response.body.is_empty());
}

#[tokio::test]
async fn a_lease_that_is_not_or_no_longer_held_fails_the_transaction() {
    let mut shop = Shop::new().await;
    let store = &shop.store;
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

    let unknown = fresh().lease();
    for lease in [
        forged,
        elsewhere,
        unknown,
        overtaken.lease(),
        released,
        in_doubt,
        forgotten,
    ] {
        shop.refuses(Given::by(&lease), "the lease is lost").await;
    }
    shop.order(Given::by(&held)).await.unwrap();
    shop.refuses(Given::by(&held), "completed its record already")
        .await;
}

#[tokio::test]
async fn what_makes_no_answer_is_refused_and_the_claim_is_kept() {
    let mut shop = Shop::new().await;
    let held = lease(&shop.store, &fresh()).await;
    let by = || Given::by(&held);
    let bytes = by().lease.unwrap();

    for lease in [None, Some(Vec::new()), Some(bytes[1..].to_vec())] {
        shop.refuses(Given { lease, ..by() }, "not a lease").await;
    }
    for status in [
        None,
        Some(0),
        Some(-1),
        Some(199),
        Some(600),
        Some(i32::MAX),
    ] {
        shop.refuses(Given { status, ..by() }, "the status").await;
    }
    let long = format!(r#"{{"a": "{}"}}"#, "b".repeat(1 << 16));
    for headers in WRONG.into_iter().chain([
        &*long,
        r#"{"a": "b\u0000c"}"#,
        r#"{"a\u0000": []}"#,
        "{",
        "",
    ]) {
        let headers = Some(headers.to_owned());
        shop.refuses(Given { headers, ..by() }, "header").await;
    }
    let body = Some(vec![0; BODY_BYTES_MAX + 1]);
    shop.refuses(Given { body, ..by() }, "too large").await;
    shop.order(by()).await.unwrap();
}

#[tokio::test]
async fn odd_headers_are_stored_in_a_form_that_can_be_read() {
    let mut shop = Shop::new().await;
    for headers in [
        r#"{"a": "1", "a": "2"}"#,
        r#"{"a": "\ud800"}"#,
        r#"{"\u0061": "tab\there"}"#,
    ] {
        let claim = fresh();
        let held = lease(&shop.store, &claim).await;
        let headers = Some(headers.to_owned());

        shop.order(Given {
            headers,
            ..Given::by(&held)
        })
        .await
        .unwrap();

        let record = taken(&shop.store, &rival(&claim)).await;
        assert!(record.response().unwrap().headers.contains_key("a"));
    }
}
