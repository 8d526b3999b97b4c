//! `onlyonce demo`: the documents' services behind a gateway, all on this machine, with curl lines
//! to try and what each of them answers. Everything is kept in one folder: a restart goes on.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use onlyonce_core::{Entropy as _, OsEntropy, Profile};
use onlyonce_demo::{Demo, Options, StartError};
use onlyonce_gateway::{Gateway, Settings, config};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::said::{failed, give, say};
use crate::stdin;

mod lines;

const GRACE: Duration = Duration::from_secs(30);

/// Where the demo is.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  onlyonce demo
  onlyonce demo --listen 127.0.0.1:3000 --data /tmp/demo
  onlyonce demo --mcp                       for an agent: its intakes as tools
  onlyonce demo --database postgres://localhost/demo --profile formbridge-008

Ctrl-C lets running requests end. With the same --data, a later start replays what this one stored.")]
pub struct Args {
    /// Where to listen
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// A name by which clients reach it, besides localhost; any other is refused, as a web page may
    /// have been pointed here
    #[arg(long)]
    host: Vec<String>,
    /// Where operators reach it
    #[arg(long, default_value = "127.0.0.1:9090")]
    admin: SocketAddr,
    /// The folder that everything is kept in
    #[arg(long, default_value = "./onlyonce-demo-data")]
    data: PathBuf,
    /// The database instead of a SQLite file in the folder: sqlite:PATH or postgres://…
    #[arg(long)]
    database: Option<String>,
    /// A JSON file with intakes instead of vendor-onboarding and access-request
    #[arg(long)]
    intakes: Option<PathBuf>,
    /// A JSON file with forms instead of test-form and event-registration
    #[arg(long)]
    forms: Option<PathBuf>,
    /// The least that is logged, as JSON on stderr; info is a line for each keyed request
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = ["debug", "info", "warn", "error"])]
    log: String,
    /// Offer the intakes as MCP tools on stdin and stdout too, until stdin ends; they are at /mcp
    /// in any case
    #[arg(long)]
    mcp: bool,
    /// How long the audit events of /demo/audit are kept
    #[arg(long, value_name = "TIME", default_value = "90d")]
    audit_keep: humantime::Duration,
    /// The profile of the intakes: formbridge or formbridge-008
    #[arg(long, default_value = "formbridge")]
    profile: String,
}

/// Why the demo did not start.
#[derive(Debug, Error)]
enum DemoError {
    #[error("{}: cannot be used: {source}; choose another folder with --data", path.display())]
    Data {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("no address is free on this machine")]
    Listen(#[source] std::io::Error),
    #[error(transparent)]
    Services(#[from] StartError),
    #[error(transparent)]
    Settings(#[from] config::ConfigError),
    #[error(transparent)]
    Gateway(#[from] onlyonce_gateway::StartError),
    #[error("the tools cannot be offered on stdin and stdout")]
    Tools(#[source] std::io::Error),
    #[error("signals cannot be waited for")]
    Signals(#[source] std::io::Error),
}

/// Serves until a signal stops it; returns the exit code.
pub async fn run(args: &Args) -> ExitCode {
    match serve(args).await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(left) => {
            say(format_args!("{left} requests had not ended in time"));
            ExitCode::FAILURE
        }
        Err(error) => failed(&error),
    }
}

async fn serve(args: &Args) -> Result<usize, DemoError> {
    let unusable = |source| DemoError::Data {
        path: args.data.clone(),
        source,
    };
    std::fs::create_dir_all(&args.data).map_err(unusable)?;
    let own = format!("sqlite:{}", args.data.join("demo.db").display());
    let database = args.database.clone().unwrap_or(own);

    let inside = TcpListener::bind("127.0.0.1:0").await;
    let inside = inside.map_err(DemoError::Listen)?;
    let services = inside.local_addr().map_err(DemoError::Listen)?;
    let file = args.data.join("gateway.toml");
    std::fs::write(&file, in_front_of(services, &args.log)).map_err(unusable)?;
    let settings = settings_of(args, &file)?;
    onlyonce_gateway::log::start(&settings);

    let options = Options {
        intakes: args.intakes.clone(),
        forms: args.forms.clone(),
        intake_profile: args.profile.clone(),
        mail: Some("/demo/inbox".to_owned()),
        front: Some(args.listen),
        audit_keep: args.audit_keep.into(),
        hosts: args.host.clone(),
        audit: Some(args.data.join("audit.jsonl")),
        traces: onlyonce_gateway::traces::from_env()?,
        ..Options::new(database)
    };
    let demo = Demo::start(&options, inside).await?;
    // On the engine of the services: operators see all of it in one place.
    let gateway = Gateway::start_on(&settings, demo.observed().clone()).await?;

    let (listen, admin) = (gateway.address(), gateway.admin_address());
    say(format_args!(
        "onlyonce demo on http://{listen}, operators on http://{admin}, everything in {}",
        args.data.display()
    ));
    let policy = args
        .profile
        .parse()
        .map(|profile: Profile| profile.policy());
    let lines = lines::of(&lines::About {
        listen,
        admin,
        intakes: policy.as_ref().ok().filter(|_| args.intakes.is_none()),
        has_test_form: args.forms.is_none(),
        fresh: &fresh(),
    });
    let stopped = if args.mcp {
        tokio::select! {
            stopped = stopped() => stopped.map_err(DemoError::Signals),
            served = demo.tools().clone().serve_on(stdin::reader(), tokio::io::stdout()) => {
                served.map_err(DemoError::Tools)
            }
        }
    } else {
        give(format_args!("{lines}"));
        stopped().await.map_err(DemoError::Signals)
    };
    say(format_args!("stopping: running requests may end"));
    let left = gateway.drain().await + demo.stop(GRACE).await;
    stopped.map(|()| left)
}

/// The gateway's settings. The services look after their own keys; the one that does not is left
/// to the gateway.
fn in_front_of(services: SocketAddr, log: &str) -> String {
    format!(
        "# Written by `onlyonce demo` at every start.\n\
         upstream = \"http://{services}\"\n\
         profile = \"standard\"\n\
         \n\
         [log]\n\
         level = \"{log}\"\n\
         sample_debug = 1\n\
         \n\
         # These services run each keyed request once by themselves.\n\
         [[route]]\n\
         match = \"* /api/{{*rest}}\"\n\
         pass = true\n\
         \n\
         [[route]]\n\
         match = \"* /forms/{{*rest}}\"\n\
         pass = true\n\
         \n\
         [[route]]\n\
         match = \"* /demo/{{*rest}}\"\n\
         pass = true\n\
         \n\
         # All else, /legacy/charges, knows nothing of keys.\n"
    )
}

/// The gateway's settings as they are read from their file and the flags.
fn settings_of(args: &Args, file: &Path) -> Result<Settings, config::ConfigError> {
    let flags = [
        ("listen", args.listen.to_string()),
        ("admin", args.admin.to_string()),
    ];
    Settings::load(Some(file), [], &flags)
}

/// What makes this start's keys its own.
fn fresh() -> String {
    let mut bytes = [0; 4];
    OsEntropy::new().fill(&mut bytes);
    format!("{:08x}", u32::from_le_bytes(bytes))
}

async fn stopped() -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}
