//! `onlyonce config`: is a file right, and what may be in it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use onlyonce_gateway::{Settings, config};

use crate::said::{NO, give, say};

/// What to do with settings.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Check a file, and the keys and certificates it names; report every mistake, by line
    Check {
        /// The file
        file: PathBuf,
        /// With the ONLYONCE_… variables over it, as `onlyonce gateway` reads them
        #[arg(long)]
        env: bool,
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
        Action::Check { file, env } => check(file, *env),
    }
}

fn check(file: &Path, with_variables: bool) -> ExitCode {
    let variables = std::env::vars().filter(|_| with_variables);
    match Settings::load(Some(file), variables, &[]) {
        Ok(settings) => {
            say(format_args!("{}: {}", file.display(), summary(&settings)));
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(format_args!("{error}"));
            NO.into()
        }
    }
}

fn summary(settings: &Settings) -> String {
    let routes = match settings.config().route.len() {
        0 => "good; no routes, one rule for all".to_owned(),
        1 => "good; 1 route".to_owned(),
        more => format!("good; {more} routes"),
    };
    let observed = settings.observed();
    match observed.len() {
        0 => routes,
        _ => format!("{routes}; only observed: {}", observed.join(", ")),
    }
}
