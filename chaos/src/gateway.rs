//! A gateway as its own process: started, killed, stopped, continued, started again.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use onlyonce_testkit::history::clear_faketime;
use onlyonce_testkit::servers::faketime;
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpStream;
use tokio::process::Child;
use tokio::time::{sleep, timeout};

use crate::failure::Failure;

/// How long it may take to listen. Far more than it does.
const START_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const LOG_BYTES_SHOWN: usize = 1500;

/// The program, and whether it is told apart from others by its first argument.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) command: &'static str,
}

/// How a gateway is to run.
pub(crate) struct Settings {
    pub(crate) program: Program,
    /// A folder for its settings, its log and its clock.
    pub(crate) folder: PathBuf,
    pub(crate) index: usize,
    pub(crate) listen: SocketAddr,
    /// The network it lives in, if that is its own.
    pub(crate) net: Option<String>,
    pub(crate) has_own_clock: bool,
}

/// A gateway. It ends with this value.
pub(crate) struct Gateway {
    settings: Settings,
    child: Option<Child>,
}

impl Gateway {
    /// Starts it with the settings in TOML, and waits until it listens.
    pub(crate) async fn start(settings: Settings, toml: &str) -> Result<Self, Failure> {
        let gateway = Self {
            settings,
            child: None,
        };
        let cannot = || Failure::doing("write the settings of a gateway");
        fs::write(gateway.file("toml"), toml).map_err(cannot())?;
        gateway.set_clock(0)?;
        let mut gateway = gateway;
        gateway.start_again().await?;
        Ok(gateway)
    }

    /// Starts it again after its end.
    pub(crate) async fn start_again(&mut self) -> Result<(), Failure> {
        let mut command = tokio::process::Command::from(self.command()?);
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.file("log"));
        let log = log.map_err(Failure::doing("open the log of a gateway"))?;
        command
            .current_dir(&self.settings.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true);
        let child = command.spawn().map_err(Failure::doing("start a gateway"))?;
        self.child = Some(child);

        let listens = async {
            loop {
                if let Some(how) = self.ended() {
                    return Err(self.failure(&format!("it {how}")));
                }
                if TcpStream::connect(self.settings.listen).await.is_ok() {
                    return Ok(());
                }
                sleep(LOOK_EVERY).await;
            }
        };
        match timeout(START_MAX, listens).await {
            Ok(started) => started,
            Err(_) => Err(self.failure("it does not listen")),
        }
    }

    /// In its network, under its clock, and in a way that it ends with us, whatever ends us.
    fn command(&self) -> Result<Command, Failure> {
        let Settings { program, net, .. } = &self.settings;
        let mut command = if self.settings.has_own_clock {
            faketime::adjustable("setpriv", &self.file("clock"))?
        } else {
            Command::new("setpriv")
        };
        command.args(["--pdeathsig", "KILL", "--"]);
        if let Some(net) = net {
            command.args(["ip", "netns", "exec", net]);
        }
        command.arg(&program.path).arg(program.command);
        command.arg("--config").arg(self.file("toml"));
        Ok(command)
    }

    /// Kills it and waits for its end.
    pub(crate) async fn kill(&mut self) -> Result<(), Failure> {
        self.signal(Signal::KILL)?;
        if let Some(mut child) = self.child.take() {
            let id = child.id();
            child
                .wait()
                .await
                .map_err(Failure::doing("wait for a gateway"))?;
            id.into_iter().for_each(clear_faketime);
        }
        Ok(())
    }

    pub(crate) fn stop(&self) -> Result<(), Failure> {
        self.signal(Signal::STOP)
    }

    pub(crate) fn go_on(&self) -> Result<(), Failure> {
        self.signal(Signal::CONT)
    }

    /// Sets its clock wrong by this many seconds.
    pub(crate) fn set_clock(&self, seconds: i64) -> Result<(), Failure> {
        fs::write(self.file("clock"), format!("{seconds:+}\n"))
            .map_err(Failure::doing("set the clock of a gateway"))
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        Some(format!("ended by itself: {status}"))
    }

    pub(crate) fn failure(&self, what: &str) -> Failure {
        let log = fs::read_to_string(self.file("log")).unwrap_or_default();
        let from = log.len().saturating_sub(LOG_BYTES_SHOWN);
        let from = log.ceil_char_boundary(from);
        let index = self.settings.index;
        Failure::new(format!(
            "gateway {index}: {what}; its log ends:\n{}",
            &log[from..]
        ))
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let id = self.child.as_ref().and_then(Child::id);
        let pid = id.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        // It was not waited for: the id is still its own.
        let pid = pid.ok_or_else(|| self.failure("it does not run"))?;
        kill_process(pid, signal).map_err(Failure::doing("send a signal to a gateway"))
    }

    fn file(&self, kind: &str) -> PathBuf {
        let name = format!("gateway-{}.{kind}", self.settings.index);
        Path::new(&self.settings.folder).join(name)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(id) = self.child.as_ref().and_then(Child::id) {
            // Its end follows at once; what is left of its clock is ours to remove.
            let _ = self.signal(Signal::KILL);
            clear_faketime(id);
        }
    }
}
