//! A store with tables of its own in the shared database, gone when the test is over.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Entropy, OsEntropy, Store, async_trait};
use onlyonce_sql::PostgresStore;
use onlyonce_testkit::conformance::TestBed;
use onlyonce_testkit::servers::{Shared, shared};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

pub(super) struct Bed {
    pub(super) url: String,
    pub(super) table: String,
    pub(super) store: Arc<PostgresStore>,
    /// The test's own connections to the same database.
    pub(super) pool: PgPool,
}

impl Bed {
    pub(super) async fn direct() -> Self {
        Self::open(&direct_url(), "").await
    }

    pub(super) async fn pooled() -> Self {
        Self::open(&shared(Shared::PgBouncer), "&pooled=true").await
    }

    /// A store with these options more.
    pub(super) async fn open(server: &str, options: &str) -> Self {
        let table = random_name();
        let url = with_options(server, &format!("table={table}{options}"));
        let store = PostgresStore::open(&url)
            .await
            .expect("the server is there");
        let connect = PgConnectOptions::from_str(server).expect("a right URL");
        // What a pooler of transactions asks of its users.
        let connect = connect.extra_float_digits(None).statement_cache_capacity(0);
        let pool = PgPoolOptions::new().connect_lazy_with(connect);
        Self {
            url,
            table,
            store: Arc::new(store),
            pool,
        }
    }

    pub(super) async fn execute(&self, text: String) {
        let ran = sqlx::raw_sql(AssertSqlSafe(text)).execute(&self.pool).await;
        ran.expect("the statement is right");
    }

    /// The one number that a query gives.
    pub(super) async fn number(&self, text: String) -> i64 {
        let row = sqlx::raw_sql(AssertSqlSafe(text))
            .fetch_one(&self.pool)
            .await;
        row.expect("the query is right").get(0)
    }

    /// Another process's store on the same tables.
    pub(super) async fn another(&self) -> PostgresStore {
        let store = PostgresStore::open(&self.url).await;
        store.expect("the server is there")
    }
}

pub(super) fn direct_url() -> String {
    shared(Shared::Postgres)
}

pub(super) fn with_options(url: &str, options: &str) -> String {
    let joint = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joint}{options}")
}

pub(super) fn random_name() -> String {
    let mut bytes = [0; 8];
    OsEntropy::new().fill(&mut bytes);
    format!("t{:016x}", u64::from_le_bytes(bytes))
}

#[async_trait]
impl TestBed for Bed {
    fn name(&self) -> &str {
        "postgres"
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as _
    }

    async fn advance(&self, by: Duration) {
        tokio::time::sleep(by).await;
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let table = &self.table;
        let text = "SET lock_timeout = '10s';".to_owned()
            + &["", "_agreed", "_archive", "_migrations"]
                .map(|suffix| format!("DROP TABLE IF EXISTS {table}{suffix};"))
                .concat()
            + &format!("DROP FUNCTION IF EXISTS {table}_poison, {table}_complete");
        let connect = self.pool.connect_options();
        // A test's own runtime cannot wait in here.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(async {
                if let Ok(mut connection) = PgConnection::connect_with(&connect).await {
                    let dropped = sqlx::raw_sql(AssertSqlSafe(text));
                    drop(dropped.execute(&mut connection).await);
                }
            });
        });
        drop(dropping.join());
    }
}
