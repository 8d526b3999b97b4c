//! The `onlyonce` program: reads its arguments and does what they say.

use std::process::ExitCode;

use clap::Parser;
use onlyonce_cli::Cli;

#[tokio::main]
async fn main() -> ExitCode {
    onlyonce_cli::run(Cli::parse()).await
}
