//! A Redis server of one's own.

use std::process::Command;
use std::{fs, io};

use super::account::Account;
use super::command::{answer, ask};
use super::daemon::{Daemon, Ports, Recipe};
use super::home::Home;
use super::program::{REDIS_CLI, REDIS_SENTINEL, REDIS_SERVER, VALKEY_SERVER};
use super::{Server, ServerError, faketime};
use crate::history::clear_faketime;

const USER: &str = "redis";
const CONFIGURATION: &str = "redis.conf";
const SOCKET: &str = "redis.sock";
/// What its clock shows, for libfaketime.
const CLOCK: &str = "clock";
/// Where a durable server has its data.
const DATA: &str = "appendonlydir";

/// How a Redis server is to run. By default nothing outlives its process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisOptions {
    /// Keep all data in an append-only file, synced before every answer.
    pub durable: bool,
    /// Such as `2mb`.
    pub maxmemory: Option<String>,
    /// Such as `allkeys-lru`.
    pub maxmemory_policy: Option<String>,
    /// What clients have to present. Letters and digits only, as it is a part of the address.
    pub password: Option<String>,
    /// Run Valkey instead, which behaves as Redis does since 7.2.
    pub valkey: bool,
    /// The user to run as if we are root.
    pub user: Option<String>,
    /// Its wall clock can be set wrong by [`set_clock`](Redis::set_clock).
    pub has_own_clock: bool,
    /// Further lines of the configuration.
    pub lines: Vec<String>,
}

/// A standalone Redis server, or a member of a cluster or of a group under Sentinel.
pub struct Redis {
    daemon: Daemon,
    password: Option<String>,
}

/// What a process of Redis does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Standalone,
    ClusterNode,
    Sentinel,
}

struct RedisRecipe {
    role: Role,
    options: RedisOptions,
}

impl Redis {
    /// Starts a standalone server and waits until it answers.
    pub fn start(options: RedisOptions) -> Result<Self, ServerError> {
        Self::start_as(Role::Standalone, options)
    }

    pub(super) fn start_as(role: Role, options: RedisOptions) -> Result<Self, ServerError> {
        let user = Account::choose(options.user.as_deref(), USER)?;
        let password = options.password.clone();
        let daemon = Daemon::start(RedisRecipe { role, options }, user)?;
        Ok(Self { daemon, password })
    }

    /// What `redis-cli` answers to a command. An error reply is an `Err`.
    pub fn cli(&self, command: &[&str]) -> Result<String, ServerError> {
        cli(self.daemon.home(), self.password.as_deref(), command)
    }

    /// The value of a field of `INFO`, such as `role`.
    pub fn info(&self, field: &str) -> Result<String, ServerError> {
        let all = self.cli(&["INFO", "everything"])?;
        field_of(&all, field).ok_or_else(|| ServerError::Command {
            program: REDIS_CLI.name.to_owned(),
            said: format!("INFO has no field {field}"),
        })
    }

    /// Kills it and starts it again without what it kept, as after the loss of its disk.
    pub fn lose_disk(&self) -> Result<(), ServerError> {
        self.kill()?;
        match fs::remove_dir_all(self.folder().join(DATA)) {
            Ok(()) => {}
            // One that is not durable keeps nothing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(ServerError::io("empty the folder of a server")(error)),
        }
        self.start_again()
    }

    /// Sets its clock wrong by this many seconds, within a second. It must have one of its own.
    pub fn set_clock(&self, seconds: i64) -> Result<(), ServerError> {
        self.daemon.home().write(CLOCK, &off_by(seconds))
    }

    pub(super) fn bus_port(&self) -> u16 {
        self.daemon.ports().bus
    }
}

impl Server for Redis {
    fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    fn url(&self) -> String {
        let port = self.port();
        match &self.password {
            Some(password) => format!("redis://:{password}@127.0.0.1:{port}"),
            None => format!("redis://127.0.0.1:{port}"),
        }
    }
}

impl Recipe for RedisRecipe {
    fn name(&self) -> &'static str {
        match self.role {
            Role::Standalone | Role::ClusterNode => "redis",
            Role::Sentinel => "redis-sentinel",
        }
    }

    fn install(&self, _: &Home) -> Result<(), ServerError> {
        REDIS_CLI.find().map(drop)
    }

    fn configure(&self, home: &Home, ports: Ports) -> Result<(), ServerError> {
        let mut lines = vec![
            "bind 127.0.0.1".to_owned(),
            format!("port {}", ports.main),
            format!("unixsocket \"{}\"", home.file(SOCKET).display()),
            format!("dir \"{}\"", home.path().display()),
        ];
        match self.role {
            Role::Standalone => lines.extend(self.storage()),
            Role::ClusterNode => {
                lines.extend(self.storage());
                lines.push("cluster-enabled yes".to_owned());
                // By default it is the port + 10000, which may belong to someone else.
                lines.push(format!("cluster-port {}", ports.bus));
            }
            Role::Sentinel => {}
        }
        lines.extend(self.options.lines.iter().cloned());
        if self.options.has_own_clock {
            home.write(CLOCK, &off_by(0))?;
        }
        home.write(CONFIGURATION, &(lines.join("\n") + "\n"))
    }

    fn command(&self, home: &Home, _: Ports) -> Result<Command, ServerError> {
        let program = match self.role {
            Role::Standalone | Role::ClusterNode if self.options.valkey => VALKEY_SERVER,
            Role::Standalone | Role::ClusterNode => REDIS_SERVER,
            Role::Sentinel => REDIS_SENTINEL,
        };
        let program = program.find()?;
        let mut command = match self.options.has_own_clock {
            true => faketime::of_a_server(program, &home.file(CLOCK))?,
            false => Command::new(program),
        };
        command.arg(home.file(CONFIGURATION));
        Ok(command)
    }

    fn check(&self, home: &Home, _: Ports) -> Result<(), String> {
        match cli(home, self.options.password.as_deref(), &["PING"]) {
            Ok(pong) if pong == "PONG" => Ok(()),
            Ok(other) => Err(other),
            Err(error) => Err(error.to_string()),
        }
    }

    fn clear_up(&self, process: u32) {
        if self.options.has_own_clock {
            clear_faketime(process);
        }
    }
}

/// As libfaketime reads it.
fn off_by(seconds: i64) -> String {
    format!("{seconds:+}\n")
}

impl RedisRecipe {
    /// The lines of a server that has data.
    fn storage(&self) -> Vec<String> {
        let options = &self.options;
        let mut lines = vec![
            "save \"\"".to_owned(),
            // Replicas need not wait for others to join them.
            "repl-diskless-sync-delay 0".to_owned(),
            "enable-debug-command local".to_owned(),
        ];
        if options.durable {
            lines.push("appendonly yes".to_owned());
            lines.push("appendfsync always".to_owned());
        }
        let mut set = |name: &str, value: &Option<String>| {
            lines.extend(value.iter().map(|value| format!("{name} {value}")));
        };
        set("maxmemory", &options.maxmemory);
        set("maxmemory-policy", &options.maxmemory_policy);
        set("requirepass", &options.password);
        lines
    }
}

/// The value of a `field:value` line.
pub(super) fn field_of(text: &str, field: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name == field).then(|| value.trim().to_owned())
    })
}

/// Asks through the socket in the server's folder, where no other server can answer.
fn cli(home: &Home, password: Option<&str>, words: &[&str]) -> Result<String, ServerError> {
    let mut command = ask(REDIS_CLI)?;
    command.arg("-s").arg(home.file(SOCKET)).arg("-e");
    if let Some(password) = password {
        command.env("REDISCLI_AUTH", password);
    }
    answer(REDIS_CLI, command.args(words))
}
