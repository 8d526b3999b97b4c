//! A PostgreSQL server of one's own.

use std::process::Command;

use rustix::process::Signal;

use super::account::Account;
use super::command::{answer, ask};
use super::daemon::{Daemon, Ports, Recipe};
use super::home::Home;
use super::program::{INITDB, PG_BASEBACKUP, POSTGRES, PSQL};
use super::{Server, ServerError};

const USER: &str = "postgres";
const DATABASE: &str = "postgres";
const DATA: &str = "data";
const CONNECTIONS_MAX: usize = 200;

/// How a PostgreSQL server is to run. By default what was committed survives a crash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PostgresOptions {
    /// Answer before data is on disk. It still survives the death of the server's processes.
    pub fast: bool,
    /// Further lines of the configuration.
    pub lines: Vec<String>,
}

/// A PostgreSQL server that lets everyone on this machine in.
pub struct Postgres {
    daemon: Daemon,
}

struct PostgresRecipe {
    options: PostgresOptions,
    /// The address of the server that this one follows, if it follows one.
    primary: Option<String>,
}

impl Postgres {
    /// Starts a server with fresh data and waits until it answers.
    pub fn start(options: PostgresOptions) -> Result<Self, ServerError> {
        Self::start_as(PostgresRecipe {
            options,
            primary: None,
        })
    }

    /// Starts a standby that follows this server, and waits until it answers questions that only
    /// read. It is the synchronous one once [`synchronous`](Self::synchronous) says so.
    pub fn standby(&self) -> Result<Self, ServerError> {
        self.standby_behind(&self.url())
    }

    /// The same, where the standby finds this server at another address: that of a proxy in between.
    pub fn standby_behind(&self, url: &str) -> Result<Self, ServerError> {
        Self::start_as(PostgresRecipe {
            options: PostgresOptions::default(),
            primary: Some(url.to_owned()),
        })
    }

    fn start_as(recipe: PostgresRecipe) -> Result<Self, ServerError> {
        let user = Account::choose(None, USER)?;
        let daemon = Daemon::start(recipe, user)?;
        Ok(Self { daemon })
    }

    /// From now on every commit waits until a standby has it on disk.
    pub fn synchronous(&self) -> Result<(), ServerError> {
        // Not waited for itself, and not in one transaction with anything else.
        self.psql("ALTER SYSTEM SET synchronous_standby_names = '*'")?;
        self.psql("SELECT pg_reload_conf()")?;
        Ok(())
    }

    /// Makes a standby a primary of its own, and waits until it is.
    pub fn promote(&self) -> Result<(), ServerError> {
        self.psql("SELECT pg_promote()").map(drop)
    }

    /// What `psql` answers: a line for each row, `|` between columns.
    pub fn psql(&self, sql: &str) -> Result<String, ServerError> {
        psql(&self.url(), sql)
    }

    /// Makes a database and returns its address.
    pub fn create_database(&self, name: &str) -> Result<String, ServerError> {
        self.psql(&format!("CREATE DATABASE \"{name}\""))?;
        Ok(url(self.port(), name))
    }
}

impl Server for Postgres {
    fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    fn url(&self) -> String {
        url(self.port(), DATABASE)
    }
}

impl Recipe for PostgresRecipe {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn install(&self, home: &Home) -> Result<(), ServerError> {
        if let Some(primary) = &self.primary {
            let mut copy = Command::new(PG_BASEBACKUP.find()?);
            copy.arg("-D").arg(home.file(DATA)).args(["-d", primary]);
            copy.args(["-R", "-X", "stream", "--checkpoint=fast", "--no-sync"]);
            return home.run(PG_BASEBACKUP.name, &copy);
        }
        let mut initdb = Command::new(INITDB.find()?);
        initdb.arg("-D").arg(home.file(DATA));
        initdb.args(["-U", USER, "--auth=trust", "--encoding=UTF8", "--locale=C"]);
        // An empty database needs not survive the machine.
        initdb.arg("--no-sync");
        home.run(INITDB.name, &initdb)
    }

    fn configure(&self, home: &Home, ports: Ports) -> Result<(), ServerError> {
        let mut lines = vec![
            "listen_addresses = '127.0.0.1'".to_owned(),
            format!("port = {}", ports.main),
            format!("unix_socket_directories = '{}'", home.path().display()),
            format!("max_connections = {CONNECTIONS_MAX}"),
            // In our folder, so that nothing is left elsewhere.
            "dynamic_shared_memory_type = mmap".to_owned(),
        ];
        if self.options.fast {
            let fast = ["fsync", "synchronous_commit", "full_page_writes"];
            lines.extend(fast.map(|name| format!("{name} = off")));
        }
        lines.extend(self.options.lines.iter().cloned());
        home.write(
            &format!("{DATA}/postgresql.conf"),
            &(lines.join("\n") + "\n"),
        )
    }

    fn command(&self, home: &Home, _: Ports) -> Result<Command, ServerError> {
        let mut command = Command::new(POSTGRES.find()?);
        command.arg("-D").arg(home.file(DATA));
        Ok(command)
    }

    fn check(&self, home: &Home, ports: Ports) -> Result<(), String> {
        // Through the socket in its folder, where no other server can answer.
        let folder = home.path().display();
        let port = ports.main;
        let socket = format!("host='{folder}' port={port} user={USER} dbname={DATABASE}");
        match psql(&socket, "SELECT 1") {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn stop_signal(&self) -> Signal {
        // "Fast": clients are disconnected; the usual one waits for them.
        Signal::INT
    }

    fn end_signal(&self) -> Signal {
        // "Immediate", as a crash, but for the shared memory that a crash leaves behind.
        Signal::QUIT
    }
}

/// Asks a PostgreSQL server, or what stands in front of one.
pub(super) fn psql(target: &str, sql: &str) -> Result<String, ServerError> {
    let mut command = ask(PSQL)?;
    command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]);
    answer(PSQL, command.args(["-d", target, "-c", sql]))
}

pub(super) fn url(port: u16, database: &str) -> String {
    format!("postgres://{USER}@127.0.0.1:{port}/{database}")
}
