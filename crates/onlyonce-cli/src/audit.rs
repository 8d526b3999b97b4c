//! `onlyonce audit`: the audit trail of a gateway, read and purged where it lies.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use onlyonce_gateway::audit::{Trail, TrailError};
use serde_json::{Value, json};

use crate::said::{failed, give, say};

/// How often a trail that is followed is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Entries between two looks, at most.
const BETWEEN_LOOKS: usize = 10_000;

/// Read the audit trail, or take an actor out of it.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  onlyonce audit tail --file audit.jsonl -n 50 --actor user-7
  onlyonce audit tail --file audit.jsonl --follow
  onlyonce audit purge --file audit.jsonl --actor user-7

FILE is `path` of [audit] in the gateway's settings. Both may run while the gateway does.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the newest entries, one JSON object a line
    Tail {
        /// The trail's newest file
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
        /// How many
        #[arg(short = 'n', long, default_value_t = 20)]
        count: usize,
        /// Only of this actor
        #[arg(long)]
        actor: Option<String>,
        /// Go on with what is written from now on
        #[arg(long)]
        follow: bool,
    },
    /// Remove every entry of an actor, from all files, all or none
    Purge {
        /// The trail's newest file
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
        /// Whose entries
        #[arg(long)]
        actor: String,
        /// As JSON, for programs
        #[arg(long)]
        json: bool,
    },
}

/// Does it; gives the exit code.
pub async fn run(args: &Args) -> ExitCode {
    match act(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

async fn act(args: &Args) -> Result<(), TrailError> {
    match &args.action {
        Action::Tail {
            file,
            count,
            actor,
            follow,
        } => {
            let trail = Trail::at(file);
            let admit =
                |entry: &Value| actor.as_ref().is_none_or(|it| entry["actor"]["id"] == **it);
            let (seen, unread) = trail.last(*count, admit)?;
            print(&seen);
            if unread > 0 {
                say(format_args!(
                    "{unread} lines could not be read: torn by a crash"
                ));
            }
            if *follow {
                go_on(&trail, seen, admit).await?;
            }
        }
        Action::Purge { file, actor, json } => {
            let purged = Trail::at(file).purge(actor)?;
            if *json {
                let told = json!({"removed": purged.removed, "kept": purged.kept});
                give(format_args!("{told}"));
            } else {
                let (removed, kept) = (purged.removed, purged.kept);
                say(format_args!("{removed} entries removed, {kept} stay"));
            }
        }
    }
    Ok(())
}

/// Prints what is written from now on.
async fn go_on(
    trail: &Trail,
    mut seen: Vec<Value>,
    admit: impl Fn(&Value) -> bool,
) -> Result<(), TrailError> {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let (newest, _) = trail.last(BETWEEN_LOOKS, &admit)?;
        let last = seen.last().map(|entry| &entry["eventId"]);
        let known = newest
            .iter()
            .rposition(|entry| Some(&entry["eventId"]) == last);
        let new = newest[known.map_or(0, |at| at + 1)..].to_vec();
        print(&new);
        if !new.is_empty() {
            seen = new;
        }
    }
}

fn print(entries: &[Value]) {
    for entry in entries {
        give(format_args!("{entry}"));
    }
}
