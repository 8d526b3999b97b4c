//! The `onlyonce` program: reads its arguments and does what they say.

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;
use onlyonce_cli::Cli;

/// A gateway makes and drops many small things on each of its threads, and keeps some for a day:
/// this one stays quick at that, and gives memory back.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    onlyonce_cli::run(Cli::parse()).await
}
