//! `onlyonce queue send`, and what it shares with `serve`: how requests are sent, and what is said about
//! each attempt.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onlyonce_client::{
    AttemptOutcome, Attempted, Evidence, Https, Queue, QueueOptions, Retry, Sender, Stats,
};
use serde_json::{Value, json};

use super::CommandError;
use super::look::address;
use crate::progress::Progress;
use crate::said::{LATER, NO, give, say};

/// How requests are sent.
#[derive(clap::Args, Debug)]
pub(super) struct Options {
    /// How long one attempt may take
    #[arg(long, value_name = "TIME", default_value = "30s")]
    timeout: humantime::Duration,
    /// How many requests are sent at the same time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    parallel: u16,
    /// How long the services remember a key, at least: what may have run that long ago is not sent again
    #[arg(long, value_name = "TIME", default_value = "24h")]
    key_life: humantime::Duration,
    /// The longest pause between two attempts
    #[arg(long, value_name = "TIME", default_value = "5m")]
    pause_max: humantime::Duration,
    /// The services answer status requests below this path, like /status: they are asked after a lost answer
    #[arg(long, value_name = "PATH")]
    status_path: Option<String>,
    /// Take 202 Accepted for done: for services that never answer anything else
    #[arg(long)]
    accepted: bool,
    /// Take web pages for answers of the services
    #[arg(long)]
    pages: bool,
}

impl Options {
    pub(super) async fn open(&self, folder: &Path) -> Result<Queue, CommandError> {
        let mut evidence = Evidence::default();
        if self.accepted {
            evidence = evidence.accepted();
        }
        if self.pages {
            evidence = evidence.pages();
        }
        let retry = Retry {
            attempt_timeout: self.timeout.into(),
            ..Retry::default()
        };
        let mut sender = Sender::new(Https::new()).retry(retry).evidence(evidence);
        if let Some(path) = &self.status_path {
            sender = sender.status_path(path)?;
        }
        let usual = QueueOptions::default();
        let pause_max: Duration = self.pause_max.into();
        let options = QueueOptions {
            parallel: self.parallel.into(),
            key_life: self.key_life.into(),
            backoff_min: usual.backoff_min.min(pause_max),
            backoff_max: pause_max,
            ..usual
        };
        Ok(Queue::open_shared(folder, sender, options).await?)
    }
}

/// Sends what is due, once.
pub(super) async fn send(
    folder: &Path,
    options: &Options,
    json: bool,
) -> Result<ExitCode, CommandError> {
    let queue = options.open(folder).await?;
    let failed = Arc::new(AtomicU64::new(0));
    let progress = Arc::new(Progress::new("requests sent", queue.stats().await?.waiting));
    queue.observe({
        let (failed, progress) = (Arc::clone(&failed), Arc::clone(&progress));
        move |attempted| {
            if matches!(attempted.outcome, AttemptOutcome::Failed { .. }) {
                failed.fetch_add(1, Ordering::Relaxed);
            }
            progress.aside(|| give(format_args!("{}", line(attempted, json))));
            progress.add(1);
        }
    });
    let sent = queue.send_due().await;
    progress.end();
    sent?;
    let stats = queue.stats().await?;
    if !json {
        sum_up(&stats);
    }
    Ok(match (failed.load(Ordering::Relaxed), stats.waiting) {
        (0, 0) => ExitCode::SUCCESS,
        (0, _) => LATER.into(),
        _ => NO.into(),
    })
}

fn sum_up(stats: &Stats) {
    let Stats {
        waiting,
        failed,
        done,
        ..
    } = stats;
    say(format_args!(
        "{waiting} waiting, {failed} failed, {done} done in the last day"
    ));
}

/// What came of an attempt, in a line.
pub(super) fn line(attempted: &Attempted, json: bool) -> String {
    if json {
        return as_json(attempted).to_string();
    }
    let Attempted { id, operation, .. } = attempted;
    let what = format!("{id} {} {}", operation.method(), address(operation, false));
    match &attempted.outcome {
        AttemptOutcome::Done {
            status,
            is_replayed,
        } => {
            let replayed = if *is_replayed { ", replayed" } else { "" };
            format!("{what}: done ({status}{replayed})")
        }
        AttemptOutcome::Later {
            cause,
            detail,
            again_in,
        } => {
            let again = humantime::format_duration(Duration::from_secs(again_in.as_secs() + 1));
            format!("{what}: waits, {} in {again}", said(cause.name(), detail))
        }
        AttemptOutcome::Failed { cause, detail } => {
            format!("{what}: failed, {}", said(cause.name(), detail))
        }
    }
}

fn said(cause: &str, detail: &str) -> String {
    match detail {
        "" => cause.to_owned(),
        detail => format!("{cause} ({detail})"),
    }
}

fn as_json(attempted: &Attempted) -> Value {
    let mut told = json!({
        "id": attempted.id.number(),
        "method": attempted.operation.method().as_str(),
        "url": address(&attempted.operation, false),
        "attempts": attempted.attempts,
    });
    let more = match &attempted.outcome {
        AttemptOutcome::Done {
            status,
            is_replayed,
        } => json!({"outcome": "done", "status": status, "replayed": is_replayed}),
        AttemptOutcome::Later {
            cause,
            detail,
            again_in,
        } => json!({
            "outcome": "later",
            "cause": cause.name(),
            "detail": detail,
            "again_in_seconds": again_in.as_secs() + 1,
        }),
        AttemptOutcome::Failed { cause, detail } => {
            json!({"outcome": "failed", "cause": cause.name(), "detail": detail})
        }
    };
    if let (Some(told), Value::Object(more)) = (told.as_object_mut(), more) {
        told.extend(more);
    }
    told
}
