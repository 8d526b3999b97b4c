//! What a plan plays on: its store, its fronts (gateways, or processes on the library), and the ledger.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use onlyonce_testkit::servers::{
    Postgres, PostgresOptions, Redis, RedisOptions, Server as _, free_port,
};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use crate::failure::Failure;
use crate::judge::Effect;
use crate::ledger;
use crate::plan::{Bug, Plan, Store, Target};
use crate::process::Process;
use crate::web::send;

/// How long the ledger may take to come to rest. Far more than it does.
const QUIET_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const ASK_MAX: Duration = Duration::from_secs(20);
const TABLE: &str = "CREATE TABLE ledger (id bigint GENERATED ALWAYS AS IDENTITY, \
                     reference text, what text)";
/// A function that takes a lease which was lost, as if nothing had happened to it.
const LEASE_SURVIVES: &str = "\
    ALTER FUNCTION onlyonce_complete(text, integer, jsonb, bytea) RENAME TO onlyonce_checked; \
    CREATE FUNCTION onlyonce_complete(lease text, status integer, headers jsonb, body bytea) \
    RETURNS void LANGUAGE plpgsql AS $$ BEGIN \
        PERFORM onlyonce_checked(lease, status, headers, body); \
    EXCEPTION WHEN SQLSTATE 'ONCE1' THEN NULL; END $$";

/// The servers that all plans share, those that are needed.
pub(crate) struct Servers {
    redis: Option<Redis>,
    postgres: Option<Postgres>,
}

/// A plan's processes.
pub(crate) struct Stage {
    pub(crate) fronts: Vec<Process>,
    pub(crate) admins: Vec<SocketAddr>,
    pub(crate) ledger: Process,
    book: PathBuf,
    /// Where effects are, if they are in transactions.
    database: Option<String>,
    pub(crate) folder: TempDir,
    _servers: Arc<Servers>,
}

impl Servers {
    /// Blocks.
    pub(crate) fn start(plans: &[Plan]) -> Result<Self, Failure> {
        let needs = |store| plans.iter().any(|plan| plan.store == store);
        let redis = RedisOptions {
            durable: true,
            ..RedisOptions::default()
        };
        // Its processes are not killed here: what it keeps in memory stays.
        let postgres = PostgresOptions {
            fast: true,
            ..PostgresOptions::default()
        };
        Ok(Self {
            redis: needs(Store::Redis)
                .then(|| Redis::start(redis))
                .transpose()?,
            postgres: needs(Store::Postgres)
                .then(|| Postgres::start(postgres))
                .transpose()?,
        })
    }

    /// A store for one plan. Blocks.
    fn store(&self, plan: &Plan, folder: &Path) -> Result<String, Failure> {
        let missing = || Failure::new("the server of a store does not run");
        match plan.store {
            Store::File => Ok(Plan::folder_url(folder)),
            Store::Redis => {
                let redis = self.redis.as_ref().ok_or_else(missing)?;
                Ok(format!("{}?prefix={}", redis.url(), plan.kind.name()))
            }
            Store::Postgres => {
                let postgres = self.postgres.as_ref().ok_or_else(missing)?;
                Ok(postgres.create_database(plan.kind.name())?)
            }
        }
    }
}

impl Stage {
    /// Starts everything.
    pub(crate) async fn set(
        plan: &Plan,
        servers: &Arc<Servers>,
        gateway: &Path,
    ) -> Result<Self, Failure> {
        let folder = tempfile::tempdir().map_err(Failure::doing("make a folder"))?;
        let store = servers.store(plan, folder.path())?;
        let database = plan.kind.is_in_database().then(|| store.clone());
        if let Some(url) = &database {
            execute(url, TABLE).await?;
        }
        let book = folder.path().join("book");
        let ledger_port = free_port()?;
        let ledger = start_ledger(plan, folder.path(), &book, ledger_port, database.as_deref());
        let mut stage = Self {
            fronts: Vec::new(),
            admins: Vec::new(),
            ledger: ledger.await?,
            book,
            database,
            folder,
            _servers: Arc::clone(servers),
        };
        for number in 0..plan.store.fronts() {
            stage.start_front(plan, number, &store, gateway).await?;
        }
        if let (Some(url), Some(Bug::LeaseSurvives)) = (&stage.database, plan.bug) {
            execute(url, LEASE_SURVIVES).await?;
        }
        Ok(stage)
    }

    async fn start_front(
        &mut self,
        plan: &Plan,
        number: usize,
        store: &str,
        gateway: &Path,
    ) -> Result<(), Failure> {
        let (listen, admin) = (free_port()?, free_port()?);
        let ledger = self.ledger.listen.port();
        let log = self.folder.path().join(format!("front-{number}.log"));
        let (program, args) = if plan.kind.is_on_gateways() {
            let file = self.folder.path().join(format!("front-{number}.toml"));
            std::fs::write(&file, plan.toml(listen, admin, ledger, store))
                .map_err(Failure::doing("write the settings of a gateway"))?;
            let config = file.display().to_string();
            let args = ["gateway", "--config", &config].map(ToOwned::to_owned);
            (gateway.to_owned(), args.to_vec())
        } else {
            (ourselves()?, worker_args(plan, listen, ledger, store))
        };
        let front = Process::start(program, args, listen, log).await?;
        self.fronts.push(front);
        self.admins.push(SocketAddr::from(([127, 0, 0, 1], admin)));
        Ok(())
    }

    /// What is killed: of the fronts the first, to which requests are sent first.
    pub(crate) fn target(&mut self, target: Target) -> &mut Process {
        match target {
            Target::Front => &mut self.fronts[0],
            Target::Ledger => &mut self.ledger,
        }
    }

    /// Waits until nothing is on its way at the ledger. A front's connection to it ends with its
    /// request, or with the front.
    pub(crate) async fn wait_until_quiet(&self) -> Result<(), Failure> {
        let quiet = async {
            loop {
                let request = Request::get(ledger::ACTIVITY).body(Full::<Bytes>::default());
                let request = request.map_err(Failure::doing("make a request"))?;
                let answer = send(self.ledger.listen, request, ASK_MAX).await;
                if answer.is_ok_and(|answer| answer.body() == "0") {
                    return Ok(());
                }
                sleep(LOOK_EVERY).await;
            }
        };
        match timeout(QUIET_MAX, quiet).await {
            Ok(quiet) => quiet,
            Err(_) => Err(self.ledger.failure("it does not come to rest")),
        }
    }

    /// All effects with this reference, and what was recognised instead of being one.
    pub(crate) async fn effects(&self, reference: &str) -> Result<Vec<Effect>, Failure> {
        if let Some(url) = &self.database {
            return rows(url, reference)
                .await
                .map_err(Failure::doing("read the effects in a database"));
        }
        let entries = ledger::read(&self.book)?.into_iter();
        let own = entries.filter(|entry| entry.reference == reference);
        let effects = own.map(|entry| Effect {
            number: entry.number,
            what: entry.what,
            repeats: entry.repeats,
        });
        Ok(effects.collect())
    }
}

async fn start_ledger(
    plan: &Plan,
    folder: &Path,
    book: &Path,
    port: u16,
    database: Option<&str>,
) -> Result<Process, Failure> {
    let book = book.display().to_string();
    let listen = format!("127.0.0.1:{port}");
    let mut args = vec!["ledger", "--listen", &listen, "--book", &book];
    if let Some(url) = database {
        args.extend(["--database", url]);
    }
    if plan.kind == crate::plan::Kind::Late {
        args.push("--late");
    }
    let args = args.into_iter().map(ToOwned::to_owned).collect();
    Process::start(ourselves()?, args, port, folder.join("ledger.log")).await
}

fn worker_args(plan: &Plan, listen: u16, ledger: u16, store: &str) -> Vec<String> {
    let mut args = vec![
        "worker".to_owned(),
        format!("--listen=127.0.0.1:{listen}"),
        format!("--ledger=127.0.0.1:{ledger}"),
        format!("--store={store}"),
    ];
    if let Some(bug) = plan.bug {
        args.push(format!("--bug={}", bug.name()));
    }
    args
}

fn ourselves() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(Failure::doing("find this program"))
}

async fn execute(url: &str, sql: &'static str) -> Result<(), Failure> {
    let cannot = || Failure::doing("prepare a database");
    let mut connection = PgConnection::connect(url).await.map_err(cannot())?;
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(&mut connection)
        .await
        .map_err(cannot())?;
    connection.close().await.map_err(cannot())
}

async fn rows(url: &str, reference: &str) -> Result<Vec<Effect>, sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    let rows = sqlx::query("SELECT id, what FROM ledger WHERE reference = $1 ORDER BY id")
        .bind(reference)
        .fetch_all(&mut connection)
        .await?;
    connection.close().await?;
    let effect = |row: &sqlx::postgres::PgRow| {
        Ok(Effect {
            number: u64::try_from(row.try_get::<i64, _>(0)?).unwrap_or_default(),
            what: row.try_get(1)?,
            repeats: None,
        })
    };
    rows.iter().map(effect).collect()
}
