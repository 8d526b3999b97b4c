//! `onlyonce keys resolve`: outcomes in doubt, one by its key or slot, or many by route, age or holder.

use std::io::{BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};

use http::{HeaderValue, StatusCode};
use onlyonce_core::Slot;
use onlyonce_core::operate::{AttemptId, AttemptIdError, InDoubt};
use onlyonce_gateway::SettledView;

use crate::said::{give, legible, say};
use crate::source::{ByHand, Operator, SettleAll, SourceError};

use super::{find, print_list, short};

/// Which outcomes, and what was found out.
#[derive(clap::Args, Debug)]
pub(super) struct Resolve {
    /// One record: its key, its slot, or 7 or more hex digits that its slot starts with; - reads it from
    /// stdin. Without it, every outcome in doubt that the other flags mean
    record: Option<String>,
    /// It happened, and this is the status of the answer
    #[arg(long, required_unless_present = "did_not_happen")]
    status: Option<u16>,
    /// The body of the answer
    #[arg(long, default_value = "", requires = "status")]
    body: String,
    /// The type of the body, like application/json
    #[arg(long, value_name = "TYPE", requires = "status")]
    content_type: Option<HeaderValue>,
    /// How long the answer is kept; at least as long as the record would have been
    #[arg(long, default_value = "24h", requires = "status")]
    keep: humantime::Duration,
    /// It did not happen: the next request with the key runs it
    #[arg(long, conflicts_with = "status", requires = "reason")]
    did_not_happen: bool,
    /// Only of this route or job
    #[arg(long, conflicts_with = "record")]
    operation: Option<String>,
    /// Only by this actor
    #[arg(long, conflicts_with = "record")]
    actor: Option<String>,
    /// Only of this instance
    #[arg(long, conflicts_with = "record")]
    holder: Option<String>,
    /// Only first claimed at least this long ago, like 5m
    #[arg(long, value_name = "AGE", conflicts_with = "record")]
    older_than: Option<humantime::Duration>,
    /// Only first claimed at most this long ago, like 1h
    #[arg(long, value_name = "AGE", conflicts_with = "record")]
    younger_than: Option<humantime::Duration>,
    /// Every outcome in doubt
    #[arg(long, conflicts_with = "record")]
    all: bool,
    /// Only what a dry run listed, and no later attempt: the output of --dry-run --json; - reads stdin
    #[arg(long, value_name = "FILE", conflicts_with = "record")]
    listed: Option<PathBuf>,
    /// Change nothing, and show what would be settled
    #[arg(long)]
    dry_run: bool,
    /// Do not ask before many outcomes are settled; without a terminal nothing is asked
    #[arg(long, short)]
    yes: bool,
    /// Why, for the audit trail; needed unless one record is given an answer
    #[arg(long)]
    reason: Option<String>,
}

impl Resolve {
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    fn meant(&self) -> InDoubt {
        InDoubt {
            operation: self.operation.clone(),
            actor: self.actor.clone(),
            holder: self.holder.clone(),
            age_min: self.older_than.map(Into::into),
            age_max: self.younger_than.map(Into::into),
            behind: None,
        }
    }

    /// Whether some flag says which outcomes are meant.
    fn is_some(&self) -> bool {
        let ages = self.older_than.is_some() || self.younger_than.is_some();
        let names = [&self.operation, &self.actor, &self.holder];
        self.all || self.listed.is_some() || ages || names.into_iter().any(Option::is_some)
    }
}

pub(super) async fn run(
    operator: &Operator,
    asked: &Resolve,
    json: bool,
) -> Result<(), SourceError> {
    let wrong = |why: &str| Err(SourceError::Wrong(why.to_owned()));
    let status = asked.status.map(StatusCode::from_u16).transpose();
    let Ok(status) = status else {
        return wrong("--status is not an HTTP status");
    };
    let slot = match &asked.record {
        Some(record) => Some(find(&operator.source, record).await?),
        None if !asked.is_some() => {
            return wrong(
                "say which outcomes: a key or slot, --operation, --actor, --holder, --older-than, \
                 --younger-than, or --all",
            );
        }
        None if asked.reason.is_none() => {
            return wrong("many outcomes are settled only with --reason");
        }
        None => None,
    };
    let answer = status.map(|status| ByHand {
        status,
        content_type: asked.content_type.clone(),
        body: asked.body.clone(),
        keep_for: asked.keep.into(),
    });
    if let (Some(slot), Some(answer), false) = (&slot, &answer, asked.dry_run) {
        return resolve_one(operator, slot, answer).await;
    }
    if asked.reason.is_none() {
        return wrong("--dry-run of one record needs --reason too");
    }
    let listed = asked.listed.as_deref().map(read_listed).transpose()?;
    let mut all = SettleAll {
        meant: asked.meant(),
        slot,
        attempts: listed,
        answer,
        dry_run: true,
    };
    let seen = operator.settle(&all).await?;
    if asked.dry_run {
        tell_preview(&seen, json);
        return Ok(());
    }
    if !json {
        print_list(&seen.records, false);
    }
    if !asked.yes && seen.matched > 0 && !is_confirmed(seen.matched)? {
        say(format_args!("nothing was settled"));
        return Ok(());
    }
    // What was listed, and no other: a retry may have run meanwhile.
    let ids = seen.records.iter().map(|it| it.attempt_id.parse());
    let ids: Result<Vec<AttemptId>, _> = ids.collect();
    let ids = ids.map_err(|error| SourceError::Wrong(error.to_string()))?;
    let count = ids.len();
    (all.attempts, all.slot, all.dry_run) = (Some(ids), None, false);
    let mut settled = operator.settle(&all).await?;
    settled.skipped += seen.skipped;
    settled.more = seen.more;
    tell_settled(&settled, count, json)
}

/// Gives one record its answer, and says which attempt that was.
async fn resolve_one(operator: &Operator, slot: &Slot, answer: &ByHand) -> Result<(), SourceError> {
    let record = operator.source.get(slot).await?;
    let wrong = |error: AttemptIdError| SourceError::Wrong(error.to_string());
    let attempt = record.attempt_id.parse().map_err(wrong)?;
    operator.resolve(&attempt, answer).await?;
    let (operation, status) = (legible(&record.operation), answer.status);
    say(format_args!(
        "resolved {operation}, claimed at {}, attempt {}: every retry gets {status} from now on",
        record.created_at, record.attempt
    ));
    Ok(())
}

/// What an earlier dry run listed.
fn read_listed(file: &Path) -> Result<Vec<AttemptId>, SourceError> {
    let wrong = |why: String| SourceError::Wrong(format!("--listed {}: {why}", file.display()));
    let text = if file.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(file)
    };
    let text = text.map_err(|error| wrong(error.to_string()))?;
    let listed: SettledView = serde_json::from_str(&text)
        .map_err(|error| wrong(format!("this is not what --dry-run --json prints: {error}")))?;
    let ids = listed.records.iter().map(|it| it.attempt_id.parse());
    ids.collect::<Result<_, AttemptIdError>>()
        .map_err(|error| wrong(error.to_string()))
}

/// Asks, where somebody is there to answer.
fn is_confirmed(count: usize) -> Result<bool, SourceError> {
    let (mut stdin, stderr) = (std::io::stdin().lock(), std::io::stderr());
    if !stdin.is_terminal() || !stderr.is_terminal() {
        return Ok(true);
    }
    say(format_args!("settle these {count} outcomes? [y/N]"));
    let mut line = String::new();
    let read = stdin.read_line(&mut line);
    read.map_err(|error| SourceError::Wrong(format!("stdin cannot be read: {error}")))?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

fn tell_preview(seen: &SettledView, json: bool) {
    if json {
        give(format_args!("{}", serde_json::json!(seen)));
        return;
    }
    print_list(&seen.records, false);
    say(format_args!(
        "{} outcomes would be settled; run it without --dry-run to do it",
        seen.matched
    ));
    tell_rest(seen);
}

fn tell_settled(settled: &SettledView, count: usize, json: bool) -> Result<(), SourceError> {
    if json {
        give(format_args!("{}", serde_json::json!(settled)));
    } else {
        say(format_args!(
            "{} of {count} outcomes settled",
            settled.settled
        ));
        for it in &settled.failed {
            let why = legible(&it.why);
            say(format_args!("{}: {why}", short(&it.slot)));
        }
        tell_rest(settled);
    }
    match settled.failed.len() {
        0 => Ok(()),
        failed => Err(SourceError::Refused(format!(
            "{failed} outcomes were not settled, or not as a whole"
        ))),
    }
}

fn tell_rest(settled: &SettledView) {
    if settled.skipped > 0 {
        let skipped = settled.skipped;
        say(format_args!("{skipped} more were not in doubt any more"));
    }
    if settled.more {
        say(format_args!("there are more: run it again"));
    }
}
