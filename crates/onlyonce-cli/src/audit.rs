//! `onlyonce audit`: the audit trail of a gateway, read and purged where it lies or through the
//! gateway's admin API.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Subcommand;
use http::Method;
use onlyonce_core::{Deed, Operated};
use onlyonce_gateway::audit::{Trail, TrailError};
use onlyonce_gateway::{AuditPage, PurgedView};
use serde_json::{Value, json};
use thiserror::Error;

use crate::said::{failed, give, say};
use crate::source::{self, Admin, SourceError};

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
  onlyonce audit purge --admin http://127.0.0.1:9090 --actor user-7

FILE is `path` of [audit] in the gateway's settings. Both may run while the gateway does.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the newest entries, one JSON object per line
    Tail {
        #[command(flatten)]
        place: Place,
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
        #[command(flatten)]
        place: Place,
        /// Whose entries
        #[arg(long)]
        actor: String,
        /// Your name, for the entry that says so [default: the user who runs this]
        #[arg(long = "as", env = "ONLYONCE_OPERATOR", value_name = "NAME")]
        operator: Option<String>,
        /// Why, for the same entry; do not name the actor there again
        #[arg(long)]
        reason: Option<String>,
        /// As JSON, for programs
        #[arg(long)]
        json: bool,
    },
}

/// Which trail.
#[derive(clap::Args, Clone, Debug)]
struct Place {
    /// The trail's newest file
    #[arg(long, value_name = "FILE", required_unless_present = "admin")]
    file: Option<PathBuf>,
    /// The admin address of the gateway that writes it, instead of its file
    #[arg(long, value_name = "URL", conflicts_with = "file")]
    admin: Option<String>,
    /// The admin token, if the gateway asks for one
    #[arg(
        long,
        env = "ONLYONCE_ADMIN_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    token: Option<String>,
}

/// Why a trail could not be read or changed.
#[derive(Debug, Error)]
enum AuditError {
    #[error(transparent)]
    Trail(#[from] TrailError),
    #[error("this gateway keeps no audit trail: set `path` of [audit]")]
    NoTrail,
    #[error("{}: there is no audit trail here; give `path` of [audit] in the settings", .0.display())]
    Missing(PathBuf),
    #[error(transparent)]
    Admin(SourceError),
}

impl From<SourceError> for AuditError {
    fn from(error: SourceError) -> Self {
        if matches!(error, SourceError::Absent) {
            Self::NoTrail
        } else {
            Self::Admin(error)
        }
    }
}

/// A trail to read and to purge.
enum Kept {
    File(Trail),
    Admin(Box<Admin>),
}

impl Kept {
    fn at(place: &Place) -> Self {
        match (&place.file, &place.admin) {
            (Some(file), _) => Self::File(Trail::at(file)),
            (None, admin) => {
                let base = admin.as_deref().unwrap_or(source::ADMIN);
                Self::Admin(Box::new(Admin::new(base, place.token.clone())))
            }
        }
    }

    async fn last(&self, count: usize, actor: Option<&str>) -> Result<AuditPage, AuditError> {
        match self {
            Self::File(trail) => {
                let admit = |entry: &Value| actor.is_none_or(|it| entry["actor"]["id"] == *it);
                let (entries, unread) = trail.last(count, admit)?;
                Ok(AuditPage { entries, unread })
            }
            Self::Admin(admin) => {
                let mut query = url::form_urlencoded::Serializer::new(String::new());
                query.append_pair("limit", &count.to_string());
                if let Some(actor) = actor {
                    query.append_pair("actor", actor);
                }
                let path = format!("/api/v1/audit?{}", query.finish());
                Ok(admin.ask(Method::GET, &path, None).await?)
            }
        }
    }

    async fn purge(
        &self,
        actor: &str,
        by: Option<Arc<str>>,
        reason: Option<&str>,
    ) -> Result<PurgedView, AuditError> {
        match self {
            Self::File(trail) => {
                let purged = trail.purge(actor)?;
                trail.note_at_large(Operated {
                    deed: Deed::Purged {
                        entries: purged.removed,
                    },
                    by,
                    reason: reason.map(Into::into),
                    via: "cli",
                })?;
                Ok(PurgedView {
                    removed: purged.removed,
                    kept: purged.kept,
                })
            }
            Self::Admin(admin) => {
                let body = json!({"actor": actor, "by": by.as_deref(), "reason": reason});
                let path = "/api/v1/audit/purge";
                Ok(admin.ask(Method::POST, path, Some(body)).await?)
            }
        }
    }
}

/// Runs the command; returns the exit code.
pub async fn run(args: &Args) -> ExitCode {
    match act(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

async fn act(args: &Args) -> Result<(), AuditError> {
    match &args.action {
        Action::Tail {
            place,
            count,
            actor,
            follow,
        } => {
            let kept = Kept::at(place);
            if let Kept::File(trail) = &kept
                && !trail.exists()
            {
                let missing = AuditError::Missing(place.file.clone().unwrap_or_default());
                if !follow {
                    return Err(missing);
                }
                say(format_args!("{missing}; waiting for it"));
            }
            let AuditPage { entries, unread } = kept.last(*count, actor.as_deref()).await?;
            print(&entries);
            if unread > 0 {
                say(format_args!(
                    "{unread} lines could not be read: torn by a crash"
                ));
            }
            if *follow {
                go_on(&kept, entries, actor.as_deref()).await?;
            }
        }
        Action::Purge {
            place,
            actor,
            operator,
            reason,
            json,
        } => {
            let by = source::operator(operator.as_deref());
            let kept = Kept::at(place);
            let PurgedView { removed, kept } = kept.purge(actor, by, reason.as_deref()).await?;
            if *json {
                give(format_args!(
                    "{}",
                    json!({"removed": removed, "kept": kept})
                ));
            } else {
                say(format_args!("{removed} entries removed, {kept} stay"));
            }
        }
    }
    Ok(())
}

/// Prints what is written from now on.
async fn go_on(kept: &Kept, mut seen: Vec<Value>, actor: Option<&str>) -> Result<(), AuditError> {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let newest = kept.last(BETWEEN_LOOKS, actor).await?.entries;
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
