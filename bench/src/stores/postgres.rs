//! The PostgreSQL store against pgbench, which runs the same statements one by one: every client
//! claims and completes in two statements, each its own transaction, durable.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_stores::sql::PostgresStore;
use onlyonce_testkit::servers::{Postgres, PostgresOptions, Server as _};
use tokio::runtime::Runtime;

use super::Turns;
use crate::failure::Failure;
use crate::report::{Goal, Row};
use crate::rounds::{Rounds, Sample};
use crate::tool::PGBENCH;
use crate::work::{BODY_BYTES, Caller, DAY, complete, drive, granted, new_request};

/// Callers, and what is hoped for.
const CALLERS: [(usize, Option<Goal>); 3] = [
    (1, Some(Goal::AtLeast(0.85))),
    (16, None),
    (64, Some(Goal::AtLeast(2.0))),
];
/// What the store asks for its own sessions, for everyone: pgbench shall have the same plans. And
/// enough room to read a whole statement back.
const SETTINGS: [&str; 7] = [
    "plan_cache_mode = force_generic_plan",
    "enable_seqscan = off",
    "enable_hashjoin = off",
    "enable_mergejoin = off",
    "jit = off",
    "track_activity_query_size = 32kB",
    "max_wal_size = 8GB",
];
/// What the store said last.
const LAST: &str = "SELECT replace(query, E'\\n', ' ') FROM pg_stat_activity
    WHERE application_name = 'onlyonce' ORDER BY query_start DESC NULLS LAST LIMIT 1";
const TABLE: &str = "onlyonce_records";
/// A slot is a digest: so is this, of a number that differs each time.
const SLOT: &str = "ARRAY[sha256(int8send(:id))]";

struct Bed {
    postgres: Postgres,
    script: tempfile::NamedTempFile,
}

pub(super) fn run(runtime: &Runtime, turns: Turns) -> Result<Vec<Row>, Failure> {
    let bed = runtime.block_on(Bed::new())?;
    let mut rows = Vec::new();
    for (callers, goal) in CALLERS {
        let mut rounds = Rounds::default();
        for _ in turns.rounds(format!("postgres, {callers} callers")) {
            let base = bed.tool(callers, turns)?;
            let ours = runtime.block_on(bed.store(callers, turns))?;
            rounds.add(ours, base);
        }
        let case = format!("{callers} callers, new request");
        rows.push(rounds.rate("postgres", &case, goal));
        if callers == 1 {
            rows.push(rounds.time("postgres", &case));
        }
        rows.push(rounds.p50("postgres", &case));
        rows.push(rounds.p99("postgres", &case, None));
    }
    Ok(rows)
}

impl Bed {
    async fn new() -> Result<Self, Failure> {
        let postgres = Postgres::start(PostgresOptions {
            fast: false,
            lines: SETTINGS.map(str::to_owned).to_vec(),
        })?;
        // The server is asked what the store said to it: so the statements are the same.
        let url = format!("{}?notify=false", postgres.url());
        let store = PostgresStore::open(&url).await?;
        let caller = Caller::new();
        let lease = granted(&store, &caller.new_claim()).await;
        let claim = postgres.psql(LAST)?;
        complete(&store, &lease, &caller.answer, DAY).await;
        let completion = postgres.psql(LAST)?;
        drop(store);
        let text = format!(
            "\\set id random(1, 1000000000000000)\n{};\n{};\n",
            with_variables(&claim, "claim"),
            with_variables(&completion, "completion"),
        );
        let script = tempfile::NamedTempFile::new().map_err(Failure::doing("make a file"))?;
        fs::write(script.path(), text).map_err(Failure::doing("write a script for pgbench"))?;
        Ok(Self { postgres, script })
    }

    fn tool(&self, callers: usize, turns: Turns) -> Result<Sample, Failure> {
        self.empty()?;
        let mut command = PGBENCH.command()?;
        command.args([
            "-h",
            "127.0.0.1",
            "-U",
            "postgres",
            "-n",
            "-M",
            "prepared",
            "-p",
        ]);
        command.arg(self.postgres.port().to_string());
        command.arg("-c").arg(callers.to_string());
        command.arg("-j").arg(callers.min(2).to_string());
        command.arg("-T").arg(turns.time.as_secs().to_string());
        for (name, value) in variables() {
            command.arg("-D").arg(format!("{name}={value}"));
        }
        command.arg("-f").arg(self.script.path()).arg("postgres");
        let said = PGBENCH.said(&mut command)?;
        let tps = said.lines().find_map(|line| line.strip_prefix("tps = "));
        let rate = tps.and_then(|tps| tps.split(' ').next()?.parse().ok());
        match rate {
            Some(rate) => Ok(Sample {
                rate,
                ..Sample::default()
            }),
            None => Err(PGBENCH.odd(&said)),
        }
    }

    async fn store(&self, callers: usize, turns: Turns) -> Result<Sample, Failure> {
        self.empty()?;
        let store = Arc::new(PostgresStore::open(&self.postgres.url()).await?);
        Ok(drive(&store, callers, turns.time, new_request).await)
    }

    /// Both sides begin with an empty table, and nothing left to be written.
    fn empty(&self) -> Result<(), Failure> {
        self.postgres.psql(&format!("TRUNCATE {TABLE}"))?;
        self.postgres.psql("CHECKPOINT")?;
        Ok(())
    }
}

/// The statement with pgbench's variables in the place of its parameters, and a slot that is new
/// each time in the place of the first.
fn with_variables(statement: &str, name: &str) -> String {
    let mut text = statement.to_owned();
    // From the last: the name of the first is the beginning of the tenth's.
    for n in (2..=10).rev() {
        text = text.replace(&format!("${n}::"), &format!(":{name}{n}::"));
    }
    text.replace("$1::bytea[]", SLOT)
}

/// The parameters of one claim and of its completion, as arrays of one.
fn variables() -> Vec<(String, String)> {
    let bytes = |byte: &str, count: usize| format!("{{\"\\\\x{}\"}}", byte.repeat(count));
    let micros = |time: Duration| format!("{{{}}}", time.as_micros());
    let text = |text: &str| format!("{{\"{text}\"}}");
    let token = bytes("5a", 16);
    let claim = [
        token.clone(),
        bytes("01", 33),
        "{t}".to_owned(),
        micros(Duration::from_secs(60)),
        micros(DAY),
        bytes("6d", 96),
        text("POST /payments"),
        text("alice"),
        text("5f2b…4e10"),
    ];
    let completion = [token, text("D"), bytes("61", BODY_BYTES + 8), micros(DAY)];
    let named = |name: &str, values: Vec<String>| {
        let names = (2..).map(|n| format!("{name}{n}"));
        names.zip(values).collect::<Vec<_>>()
    };
    [
        named("claim", claim.into()),
        named("completion", completion.into()),
    ]
    .concat()
}
