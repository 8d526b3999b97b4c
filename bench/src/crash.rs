//! What it costs that a crash in the middle can be settled: a job with a look, with durable steps, and
//! with its answer in its own transaction, and requests of routes with `reconcile` and `transactional`; each
//! against the same without, and nothing crashes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use onlyonce_core::engine::SharedStore;
use onlyonce_core::engine::job::{self, Question, RunError};
use onlyonce_core::{Completed, Engine, Execution, Finding, MemoryStore, Response, StepError};
use onlyonce_stores::file::FileStore;
use onlyonce_stores::sql::PostgresStore;
use onlyonce_stores::sql::sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use onlyonce_stores::sql::sqlx::{self, PgPool};
use onlyonce_testkit::servers::{Postgres, PostgresOptions, Server as _};
use tokio::runtime::Runtime;

use crate::budget::Budget;
use crate::failure::Failure;
use crate::proxy::Program;
use crate::report::Report;
use crate::rounds::{Rounds, Sample};
use crate::stores::{clear, fresh};
use crate::work::{Caller, drive};
use crate::{runtime, say};

mod routes;

const CALLERS: [usize; 2] = [1, 64];
const RECORDS_MAX: usize = 100_000_000;
/// The connections of the application's own pool.
const LINES: u32 = 16;
/// The application's own row.
const INSERT: &str = "INSERT INTO payments (note) VALUES ('a payment')";

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    program: Program,
    /// How often all cases take turns
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long each turn is
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Where the file store is; everything made there is removed
    #[arg(long, default_value = "target/bench")]
    folder: PathBuf,
}

impl Options {
    fn rounds(&self, what: &str) -> impl Iterator<Item = u32> {
        let rounds = self.rounds;
        Budget::unlimited()
            .rounds(rounds)
            .inspect(move |round| say(&format!("{what}: round {round} of {rounds}")))
    }

    fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

pub(crate) fn run(options: &Options) -> Result<Report, Failure> {
    let runtime = runtime()?;
    let mut report = Report::default();
    for store in ["memory", "file"] {
        jobs(&runtime, options, store, &mut report)?;
    }
    clear(&options.folder);
    routes::readable(&runtime, options, &mut report)?;
    let (server, pool) = runtime.block_on(database())?;
    let rows = (&server, &pool);
    runtime.block_on(transactions(options, rows, &mut report))?;
    routes::transactional(&runtime, options, rows, &mut report)?;
    Ok(report)
}

/// What a job does for its caller.
#[derive(Clone, Copy)]
enum Job {
    Plain,
    Looks,
    Steps(u32),
}

fn jobs(
    runtime: &Runtime,
    options: &Options,
    store: &'static str,
    report: &mut Report,
) -> Result<(), Failure> {
    const CASES: [(Job, &str); 3] = [
        (Job::Looks, "a look / without"),
        (Job::Steps(1), "one step / without"),
        (Job::Steps(3), "three steps / without"),
    ];
    for callers in CALLERS {
        let mut all = [const { Rounds::new() }; CASES.len()];
        for _ in options.rounds(&format!("jobs, {store}, {callers} callers")) {
            let turn = |job| {
                let opened = opened(store, &options.folder);
                runtime.block_on(async { job_turn(opened.await?, job, callers, options).await })
            };
            let base = turn(Job::Plain)?;
            for (rounds, (job, _)) in all.iter_mut().zip(CASES) {
                rounds.add(turn(job)?, base);
            }
        }
        for (rounds, (_, case)) in all.iter().zip(CASES) {
            let case = format!("job, {store}, {callers} callers: {case}");
            report.rows.push(rounds.rate("crash", &case, None));
            report.rows.push(rounds.p50("crash", &case));
        }
    }
    Ok(())
}

async fn opened(store: &str, folder: &Path) -> Result<Engine, Failure> {
    let store: SharedStore = match store {
        "memory" => MemoryStore::new().records_max(RECORDS_MAX).into(),
        _ => FileStore::open(fresh(folder)?).await?.into(),
    };
    engine(store).await
}

async fn engine(store: SharedStore) -> Result<Engine, Failure> {
    let opened = Engine::open(store).await;
    opened.map_err(Failure::doing("start the engine"))
}

async fn job_turn(
    engine: Engine,
    what: Job,
    callers: usize,
    options: &Options,
) -> Result<Sample, Failure> {
    let plain = engine.job("bench");
    let job = Arc::new(match what {
        Job::Looks => plain.reconcile(|_: Question| async { Finding::CannotTell }),
        Job::Plain | Job::Steps(_) => plain,
    });
    let steps = match what {
        Job::Steps(steps) => steps,
        Job::Plain | Job::Looks => 0,
    };
    let step = move |job: Arc<job::Job>, mut caller: Caller| async move {
        let work = move |execution| stepped(execution, steps);
        job.run_with(&new_key(), "", work).await.expect("it runs");
        caller.lap();
        caller
    };
    let sample = drive(&job, callers, options.time(), step).await;
    engine.shutdown(Duration::from_secs(10)).await;
    Ok(sample)
}

async fn stepped(execution: Execution, steps: u32) -> Result<u32, StepError<String>> {
    for step in 0..steps {
        let name = ["reserve", "charge", "mail"][step as usize % 3];
        let done = execution.step(name, &step);
        done.run(async || Ok::<_, String>(step)).await?;
    }
    Ok(steps)
}

fn new_key() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("crash-{:020}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A server with the records and with rows of an application, and the application's own pool.
async fn database() -> Result<(Postgres, PgPool), Failure> {
    let server = Postgres::start(PostgresOptions {
        fast: false,
        lines: Vec::new(),
    })?;
    let url: PgConnectOptions = server
        .url()
        .parse()
        .map_err(Failure::doing("read a PostgreSQL URL"))?;
    let pool = PgPoolOptions::new().max_connections(LINES);
    let pool = pool.connect_with(url).await;
    let pool = pool.map_err(Failure::doing("connect to PostgreSQL"))?;
    sqlx::query("CREATE TABLE payments (id bigserial PRIMARY KEY, note text)")
        .execute(&pool)
        .await
        .map_err(Failure::doing("make a table"))?;
    Ok((server, pool))
}

/// A job that writes a row of its own: its answer in the same transaction, against the engine's
/// completion behind it.
async fn transactions(
    options: &Options,
    (server, pool): (&Postgres, &PgPool),
    report: &mut Report,
) -> Result<(), Failure> {
    for callers in CALLERS {
        let mut rounds = Rounds::default();
        for _ in options.rounds(&format!("transactions, {callers} callers")) {
            let turn = |inside| transaction_turn(server, pool, inside, callers, options);
            let behind = turn(false).await?;
            let inside = turn(true).await?;
            rounds.add(inside, behind);
        }
        let case = format!("job with a row, postgres, {callers} callers: complete_in / without");
        report.rows.push(rounds.rate("crash", &case, None));
        report.rows.push(rounds.p50("crash", &case));
    }
    Ok(())
}

async fn transaction_turn(
    server: &Postgres,
    pool: &PgPool,
    inside: bool,
    callers: usize,
    options: &Options,
) -> Result<Sample, Failure> {
    server.psql("CHECKPOINT")?;
    let store = Arc::new(PostgresStore::open(&server.url()).await?);
    let engine = engine(Arc::clone(&store).into()).await?;
    let bed = Arc::new((engine.clone(), store, pool.clone()));
    let step = move |bed: Arc<(Engine, Arc<PostgresStore>, PgPool)>, mut caller: Caller| async move {
        let (engine, store, pool) = &*bed;
        let (store, pool) = (Arc::clone(store), pool.clone());
        let work = move |execution| pay(execution, store, pool, inside);
        let job = engine.job("pay");
        let ran: Result<_, RunError<sqlx::Error>> = job.run_with(&new_key(), "", work).await;
        ran.expect("it runs");
        caller.lap();
        caller
    };
    let sample = drive(&bed, callers, options.time(), step).await;
    engine.shutdown(Duration::from_secs(10)).await;
    Ok(sample)
}

async fn pay(
    execution: Execution,
    store: Arc<PostgresStore>,
    pool: PgPool,
    inside: bool,
) -> Result<u32, sqlx::Error> {
    let mut transaction = pool.begin().await?;
    sqlx::query(INSERT).execute(&mut *transaction).await?;
    if inside {
        let lease = execution.lease().expect("a job with a key has a lease");
        let answer = Arc::new(Response::new(http::StatusCode::OK, "7"));
        let done = store.complete_in(&mut transaction, lease, &answer, lease.keep_for);
        assert!(matches!(done.await, Ok(Completed::Stored(_))), "not stored");
    }
    transaction.commit().await?;
    Ok(7)
}
