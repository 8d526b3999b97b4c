//! `onlyonce queue list` and `show`. Values that may prove who somebody is are not printed unless they are
//! asked for, nor is what stands behind the `?` of an address.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::ValueEnum;
use onlyonce_client::{
    Entries, Entry, GroupId, GroupStatus, Operation, OperationId, Queue, QueueError, State, Status,
};
use onlyonce_core::Timestamp;
use serde_json::{Map, Value, json};

use super::CommandError;
use super::wanted::is_secret;
use crate::said::{body_for, give, legible};
use crate::table::Table;

/// What is shown of a request, in this order.
const SHOWN: [&str; 16] = [
    "id",
    "state",
    "method",
    "url",
    "headers",
    "body_bytes",
    "key",
    "attempts",
    "why",
    "status",
    "group",
    "undoes",
    "added",
    "first_sent",
    "ended",
    "due_in_seconds",
];
const HIDDEN: &str = "(hidden: --secrets shows it)";

/// The state of a request, on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum ListedState {
    /// Will be sent, or sent again
    Waiting,
    /// A compensation that is not needed so far
    Spare,
    /// Failed for good
    Failed,
    /// Done, for a day
    Done,
}

impl From<ListedState> for State {
    fn from(state: ListedState) -> Self {
        match state {
            ListedState::Waiting => Self::Waiting,
            ListedState::Spare => Self::Spare,
            ListedState::Failed => Self::Failed,
            ListedState::Done => Self::Done,
        }
    }
}

/// What to show.
#[derive(clap::Args, Debug)]
pub(super) struct Show {
    /// Which request
    #[arg(required_unless_present = "group")]
    id: Option<i64>,
    /// A group instead: how far it is, and its requests
    #[arg(long, value_name = "ID", conflicts_with = "id")]
    group: Option<i64>,
    /// Print the body, and nothing else; of one that is done the service's answer
    #[arg(long, conflicts_with = "group")]
    body: bool,
    /// Print credentials and whole addresses too
    #[arg(long)]
    secrets: bool,
}

pub(super) async fn list(
    queue: &Queue,
    state: Option<ListedState>,
    after: Option<i64>,
    limit: u32,
    json: bool,
) -> Result<ExitCode, CommandError> {
    let wanted = Entries {
        state: state.map(State::from),
        after: after.map(OperationId::from_number),
        limit,
        ..Entries::default()
    };
    print_all(&queue.entries(wanted).await?, json);
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn show(queue: &Queue, show: &Show, json: bool) -> Result<ExitCode, CommandError> {
    if let Some(group) = show.group {
        return show_group(queue, GroupId::from_number(group), json).await;
    }
    let id = OperationId::from_number(show.id.unwrap_or_default());
    let entry = queue.entry(id).await?.ok_or(QueueError::NotThere)?;
    if show.body {
        return print_body(&entry);
    }
    let told = as_json(&entry, show.secrets, true);
    if json {
        give(format_args!("{told}"));
        return Ok(ExitCode::SUCCESS);
    }
    for name in SHOWN {
        let Some(value) = told.get(name) else {
            continue;
        };
        if let Value::Object(headers) = value {
            for (name, value) in headers {
                give(format_args!("{:<10} {name}: {}", "header", plain(value)));
            }
        } else {
            give(format_args!("{name:<10} {}", plain(value)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn show_group(queue: &Queue, id: GroupId, json: bool) -> Result<ExitCode, CommandError> {
    let status = queue.group(id).await?.ok_or(QueueError::NotThere)?;
    let wanted = Entries {
        group: Some(id),
        ..Entries::default()
    };
    let entries = queue.entries(wanted).await?;
    let state = group_state(status);
    if json {
        let parts: Vec<_> = entries.iter().map(|it| as_json(it, false, false)).collect();
        let told = json!({"group": id.number(), "state": state, "requests": parts});
        give(format_args!("{told}"));
        return Ok(ExitCode::SUCCESS);
    }
    give(format_args!("group {} is {state}", id.number()));
    print_all(&entries, false);
    Ok(ExitCode::SUCCESS)
}

pub(super) fn group_state(status: GroupStatus) -> &'static str {
    match status {
        GroupStatus::Running => "running",
        GroupStatus::Done => "done",
        GroupStatus::Undoing => "undoing",
        GroupStatus::Stuck => "stuck",
        GroupStatus::Undone => "undone",
        _ => "unknown",
    }
}

fn print_all(entries: &[Entry], json: bool) {
    if json {
        for entry in entries {
            give(format_args!("{}", as_json(entry, false, false)));
        }
        return;
    }
    let headings = ["ID", "STATE", "TRIES", "REQUEST", "KEY", "WHY"];
    let mut table = Table::new(&headings).tinted(1, |state| match state {
        "failed" => Some(31),
        "done" => Some(32),
        _ => None,
    });
    for entry in entries {
        let request = entry.operation.as_ref().map(|operation| {
            let method = operation.method();
            format!("{method} {}", address(operation, false))
        });
        table.row(vec![
            entry.id.to_string(),
            State::of(&entry.status).name().to_owned(),
            entry.attempts.to_string(),
            request.unwrap_or_default(),
            entry.key.expose().to_owned(),
            why(entry).unwrap_or_default(),
        ]);
    }
    give(format_args!("{table}"));
}

/// The body as it is, to stdout; to a terminal without what that would obey.
fn print_body(entry: &Entry) -> Result<ExitCode, CommandError> {
    let bytes = match (&entry.status, &entry.operation) {
        (Status::Done { answer, .. }, _) => answer.clone().unwrap_or_default(),
        (_, Some(operation)) => operation.bytes().clone(),
        (_, None) => bytes::Bytes::new(),
    };
    let mut stdout = std::io::stdout();
    let bytes = if stdout.is_terminal() {
        let text = String::from_utf8_lossy(&bytes);
        body_for(&text, true).into_owned().into()
    } else {
        bytes
    };
    std::io::Write::write_all(&mut stdout, &bytes)
        .map_err(CommandError::io("the body cannot be printed"))?;
    Ok(ExitCode::SUCCESS)
}

/// All that is known about a request, for a program. `headers` too where all of it is asked for.
pub(super) fn as_json(entry: &Entry, secrets: bool, headers: bool) -> Value {
    let mut told = Map::new();
    let mut tell = |name: &str, value: Value| {
        if !value.is_null() {
            told.insert(name.to_owned(), value);
        }
    };
    tell("id", entry.id.number().into());
    tell("state", State::of(&entry.status).name().into());
    if let Some(operation) = &entry.operation {
        tell("method", operation.method().as_str().into());
        tell("url", address(operation, secrets).into());
        if headers && !operation.headers().is_empty() {
            tell("headers", shown_headers(operation, secrets));
        }
        if !operation.bytes().is_empty() {
            tell("body_bytes", operation.bytes().len().into());
        }
    }
    tell("key", entry.key.expose().into());
    tell("attempts", entry.attempts.into());
    tell("why", why(entry).into());
    if let Status::Done { status, .. } = &entry.status {
        tell("status", (*status).into());
    }
    tell("group", entry.group.map(GroupId::number).into());
    if entry.is_undo {
        tell("undoes", true.into());
    }
    tell("added", date(Some(entry.created_at)));
    tell("first_sent", date(entry.sent_at));
    tell("ended", date(entry.ended_at));
    let due = entry.due_in.filter(|due| !due.is_zero());
    tell("due_in_seconds", due.map(|due| due.as_secs() + 1).into());
    Value::Object(told)
}

fn shown_headers(operation: &Operation, secrets: bool) -> Value {
    let shown = operation.headers().iter().map(|(name, value)| {
        let is_hidden = !secrets && (value.is_sensitive() || is_secret(name));
        let value = if is_hidden {
            HIDDEN.to_owned()
        } else {
            String::from_utf8_lossy(value.as_bytes()).into_owned()
        };
        (name.to_string(), Value::from(value))
    });
    Value::Object(shown.collect())
}

/// Where it goes.
pub(super) fn address(operation: &Operation, secrets: bool) -> String {
    let mut url = operation.url().clone();
    if secrets || url.query().is_none() {
        return url.into();
    }
    url.set_query(None);
    format!("{url}?…")
}

/// Why it is not done.
fn why(entry: &Entry) -> Option<String> {
    let cause = match &entry.status {
        Status::Waiting { cause, .. } => (*cause)?,
        Status::Failed { cause, .. } => *cause,
        Status::Spare | Status::Done { .. } => return None,
    };
    Some(match entry.detail.as_str() {
        "" => cause.name().to_owned(),
        detail => format!("{} ({detail})", cause.name()),
    })
}

fn date(time: Option<Timestamp>) -> Value {
    time.map(Timestamp::to_rfc3339).into()
}

fn plain(value: &Value) -> String {
    let text = value.as_str().map(|text| legible(text).into_owned());
    text.unwrap_or_else(|| value.to_string())
}
