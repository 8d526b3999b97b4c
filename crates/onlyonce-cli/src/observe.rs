//! `onlyonce observe`: what enforcing would have done on routes that are only observed.

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use http::Method;
use onlyonce_gateway::{ObservedReport, ObservedView};

use crate::said::{NO, failed, give, say};
use crate::source::{ADMIN, Admin, SourceError};

/// Show what enforcing would have done on routes that are only observed.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  onlyonce observe report
  onlyonce observe report --admin http://gateway.internal:9090 --format markdown

Each gateway counts its own requests, from its start. docs/guides/adopt.md says how to go on.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print what enforcing would have done, and the setting that enforces; exit 1 if nothing is
    /// observed
    Report {
        /// The gateway's admin address
        #[arg(long, value_name = "URL", default_value = ADMIN)]
        admin: String,
        /// The admin token, if the gateway asks for one
        #[arg(
            long,
            env = "ONLYONCE_ADMIN_TOKEN",
            hide_env_values = true,
            value_name = "TOKEN"
        )]
        token: Option<String>,
        /// How to print it
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
}

/// How a report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Sentences for a terminal
    Text,
    /// What the admin API gives, for programs
    Json,
    /// A page for a ticket or a pull request
    Markdown,
}

/// Runs the command; returns the exit code.
pub async fn run(args: &Args) -> ExitCode {
    let Action::Report {
        admin,
        token,
        format,
    } = &args.action;
    let asked = Admin::new(admin, token.clone());
    let view: ObservedView = match asked.ask(Method::GET, "/api/v1/observed", None).await {
        Ok(view) => view,
        Err(SourceError::Absent) => {
            say(format_args!(
                "the gateway at {admin} is of a version that cannot observe"
            ));
            return NO.into();
        }
        Err(error) => return failed(&error),
    };
    let report = ObservedReport::of(&view);
    match format {
        Format::Text => give(format_args!("{}", report.text())),
        Format::Markdown => give(format_args!("{}", report.markdown())),
        Format::Json => give(format_args!("{}", as_json(&view))),
    }
    if view.routes.is_empty() {
        return NO.into();
    }
    ExitCode::SUCCESS
}

/// The view as JSON, for programs.
fn as_json(view: &ObservedView) -> String {
    serde_json::to_string_pretty(view).expect("what was read from JSON can be written as JSON")
}
