//! `onlyonce keys`: records, for the person on call.

use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use onlyonce_core::Slot;
use onlyonce_core::operate::StateName;
use onlyonce_gateway::RecordView;

use crate::said::{NO, failed, give, say};
use crate::source::{self, Source, SourceError, Wanted};
use crate::table::Table;

/// Look at records and change them.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  onlyonce keys list --state unknown                 what waits for an operator
  onlyonce keys show 3fa9c01b --body                 a record by the start of its slot, as in the log
  onlyonce keys forget 3fa9c01b                      its next request runs anew
  onlyonce keys extend 3fa9c01b 48h
  onlyonce keys resolve 3fa9c01b --status 201 --body '{\"id\":7}'
  onlyonce keys list --store redis://127.0.0.1 --json

Exit code: 0 done, 1 not found, 2 wrong usage or failure.")]
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
    /// List live records, in the order of their slots
    List {
        /// Only in this state: pending, lapsed, done, failed or unknown
        #[arg(long)]
        state: Option<StateName>,
        /// Only of this route or job
        #[arg(long)]
        operation: Option<String>,
        /// Only by this actor
        #[arg(long)]
        actor: Option<String>,
        /// How many at most
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Show a record
    Show {
        /// Its slot, or the start of it (8 hex digits or more)
        slot: String,
        /// The stored body too
        #[arg(long)]
        body: bool,
    },
    /// Forget a record: the next request with its key runs anew
    Forget {
        /// Its slot, or the start of it
        slot: String,
    },
    /// Keep a record longer
    Extend {
        /// Its slot, or the start of it
        slot: String,
        /// How much longer, like 48h
        by: humantime::Duration,
    },
    /// Give an unknown outcome its answer: every retry gets it from now on
    Resolve {
        /// Its slot, or the start of it
        slot: String,
        /// The status of the answer
        #[arg(long)]
        status: u16,
        /// The body of the answer
        #[arg(long, default_value = "")]
        body: String,
        /// How long it is kept
        #[arg(long, default_value = "24h")]
        keep: humantime::Duration,
    },
}

/// Does it; gives the exit code.
pub async fn run(args: &Args) -> ExitCode {
    match act(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ SourceError::Absent) => {
            say(format_args!("{error}"));
            NO.into()
        }
        Err(error) => failed(&error),
    }
}

async fn act(args: &Args) -> Result<(), SourceError> {
    let source = Source::open(&args.source).await?;
    match &args.action {
        Action::List {
            state,
            operation,
            actor,
            limit,
        } => {
            let wanted = Wanted {
                state: *state,
                operation: operation.clone(),
                actor: actor.clone(),
                after: None,
                limit: *limit,
            };
            print_list(&source.list(&wanted).await?, args.json, *limit);
        }
        Action::Show { slot, body } => {
            let slot = find(&source, slot).await?;
            print_record(&source.get(&slot, *body).await?, args.json);
        }
        Action::Forget { slot } => {
            let slot = find(&source, slot).await?;
            source.forget(&slot).await?;
            say(format_args!(
                "forgotten: the next request with its key runs anew"
            ));
        }
        Action::Extend { slot, by } => {
            let slot = find(&source, slot).await?;
            source.extend(&slot, Duration::from(*by)).await?;
            let record = source.get(&slot, false).await?;
            say(format_args!("kept until {}", record.expires_at));
        }
        Action::Resolve {
            slot,
            status,
            body,
            keep,
        } => {
            let status = http::StatusCode::from_u16(*status)
                .map_err(|_| SourceError::Wrong(format!("{status} is not an HTTP status")))?;
            let slot = find(&source, slot).await?;
            source
                .resolve(&slot, status, body, Duration::from(*keep))
                .await?;
            say(format_args!(
                "resolved: every retry gets {status} from now on"
            ));
        }
    }
    Ok(())
}

/// The slot that begins with what was typed, if exactly one does.
async fn find(source: &Source, typed: &str) -> Result<Slot, SourceError> {
    const DIGITS_MIN: usize = 8;
    if let Some(slot) = Slot::from_hex(typed) {
        return Ok(slot);
    }
    let typed = typed.trim_start_matches('#').to_ascii_lowercase();
    let digits = typed.chars().all(|it| it.is_ascii_hexdigit());
    if !digits || !(DIGITS_MIN..64).contains(&typed.len()) {
        return Err(SourceError::Wrong(format!(
            "`{typed}` is not a slot: give its 64 hex digits, or the first 8 or more"
        )));
    }
    let lowest = format!("{typed:0<64}");
    let wanted = Wanted {
        after: before(&lowest),
        limit: 2,
        ..Wanted::default()
    };
    let found = source.list(&wanted).await?;
    let mut found = found
        .iter()
        .filter(|record| record.slot.starts_with(&typed));
    match (found.next(), found.next()) {
        (None, _) => Err(SourceError::Absent),
        (Some(record), None) => Slot::from_hex(&record.slot).ok_or(SourceError::Absent),
        (Some(_), Some(_)) => Err(SourceError::Wrong(format!(
            "more than one slot starts with `{typed}`: give more of it"
        ))),
    }
}

/// The slot just below this one; none below the lowest.
fn before(hex: &str) -> Option<Slot> {
    let slot = Slot::from_hex(hex)?;
    let mut bytes = *slot.as_bytes();
    for byte in bytes.iter_mut().rev() {
        let (less, borrowed) = byte.overflowing_sub(1);
        *byte = less;
        if !borrowed {
            return Some(Slot::from_bytes(bytes));
        }
    }
    None
}

fn print_list(records: &[RecordView], json: bool, limit: usize) {
    if json {
        give(format_args!("{}", serde_json::json!(records)));
        return;
    }
    let mut table = Table::new(&[
        "SLOT",
        "KEY",
        "STATE",
        "STATUS",
        "OPERATION",
        "ACTOR",
        "CREATED",
        "LEFT",
        "REPLAYS",
    ]);
    for record in records {
        let status = record.response.as_ref().map(|it| it.status.to_string());
        let left = Duration::from_secs(record.keep_left_seconds);
        table.row(vec![
            record.slot.chars().take(12).collect(),
            format!("{}…", record.hint),
            record.state.clone(),
            status.unwrap_or_else(|| "-".to_owned()),
            record.operation.clone(),
            record.actor.clone().unwrap_or_else(|| "-".to_owned()),
            record.created_at.clone(),
            humantime::format_duration(left).to_string(),
            record.replays.to_string(),
        ]);
    }
    give(format_args!("{table}"));
    if records.len() == limit {
        say(format_args!("there may be more: raise --limit"));
    }
}

fn print_record(record: &RecordView, json: bool) {
    if json {
        give(format_args!("{}", serde_json::json!(record)));
        return;
    }
    let line = |name: &str, value: &str| give(format_args!("{name:<11} {value}"));
    line("slot", &record.slot);
    line("key", &format!("{}…", record.hint));
    line("state", &record.state);
    line("operation", &record.operation);
    line("actor", record.actor.as_deref().unwrap_or("-"));
    line(
        "holder",
        &format!("{} (attempt {})", record.holder, record.attempt),
    );
    line("on lapse", &record.on_lapse);
    line("created", &record.created_at);
    line("completed", record.completed_at.as_deref().unwrap_or("-"));
    line("expires", &record.expires_at);
    line("replays", &record.replays.to_string());
    if let Some(response) = &record.response {
        let size = format!(
            "{}, {} bytes, took {} ms",
            response.status, response.body_bytes, response.took_ms
        );
        line("response", &size);
        for (name, value) in &response.headers {
            line("", &format!("{name}: {value}"));
        }
        if let Some(body) = response.body.as_ref().or(response.body_base64.as_ref()) {
            give(format_args!("\n{body}"));
        }
    }
}
