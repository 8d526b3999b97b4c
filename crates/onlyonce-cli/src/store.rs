//! `onlyonce store`: is it well, how much is in it, and sweeping it by hand.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Subcommand;
use onlyonce_core::Slot;
use onlyonce_core::operate::Filter;
use serde_json::json;

use crate::progress::Progress;
use crate::quorum;
use crate::said::{failed, give, say};
use crate::source::{self, Operator, Source, SourceError};

/// Records dropped or read in one step.
const STEP_RECORDS: usize = 1000;

/// Check and maintain a store.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  onlyonce store check                               the store of the gateway on this machine
  onlyonce store check --store file:./onlyonce-data  a folder, while no gateway owns it
  onlyonce store stats --store redis://127.0.0.1 --json
  onlyonce store sweep --store postgres://127.0.0.1/shop
  onlyonce store sql --store postgres://127.0.0.1/shop  for upstreams that complete records themselves
  onlyonce store quorum status --store redis+quorum://a,b,c

Exit code: 0 done, 2 wrong usage or failure.")]
pub struct Args {
    #[command(flatten)]
    source: source::Args,
    /// As JSON, for programs
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Check that the store answers and that every record in it can be read
    Check,
    /// Show how much it holds
    Stats,
    /// Drop expired records now, in bounded steps
    Sweep {
        /// Why, for the audit trail
        #[arg(long)]
        reason: Option<String>,
    },
    /// Print the statement with which a program completes a record in its own transaction
    Sql,
    /// Show the servers of a quorum, admit one, or replace one
    #[command(subcommand)]
    Quorum(quorum::Action),
}

/// Runs the command; returns the exit code.
pub async fn run(args: &Args) -> ExitCode {
    match act(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

async fn act(args: &Args) -> Result<(), SourceError> {
    let open = || Source::open(&args.source);
    match &args.action {
        Action::Check => check(&open().await?, args.json).await,
        Action::Stats => stats(&open().await?, args.json).await,
        Action::Sweep { reason } => {
            let operator = Operator::open(&args.source, reason.as_deref()).await?;
            sweep(&operator, args.json).await
        }
        Action::Sql => sql(&args.source, args.json),
        Action::Quorum(action) => quorum::act(store_url(&args.source)?, action, args.json).await,
    }
}

/// Reads every record once.
async fn check(source: &Source, json: bool) -> Result<(), SourceError> {
    source.ping().await?;
    let progress = Progress::new("records read", source.stats().await?.records);
    let mut states = BTreeMap::<String, u64>::new();
    let mut after = None;
    loop {
        let page = source.list(&Filter::default(), after, STEP_RECORDS).await?;
        for record in &page {
            *states.entry(record.state.clone()).or_default() += 1;
        }
        progress.add(page.len());
        after = page.last().and_then(|record| Slot::from_hex(&record.slot));
        if page.len() < STEP_RECORDS {
            break;
        }
    }
    progress.end();
    let records: u64 = states.values().sum();
    if json {
        give(format_args!(
            "{}",
            json!({"records": records, "states": states})
        ));
    } else {
        say(format_args!(
            "the store answers, and its {records} records can be read"
        ));
        for (state, count) in states {
            give(format_args!("{state:<8} {count}"));
        }
    }
    Ok(())
}

fn store_url(source: &source::Args) -> Result<&str, SourceError> {
    source.store().ok_or_else(|| {
        SourceError::Wrong("give --store, the URL of the store as in the gateway's file".to_owned())
    })
}

/// Says how records of this store are completed; the store itself is not asked.
fn sql(source: &source::Args, json: bool) -> Result<(), SourceError> {
    let sql = onlyonce_stores::completion_sql(store_url(source)?)?;
    if json {
        let told = json!({"statement": sql.statement, "grant": sql.grant, "about": sql.about});
        give(format_args!("{told}"));
    } else {
        give(format_args!("{sql}"));
    }
    Ok(())
}

async fn stats(source: &Source, json: bool) -> Result<(), SourceError> {
    let stats = source.stats().await?;
    if json {
        give(format_args!("{}", json!(stats)));
    } else {
        give(format_args!("records  {}", stats.records));
        give(format_args!("pending  {}", stats.pending));
        give(format_args!("bytes    {}", stats.bytes));
    }
    Ok(())
}

async fn sweep(operator: &Operator, json: bool) -> Result<(), SourceError> {
    let progress = Progress::unbounded("expired records dropped");
    let mut all = 0;
    loop {
        let swept = operator.sweep(STEP_RECORDS).await?;
        all += swept;
        progress.add(swept);
        if swept < STEP_RECORDS {
            break;
        }
    }
    progress.end();
    if json {
        give(format_args!("{}", json!({"swept": all})));
    } else {
        say(format_args!("{all} expired records dropped"));
    }
    Ok(())
}
