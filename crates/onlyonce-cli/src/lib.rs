//! The `onlyonce` command line. Each subcommand is a module with its own arguments; data goes to
//! stdout, the rest to stderr; exit 0 is yes, 1 is no, 2 is a wrong call or a failure.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub mod audit;
pub mod config;
pub mod demo;
pub mod gateway;
pub mod init;
pub mod keys;
pub mod mcp;
pub mod observe;
pub mod profiles;
mod progress;
pub mod queue;
mod quorum;
mod said;
pub mod shell;
pub mod source;
mod stdin;
pub mod store;
mod table;
pub mod verify;

/// Run each keyed operation once, and give every retry the same answer.
#[derive(Parser)]
#[command(name = "onlyonce", version, about, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What `onlyonce` can do.
#[derive(Subcommand)]
pub enum Command {
    /// Try it: services, a gateway and a database on this machine, with curl lines to run
    Demo(demo::Args),
    /// Write a first file with settings for a service, commented and checked
    Init(init::Args),
    /// Put a gateway in front of a service: its keyed requests run once
    Gateway(gateway::Args),
    /// Make the tools of any MCP server run once
    Mcp(mcp::Args),
    /// Keep requests on disk until a service has answered them: for scripts and any program
    Queue(Box<queue::Args>),
    /// Show records and change them
    Keys(keys::Args),
    /// Show what enforcing would have done where requests are only observed
    Observe(observe::Args),
    /// Check and maintain a store
    Store(store::Args),
    /// Read the audit trail, or remove an actor from it
    Audit(audit::Args),
    /// Check a file with settings, or print the reference of all settings
    #[command(subcommand)]
    Config(config::Action),
    /// Show the rules of each profile, or print one whole
    Profiles(profiles::Args),
    /// Check from outside whether an HTTP endpoint keeps a profile's promises
    Verify(Box<verify::Args>),
    /// Print the completion script of a shell
    Completions(shell::Completions),
    /// Write the manual pages
    Man(shell::Man),
}

/// Runs the command; returns the exit code.
pub async fn run(cli: Cli) -> ExitCode {
    match cli.command {
        Command::Demo(args) => demo::run(&args).await,
        Command::Init(args) => init::run(&args).await,
        Command::Gateway(args) => gateway::run(&args).await,
        Command::Mcp(args) => mcp::run(&args).await,
        Command::Queue(args) => queue::run(&args).await,
        Command::Keys(args) => keys::run(&args).await,
        Command::Observe(args) => observe::run(&args).await,
        Command::Store(args) => store::run(&args).await,
        Command::Audit(args) => audit::run(&args).await,
        Command::Config(action) => config::run(&action),
        Command::Profiles(args) => profiles::run(&args),
        Command::Verify(args) => verify::run(&args).await,
        Command::Completions(args) => shell::completions(&args),
        Command::Man(args) => shell::man(&args),
    }
}
