//! Defaults that somebody has given to a role, a database or the server: the store's own statements
//! do not depend on them.

use futures_util::future::join_all;
use onlyonce_core::operate::{Filter, Page};
use onlyonce_core::{Claimed, Completed, Operate, Response, Store};
use onlyonce_sql::PostgresStore;
use onlyonce_testkit::servers::{Shared, shared};
use std::sync::Arc;

use super::bed::{Bed, direct_url, random_name, with_options};
use super::support::{LONG, body, fresh, granted, rival, taken};

const ISOLATIONS: [&str; 2] = ["repeatable read", "serializable"];
const DEFAULTS: [(&str, &str); 10] = [
    ("bytea_output", "'escape'"),
    ("default_transaction_read_only", "on"),
    ("standard_conforming_strings", "off"),
    ("timezone", "'Asia/Kathmandu'"),
    ("datestyle", "'SQL, DMY'"),
    ("intervalstyle", "'sql_standard'"),
    ("array_nulls", "off"),
    ("transform_null_equals", "on"),
    ("quote_all_identifiers", "on"),
    ("extra_float_digits", "-15"),
];

/// A role whose sessions begin like that. It is dropped with what it owns.
struct Role {
    bed: Bed,
    name: String,
}

impl Role {
    async fn new(isolation: &str) -> Self {
        let bed = Bed::direct().await;
        let name = random_name();
        let mut text = format!(
            "CREATE ROLE {name} SUPERUSER LOGIN;
             ALTER ROLE {name} SET default_transaction_isolation = '{isolation}';"
        );
        for (setting, value) in DEFAULTS {
            text += &format!("ALTER ROLE {name} SET {setting} = {value};");
        }
        bed.execute(text).await;
        Self { bed, name }
    }

    fn url(&self, table: &str, options: &str) -> String {
        let url = direct_url();
        let (_, host) = url.split_once('@').unwrap();
        let server = format!("postgres://{}@{host}", self.name);
        with_options(&server, &format!("table={table}{options}"))
    }

    async fn done_with(self) {
        let name = &self.name;
        let text = format!("DROP OWNED BY {name} CASCADE; DROP ROLE {name}");
        self.bed.execute(text).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_defaults_of_a_role_change_no_record() {
    for isolation in ISOLATIONS {
        changes_no_record(isolation).await;
    }
}

async fn changes_no_record(isolation: &str) {
    let role = Role::new(isolation).await;
    let every_byte: Vec<u8> = (0..=255).collect();
    for options in ["", "&pooled=true"] {
        let table = random_name();
        let store = PostgresStore::open(&role.url(&table, options)).await;
        let store = store.unwrap();
        let claim = fresh();
        let lease = granted(&store, &claim).await;

        let sent = Response::new(http::StatusCode::OK, every_byte.clone());
        let completed = store.complete(&lease, &Arc::new(sent), LONG).await;
        assert!(
            matches!(completed, Ok(Completed::Stored(_))),
            "{options}: {completed:?}"
        );

        let found = taken(&store, &rival(&claim)).await;
        assert_eq!(body(&found), every_byte, "{options}");
        assert!(found.keep_left <= LONG && found.keep_left > LONG / 2);
        assert_eq!(store.agree("name", &every_byte).await.unwrap(), every_byte);
        let page = Page {
            after: None,
            records_max: 10,
        };
        let listed = store.list(&Filter::default(), &page).await.unwrap();
        assert_eq!(listed.len(), 1, "{options}");
        assert_eq!(store.stats().await.unwrap().records, 1, "{options}");
        assert!(store.forget(&claim.slot).await.unwrap(), "{options}");
        store.sweep(10).await.unwrap();
        drop(store);
    }
    role.done_with().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_may_make_the_tables_at_once_whatever_the_isolation_of_the_role() {
    for isolation in ISOLATIONS {
        let role = Role::new(isolation).await;
        for options in ["&pooled=true&connections=1", "&connections=1"] {
            let url = role.url(&random_name(), options);

            let opened = join_all((0..12).map(|_| PostgresStore::open(&url))).await;

            for store in opened {
                store.unwrap().ping().await.unwrap();
            }
        }
        role.done_with().await;
    }
}

/// One is granted and nobody gets an error.
#[tokio::test(flavor = "multi_thread")]
async fn claims_that_meet_are_decided_whatever_the_isolation_of_the_role() {
    for isolation in ISOLATIONS {
        let role = Role::new(isolation).await;
        for options in ["", "&pooled=true"] {
            let url = role.url(&random_name(), options);
            let stores = [
                PostgresStore::open(&url).await.unwrap(),
                PostgresStore::open(&url).await.unwrap(),
            ];
            for _ in 0..10 {
                let claim = fresh();
                let rivals: Vec<_> = (0..20).map(|_| rival(&claim)).collect();

                let claims = rivals.iter().enumerate();
                let claims = claims.map(|(n, claim)| stores[n % 2].claim(claim));
                let (claimed, swept) = tokio::join!(join_all(claims), stores[0].sweep(10));

                swept.unwrap();
                let granted = claimed.into_iter().map(Result::unwrap);
                let granted = granted.filter(|it| matches!(it, Claimed::Granted { .. }));
                assert_eq!(granted.count(), 1, "{isolation} {options}");
            }
        }
        role.done_with().await;
    }
}

/// A statement may take as long as the store's own options say.
#[tokio::test(flavor = "multi_thread")]
async fn the_statement_timeout_of_a_role_ends_nothing_of_the_stores() {
    let role = Role::new("read committed").await;
    let name = &role.name;
    let patience = format!("ALTER ROLE {name} SET statement_timeout = '200ms'");
    role.bed.execute(patience).await;
    for options in ["", "&pooled=true"] {
        let table = random_name();
        let store = PostgresStore::open(&role.url(&table, options)).await;
        let store = store.unwrap();
        role.bed
            .execute(format!(
                "CREATE FUNCTION {table}_slow() RETURNS trigger LANGUAGE plpgsql AS
                    $$ BEGIN PERFORM pg_sleep(0.5); RETURN NEW; END $$;
                 CREATE TRIGGER slow BEFORE INSERT ON {table}
                    FOR EACH ROW EXECUTE FUNCTION {table}_slow()"
            ))
            .await;

        let claim = fresh();
        granted(&store, &claim).await;

        assert_eq!(taken(&store, &rival(&claim)).await.token, claim.token);
        drop(store);
        let away = format!("DROP TRIGGER slow ON {table}; DROP FUNCTION {table}_slow");
        role.bed.execute(away).await;
    }
    role.done_with().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_may_make_the_tables_at_once_behind_a_pooler() {
    let table = random_name();
    let url = with_options(
        &shared(Shared::PgBouncer),
        &format!("table={table}&pooled=true&connections=1"),
    );

    let opened = join_all((0..12).map(|_| PostgresStore::open(&url))).await;

    for store in opened {
        store.unwrap().ping().await.unwrap();
    }
    let bed = Bed::direct().await;
    let text = ["", "_agreed", "_archive", "_migrations"]
        .map(|suffix| format!("DROP TABLE {table}{suffix};"));
    bed.execute(text.concat()).await;
}
