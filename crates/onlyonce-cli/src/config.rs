//! `onlyonce config`: is a file right, and what may be in it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use onlyonce_gateway::config::{self, Config};

use crate::said::{NO, give, say};

/// What to do with settings.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Check a file, and the keys and certificates it names; report every mistake, by line
    Check {
        /// The file
        file: PathBuf,
    },
    /// Print the reference of all settings, as Markdown
    Docs,
}

/// Runs the command; returns the exit code.
pub fn run(action: &Action) -> ExitCode {
    match action {
        Action::Docs => {
            give(format_args!("{}", config::markdown().trim_end()));
            ExitCode::SUCCESS
        }
        Action::Check { file } => match config::check(Some(file), [], &[]) {
            Ok(config) => {
                say(format_args!("{}: {}", file.display(), summary(&config)));
                ExitCode::SUCCESS
            }
            Err(error) => {
                say(format_args!("{error}"));
                NO.into()
            }
        },
    }
}

fn summary(config: &Config) -> String {
    match config.route.len() {
        0 => "good; no routes, one rule for all".to_owned(),
        1 => "good; 1 route".to_owned(),
        more => format!("good; {more} routes"),
    }
}
