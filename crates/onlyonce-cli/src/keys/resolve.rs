//! `onlyonce keys resolve`: outcomes in doubt, one by its key or slot, or many by route, age or holder.

use http::{HeaderValue, StatusCode};
use onlyonce_core::operate::InDoubt;

use crate::said::{give, say};
use crate::source::{ByHand, Operator, SettleAll, SourceError};

use super::{find, print_list};

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
    /// Change nothing, and show what would be settled
    #[arg(long)]
    dry_run: bool,
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
        }
    }

    /// Whether some flag says which outcomes are meant.
    fn is_some(&self) -> bool {
        let ages = self.older_than.is_some() || self.younger_than.is_some();
        let names = [&self.operation, &self.actor, &self.holder];
        self.all || ages || names.into_iter().any(Option::is_some)
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
        operator.resolve(slot, answer).await?;
        let status = answer.status;
        say(format_args!(
            "resolved: every retry gets {status} from now on"
        ));
        return Ok(());
    }
    if asked.reason.is_none() {
        return wrong("--dry-run of one record needs --reason too");
    }
    let all = SettleAll {
        meant: asked.meant(),
        slot,
        answer,
        dry_run: asked.dry_run,
    };
    let settled = operator.settle(&all).await?;
    if json {
        give(format_args!("{}", serde_json::json!(settled)));
        return Ok(());
    }
    if settled.dry_run {
        print_list(&settled.records, false);
        say(format_args!(
            "{} outcomes would be settled; run it without --dry-run to do it",
            settled.matched
        ));
    } else {
        say(format_args!(
            "{} of {} outcomes settled",
            settled.settled, settled.matched
        ));
    }
    if settled.more {
        say(format_args!("there are more: run it again"));
    }
    Ok(())
}
