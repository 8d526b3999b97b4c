//! `onlyonce gateway`: serves until a signal stops it. SIGHUP reads the settings again, SIGTERM
//! and SIGINT drain. `onlyonce gateway reload` has a service's settings read again, and learns whether
//! they are in force.

use std::path::PathBuf;
use std::process::ExitCode;

use onlyonce_gateway::config::ConfigError;
use onlyonce_gateway::{Gateway, Settings};
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::notice::Notices;
use self::reload::Reloads;
use crate::said::failed;

mod notice;
mod reload;
mod supervisor;

/// The settings that can be given on the command line; all others are in the file.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  onlyonce gateway --upstream http://127.0.0.1:3000
  onlyonce gateway --config onlyonce.toml --listen 0.0.0.0:80
  ONLYONCE_STORE=redis://127.0.0.1 onlyonce gateway --upstream http://127.0.0.1:3000

A flag goes before a variable (ONLYONCE_LISTEN), a variable before the file.
kill -HUP reads the file again; kill -TERM lets running requests end.")]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// The file with the settings [env: ONLYONCE_CONFIG]
    #[arg(long, env = "ONLYONCE_CONFIG", hide_env = true)]
    config: Option<PathBuf>,
    /// Where requests go: http://127.0.0.1:3000
    #[arg(long)]
    upstream: Option<String>,
    /// Where to listen [default: 127.0.0.1:8080]
    #[arg(long)]
    listen: Option<String>,
    /// Where operators reach it [default: 127.0.0.1:9090]
    #[arg(long)]
    admin: Option<String>,
    /// The store's URL [default: file:./onlyonce-data]
    #[arg(long)]
    store: Option<String>,
    /// The profile: see `onlyonce profiles` [default: standard]
    #[arg(long)]
    profile: Option<String>,
    /// enforce, or observe: let everything pass, and count what enforcing would do [default: enforce]
    #[arg(long)]
    mode: Option<String>,
    /// How long an answer is kept, like 24h
    #[arg(long)]
    ttl: Option<String>,
}

/// What to do with a gateway that runs.
#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Have a gateway that is a service read its settings again; fails if it does not take them
    Reload(reload::Args),
}

impl Args {
    fn load(&self) -> Result<Settings, ConfigError> {
        let flags: Vec<(&'static str, String)> = [
            ("upstream", &self.upstream),
            ("listen", &self.listen),
            ("admin", &self.admin),
            ("store", &self.store),
            ("profile", &self.profile),
            ("mode", &self.mode),
            ("ttl", &self.ttl),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.clone()?)))
        .collect();
        Settings::load(self.config.as_deref(), std::env::vars(), &flags)
    }
}

/// Serves; returns the exit code.
pub async fn run(args: &Args) -> ExitCode {
    if let Some(Action::Reload(asked)) = &args.action {
        return reload::run(asked).await;
    }
    let settings = match args.load() {
        Ok(settings) => settings,
        Err(error) => return failed(&error),
    };
    // Before anyone knows that it runs: without a handler, a signal would end it.
    let signals = match Signals::handled() {
        Ok(signals) => signals,
        Err(error) => return failed(&error),
    };
    onlyonce_gateway::log::start(&settings);
    let reloads = match Reloads::listen() {
        Ok(reloads) => reloads,
        Err(error) => return failed(&error),
    };
    let gateway = match Gateway::start(&settings).await {
        Ok(gateway) => gateway,
        Err(error) => return failed(&error),
    };
    let mut notices = Notices::new(&settings);
    notices.started(&settings, args.config.as_deref(), &gateway);
    supervisor::ready();
    signals.stopped(args, &gateway, &mut notices, reloads).await;
    supervisor::stopping();
    notices.say("stopping: running requests may end");
    match gateway.drain().await {
        0 => ExitCode::SUCCESS,
        left => {
            notices.say(&format!("{left} requests had not ended in time"));
            ExitCode::FAILURE
        }
    }
}

/// What an operator may send.
struct Signals {
    reload: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn handled() -> std::io::Result<Self> {
        Ok(Self {
            reload: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Reloads when asked to; returns when it is time to stop.
    async fn stopped(
        mut self,
        args: &Args,
        gateway: &Gateway,
        notices: &mut Notices,
        reloads: Reloads,
    ) {
        loop {
            let asked = tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.reload.recv() => None,
                asked = reloads.asked() => Some(asked),
            };
            supervisor::reloading();
            let reloaded = args.load().and_then(|settings| {
                gateway.reload(&settings)?;
                Ok(settings)
            });
            match &reloaded {
                Ok(settings) => notices.reloaded(settings),
                Err(error) => notices.complain(&format!("the old settings stay: {error}")),
            }
            supervisor::ready();
            if let Some(asked) = asked {
                asked.answer(reloaded.as_ref().map(|_| ())).await;
            }
        }
    }
}
