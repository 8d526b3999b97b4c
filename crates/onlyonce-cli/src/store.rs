//! `onlyonce store`: is it well, how much is in it, and sweeping it by hand.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use crate::said::{failed, give, say};
use crate::source::{self, Source, SourceError};

/// Records dropped in one step.
const STEP_RECORDS: usize = 1000;

/// Look after a store.
#[derive(clap::Args, Debug)]
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
    /// Say whether the store answers
    Check,
    /// Say how much is in it
    Stats,
    /// Drop expired records now, in bounded steps
    Sweep,
}

/// Does it; gives the exit code.
pub async fn run(args: &Args) -> ExitCode {
    match act(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

async fn act(args: &Args) -> Result<(), SourceError> {
    let source = Source::open(&args.source).await?;
    match args.action {
        Action::Check => {
            source.ping().await?;
            say(format_args!("the store answers"));
        }
        Action::Stats => {
            let stats = source.stats().await?;
            if args.json {
                give(format_args!("{}", json!(stats)));
            } else {
                give(format_args!("records  {}", stats.records));
                give(format_args!("pending  {}", stats.pending));
                give(format_args!("bytes    {}", stats.bytes));
            }
        }
        Action::Sweep => {
            let mut all = 0;
            loop {
                let swept = source.sweep(STEP_RECORDS).await?;
                all += swept;
                if swept < STEP_RECORDS {
                    break;
                }
                say(format_args!("{all} dropped so far"));
            }
            if args.json {
                give(format_args!("{}", json!({"swept": all})));
            } else {
                say(format_args!("{all} expired records dropped"));
            }
        }
    }
    Ok(())
}
