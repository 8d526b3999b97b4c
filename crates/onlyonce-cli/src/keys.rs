//! `onlyonce keys`: records, for the person on call.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use onlyonce_core::Slot;
use onlyonce_core::operate::{Filter, StateName};
use onlyonce_gateway::{RecordView, RecordsPage};

use crate::said::{NO, body_for, failed, give, legible, say};
use crate::source::{self, Operator, Source, SourceError};
use crate::table::Table;

mod live;
mod resolve;

/// Digits of a slot that people see and type.
const SLOT_DIGITS: usize = 7;

/// The order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Sort {
    /// The newest first
    Newest,
    /// By slot
    Slot,
}

/// Show records and change them.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  onlyonce keys list --state unknown                 what waits for an operator
  onlyonce keys show 550e8400-e29b-41d4-a716-446655440000 --body      a record by its key
  onlyonce keys show 3fa9c01b                        or by the start of its slot, as in lists
  onlyonce keys forget 3fa9c01b                      its next request runs anew
  onlyonce keys extend 3fa9c01b 48h
  onlyonce keys resolve 3fa9c01b --status 201 --body '{\"id\":7}' --reason 'order 7 is in the ledger'
  onlyonce keys resolve --operation /orders --did-not-happen --reason 'crash at 14:02' --dry-run
  onlyonce keys list --store redis://127.0.0.1 --json
  onlyonce keys top                                  the keys that are repeated most
  onlyonce keys watch --event refused,replayed       what happens, as it does

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
    /// List live records, the newest first
    List {
        /// In which order
        #[arg(long, value_enum, default_value_t = Sort::Newest)]
        sort: Sort,
        /// Only in this state: pending, lapsed, done, failed or unknown
        #[arg(long)]
        state: Option<StateName>,
        /// Only of this route or job
        #[arg(long)]
        operation: Option<String>,
        /// Only by this actor
        #[arg(long)]
        actor: Option<String>,
        /// Only first claimed at least this long ago, like 5m
        #[arg(long, value_name = "AGE")]
        older_than: Option<humantime::Duration>,
        /// Only first claimed at most this long ago, like 1h
        #[arg(long, visible_alias = "since", value_name = "AGE")]
        younger_than: Option<humantime::Duration>,
        /// Start after this record: what the list before ended with
        #[arg(long, value_name = "RECORD")]
        after: Option<String>,
        /// How many at most
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
    /// Show a record
    Show {
        /// Its key, its slot, or 7 or more hex digits that its slot starts with; - reads it from stdin
        record: String,
        /// The stored body too; with --json it is always there
        #[arg(long)]
        body: bool,
    },
    /// Forget a record: the next request with its key runs anew. By its key, under both secrets
    /// while they are rotated
    Forget {
        /// Its key, its slot, or 7 or more hex digits that its slot starts with; - reads it from stdin
        record: String,
        /// Why, for the audit trail
        #[arg(long)]
        reason: Option<String>,
    },
    /// Keep a record longer
    Extend {
        /// Its key, its slot, or 7 or more hex digits that its slot starts with; - reads it from stdin
        record: String,
        /// How much longer, like 48h
        by: humantime::Duration,
        /// Why, for the audit trail
        #[arg(long)]
        reason: Option<String>,
    },
    /// Settle outcomes in doubt: with the answer that every retry gets from now on, or as not happened
    Resolve(resolve::Resolve),
    /// Show the keys that are replayed, refused or waited for most
    Top {
        /// How many at most
        #[arg(long, default_value_t = 20)]
        limit: u16,
    },
    /// Print events as they happen
    Watch(live::Watch),
}

/// Runs the command; returns the exit code.
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
    let operator = Operator::open(&args.source, args.action.reason()).await?;
    let source = &operator.source;
    match &args.action {
        Action::List {
            sort,
            state,
            operation,
            actor,
            older_than,
            younger_than,
            after,
            limit,
        } => {
            let filter = Filter {
                state: *state,
                operation: operation.clone(),
                actor: actor.clone(),
                hint: None,
                age_min: older_than.map(Into::into),
                age_max: younger_than.map(Into::into),
            };
            let limit = usize::from(*limit);
            let slot_of = |after: &String| whole_slot(after.rsplit('-').next().unwrap_or_default());
            after.as_ref().map(slot_of).transpose()?;
            let page = match sort {
                Sort::Newest => source.newest(&filter, after.as_deref(), limit).await?,
                Sort::Slot => by_slots(source, &filter, after.as_deref(), limit).await?,
            };
            print_list(&page.records, args.json);
            if let Some(next) = page.next.filter(|_| !args.json) {
                say(format_args!("there may be more: --after {next}"));
            }
        }
        Action::Top { limit } => live::top(source, *limit, args.json).await?,
        Action::Watch(watch) => live::watch(source, watch, args.json).await?,
        Action::Show { record, body } => {
            let slot = find(source, record).await?;
            let record = operator.show(&slot, *body || args.json).await?;
            print_record(&record, args.json);
        }
        Action::Forget { record, .. } => {
            for slot in find_halves(source, record).await? {
                operator.forget(&slot).await?;
            }
            say(format_args!(
                "forgotten: the next request with its key runs anew"
            ));
        }
        Action::Extend { record, by, .. } => {
            let slot = find(source, record).await?;
            operator.extend(&slot, Duration::from(*by)).await?;
            let record = source.get(&slot).await?;
            match record.state.as_str() {
                // When it ends is not known, nor how long the answer is to be kept then.
                "pending" => say(format_args!(
                    "still running: its answer will be kept {by} longer than it would be"
                )),
                _ => say(format_args!("kept until {}", record.expires_at)),
            }
        }
        Action::Resolve(asked) => resolve::run(&operator, asked, args.json).await?,
    }
    Ok(())
}

impl Action {
    /// Why it is done, where it changes something.
    fn reason(&self) -> Option<&str> {
        match self {
            Self::Forget { reason, .. } | Self::Extend { reason, .. } => reason.as_deref(),
            Self::Resolve(asked) => asked.reason(),
            Self::List { .. } | Self::Show { .. } | Self::Top { .. } | Self::Watch(_) => None,
        }
    }
}

/// A page in the order of the slots.
async fn by_slots(
    source: &Source,
    filter: &Filter,
    after: Option<&str>,
    limit: usize,
) -> Result<RecordsPage, SourceError> {
    let after = after.map(whole_slot).transpose()?;
    let records = source.list(filter, after, limit).await?;
    let next = records.last().filter(|_| records.len() == limit);
    let next = next.map(|it| it.slot.clone());
    Ok(RecordsPage { records, next })
}

/// The one record that was meant.
async fn find(source: &Source, typed: &str) -> Result<Slot, SourceError> {
    match &find_halves(source, typed).await?[..] {
        [slot] => Ok(*slot),
        halves => Err(SourceError::Wrong(format!(
            "while the slot secret is rotated it has a record under each; say which:{}",
            halves
                .iter()
                .map(|it| format!("\n  {it}"))
                .collect::<String>()
        ))),
    }
}

/// The one record that was meant, or both of its halves while the slot secret is rotated. A slot
/// goes before a key that looks like one, and means only itself.
async fn find_halves(source: &Source, typed: &str) -> Result<Vec<Slot>, SourceError> {
    let typed = match typed {
        "-" => std::io::read_to_string(std::io::stdin())
            .map_err(|error| SourceError::Wrong(format!("stdin cannot be read: {error}")))?,
        typed => typed.to_owned(),
    };
    let typed = typed.trim();
    if let Some(slot) = by_slot(source, typed.trim_start_matches('#')).await? {
        return Ok(vec![slot]);
    }
    let found = source.find(typed).await?;
    match &found[..] {
        [] => Err(SourceError::Absent),
        [record] => Ok(vec![whole_slot(&record.slot)?]),
        [one, other] if one.other_half.as_ref() == Some(&other.slot) => {
            Ok(vec![whole_slot(&one.slot)?, whole_slot(&other.slot)?])
        }
        several => Err(SourceError::Wrong(format!(
            "{} records have this key, each in a scope of its own; say which:{}",
            several.len(),
            several.iter().map(line_of).collect::<String>()
        ))),
    }
}

fn line_of(record: &RecordView) -> String {
    let actor = legible(record.actor.as_deref().unwrap_or("nobody in particular"));
    let operation = legible(&record.operation);
    format!("\n  {}  {operation} by {actor}", record.slot)
}

/// The slot that is, or begins with, what was typed.
async fn by_slot(source: &Source, typed: &str) -> Result<Option<Slot>, SourceError> {
    const DIGITS: usize = 2 * Slot::BYTES;
    const DIGITS_MIN: usize = SLOT_DIGITS;
    let typed = typed.to_ascii_lowercase();
    let digits = typed.chars().all(|it| it.is_ascii_hexdigit());
    if !digits || !(DIGITS_MIN..=DIGITS).contains(&typed.len()) {
        return Ok(None);
    }
    let lowest = format!("{typed:0<DIGITS$}");
    let found = source.list(&Filter::default(), before(&lowest), 2).await?;
    let mut found = found
        .iter()
        .filter(|record| record.slot.starts_with(&typed));
    match (found.next(), found.next()) {
        (None, _) => Ok(None),
        (Some(record), None) => whole_slot(&record.slot).map(Some),
        (Some(_), Some(_)) => Err(SourceError::Wrong(format!(
            "more than one slot starts with `{typed}`: give more of it"
        ))),
    }
}

fn whole_slot(text: &str) -> Result<Slot, SourceError> {
    let wrong = || SourceError::Wrong(format!("`{text}` is not a slot: give its 64 hex digits"));
    Slot::from_hex(text).ok_or_else(wrong)
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

fn print_list(records: &[RecordView], json: bool) {
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
    ])
    .tinted(2, tint);
    for record in records {
        let status = record.response.as_ref().map(|it| it.status.to_string());
        let left = Duration::from_secs(record.keep_left_seconds);
        table.row(vec![
            short(&record.slot),
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
}

/// Green for what went well, red for what did not, yellow for what needs a look.
fn tint(state: &str) -> Option<u8> {
    match state {
        "done" => Some(32),
        "failed" => Some(31),
        "unknown" | "lapsed" => Some(33),
        _ => None,
    }
}

/// A slot as lists show it: enough to find the record again.
fn short(slot: &str) -> String {
    slot.chars().take(SLOT_DIGITS).collect()
}

fn print_record(record: &RecordView, json: bool) {
    if json {
        give(format_args!("{}", serde_json::json!(record)));
        return;
    }
    let line = |name: &str, value: &str| give(format_args!("{name:<11} {}", legible(value)));
    line("slot", &record.slot);
    line("key", &format!("{}…", record.hint));
    let state = match &record.document_state {
        Some(word) => format!("{} ({word})", record.state),
        None => record.state.clone(),
    };
    line("state", &state);
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
    for step in &record.steps {
        let attempt = step.attempt;
        let told = format!(
            "{} {} (attempt {attempt}) {}",
            step.name, step.state, step.slot
        );
        line("step", &told);
    }
    if let Some(response) = &record.response {
        let took = record.execution_time_ms.unwrap_or_default();
        let size = format!(
            "{}, {} bytes, took {took} ms",
            response.status, response.body_bytes
        );
        line("made", response.resource.as_deref().unwrap_or("-"));
        line("response", &size);
        for (name, value) in &response.headers {
            for value in value.lines() {
                line("", &format!("{name}: {value}"));
            }
        }
        if let Some(body) = response.body.as_ref().or(response.body_b64.as_ref()) {
            give(format_args!(
                "\n{}",
                body_for(body, std::io::stdout().is_terminal())
            ));
        }
    }
}
