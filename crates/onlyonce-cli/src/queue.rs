//! `onlyonce queue`: requests on disk until a service has answered them, for shell scripts and programs in
//! any language. Every call opens the same folder; one process at a time sends what is in it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use onlyonce_client::{OperationError, QueueError};
use thiserror::Error;

use self::look::ListedState;
use crate::said::{FAILED, LATER, NO, failed};

mod add;
mod api;
mod change;
mod deliver;
mod guard;
mod look;
mod place;
mod serve;
mod socket;
mod wanted;

/// Which queue, and what to do with it.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
A request that is added is on disk, with its Idempotency-Key, before the command says so. It is sent
until the service has answered: always under the same key, so that a service that knows keys does it
once, whatever is killed, cut off or repeated on the way.

Examples:
  onlyonce queue add POST https://api.example.org/orders -d '{\"item\":\"tea\"}'
  onlyonce queue add POST https://api.example.org/orders -d @order.json -H @token.txt --key order-17
  generate-report | onlyonce queue add PUT https://api.example.org/report -d @- --content-type text/csv
  onlyonce queue send                                what is due, once: for cron
  onlyonce queue serve                               for as long as it runs; days offline do no harm
  onlyonce queue list --state failed
  onlyonce queue show 17 --body
  onlyonce queue edit 17 -d '{\"item\":\"coffee\"}'      another request: it gets a new key
  onlyonce queue retry 17                            after its cause was removed: the same key
  onlyonce queue drop 17

Exit code: 0 done; 1 no (not found, key in use, full, something failed for good); 2 wrong usage or
failure; 3 not yet (requests still wait, or another process is sending them).")]
pub struct Args {
    /// The queue's folder [default: $XDG_STATE_HOME/onlyonce/queue, or ~/.local/state/onlyonce/queue]
    #[arg(long, short, global = true, value_name = "DIR", env = "ONLYONCE_QUEUE")]
    queue: Option<PathBuf>,
    /// As JSON, for programs
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Put a request in, or a group of requests; prints its number and its key
    Add(add::Args),
    /// List requests, in the order in which they were added
    List {
        /// Only in this state
        #[arg(long, value_enum)]
        state: Option<ListedState>,
        /// Start after this request
        #[arg(long, value_name = "ID")]
        after: Option<i64>,
        /// How many at most
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
    },
    /// Show a request, or a group
    Show(look::Show),
    /// Put another request in the place of one that is not done: it gets a new key
    Edit(change::Edit),
    /// Send requests that failed again, under the same keys
    Retry {
        /// Which
        #[arg(value_name = "ID", required_unless_present = "all")]
        ids: Vec<i64>,
        /// All that failed
        #[arg(long, conflicts_with = "ids")]
        all: bool,
    },
    /// Forget requests that are not done
    Drop {
        /// Which
        #[arg(value_name = "ID", required = true)]
        ids: Vec<i64>,
    },
    /// Send what is due, once
    Send(deliver::Options),
    /// Send what is due for as long as it runs, and take requests over a socket or loopback HTTP
    Serve(serve::Args),
}

/// Why the command could not do it.
#[derive(Debug, Error)]
pub(crate) enum CommandError {
    #[error(transparent)]
    Queue(#[from] QueueError),
    #[error(transparent)]
    Operation(#[from] OperationError),
    #[error("{0}")]
    Wrong(String),
    #[error("{what}")]
    Io {
        what: String,
        source: std::io::Error,
    },
}

impl CommandError {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// What the exit code says about it.
    fn code(&self) -> u8 {
        match self {
            Self::Queue(error) => match error {
                QueueError::NotThere
                | QueueError::InGroup
                | QueueError::KeyInUse
                | QueueError::EmptyGroup
                | QueueError::Full { .. } => NO,
                QueueError::Sending { .. } => LATER,
                QueueError::Folder { .. }
                | QueueError::InUse { .. }
                | QueueError::Replaced { .. }
                | QueueError::Stopped
                | QueueError::Database(_)
                | QueueError::Version(_)
                | QueueError::Damaged { .. }
                | QueueError::KeyNotSendable(_)
                | _ => FAILED,
            },
            Self::Operation(_) | Self::Wrong(_) | Self::Io { .. } => FAILED,
        }
    }
}

/// Runs the command; returns the exit code.
pub async fn run(args: &Args) -> ExitCode {
    match act(args).await {
        Ok(code) => code,
        Err(error) => {
            failed(&error);
            error.code().into()
        }
    }
}

async fn act(args: &Args) -> Result<ExitCode, CommandError> {
    let folder = place::folder(args.queue.as_deref())?;
    let json = args.json;
    let open = || place::open(&folder);
    match &args.action {
        Action::Add(adding) => {
            // Read before the queue is opened: stdin may take its time.
            let added = adding.read()?;
            add::add(&open().await?, added, json).await
        }
        Action::List {
            state,
            after,
            limit,
        } => look::list(&open().await?, *state, *after, *limit, json).await,
        Action::Show(show) => look::show(&open().await?, show, json).await,
        Action::Edit(edit) => change::edit(&open().await?, edit, json).await,
        Action::Retry { ids, all } => change::retry(&open().await?, ids, *all, json).await,
        Action::Drop { ids } => change::discard(&open().await?, ids, json).await,
        Action::Send(options) => deliver::send(&folder, options, json).await,
        Action::Serve(serving) => serve::serve(&folder, serving, json).await,
    }
}
