//! PgBouncer in front of a PostgreSQL server, with a server connection for each transaction.

use std::process::Command;

use super::account::Account;
use super::daemon::{Daemon, Ports, Recipe};
use super::home::Home;
use super::postgres::{psql, url};
use super::program::PGBOUNCER;
use super::{Postgres, Server, ServerError};

const USER: &str = "postgres";
const DATABASE: &str = "postgres";
const CONFIGURATION: &str = "pgbouncer.ini";
const USERS: &str = "users";
const CLIENTS_MAX: usize = 1_000;
/// Few, so that clients do share them.
const SERVER_CONNECTIONS_MAX: usize = 20;

/// A PgBouncer in transaction pooling mode.
pub struct PgBouncer {
    daemon: Daemon,
}

struct PgBouncerRecipe {
    postgres: u16,
}

impl PgBouncer {
    /// Starts one in front of this server and waits until it answers. It reaches the server by its
    /// port, and so also after the server was started again.
    pub fn start(postgres: &Postgres) -> Result<Self, ServerError> {
        let postgres = postgres.port();
        let user = Account::choose(None, USER)?;
        let daemon = Daemon::start(PgBouncerRecipe { postgres }, user)?;
        Ok(Self { daemon })
    }

    /// What `psql` answers through the pool.
    pub fn psql(&self, sql: &str) -> Result<String, ServerError> {
        psql(&self.url(), sql)
    }

    /// What the pool says about itself, such as to `SHOW POOLS`.
    pub fn admin(&self, command: &str) -> Result<String, ServerError> {
        psql(&url(self.port(), "pgbouncer"), command)
    }
}

impl Server for PgBouncer {
    fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    fn url(&self) -> String {
        url(self.port(), DATABASE)
    }
}

impl Recipe for PgBouncerRecipe {
    fn name(&self) -> &'static str {
        "pgbouncer"
    }

    fn install(&self, home: &Home) -> Result<(), ServerError> {
        home.write(USERS, &format!("\"{USER}\" \"\"\n"))
    }

    fn configure(&self, home: &Home, ports: Ports) -> Result<(), ServerError> {
        let folder = home.path().display();
        let lines = [
            "[databases]".to_owned(),
            format!("* = host=127.0.0.1 port={}", self.postgres),
            "[pgbouncer]".to_owned(),
            "listen_addr = 127.0.0.1".to_owned(),
            format!("listen_port = {}", ports.main),
            format!("unix_socket_dir = {folder}"),
            "auth_type = trust".to_owned(),
            format!("auth_file = {folder}/{USERS}"),
            format!("admin_users = {USER}"),
            "pool_mode = transaction".to_owned(),
            format!("max_client_conn = {CLIENTS_MAX}"),
            format!("default_pool_size = {SERVER_CONNECTIONS_MAX}"),
            // Many clients ask for this, and a pool cannot grant it.
            "ignore_startup_parameters = extra_float_digits".to_owned(),
        ];
        home.write(CONFIGURATION, &(lines.join("\n") + "\n"))
    }

    fn command(&self, home: &Home, _: Ports) -> Result<Command, ServerError> {
        let mut command = Command::new(PGBOUNCER.find()?);
        command.arg(home.file(CONFIGURATION));
        Ok(command)
    }

    fn check(&self, home: &Home, ports: Ports) -> Result<(), String> {
        let folder = home.path().display();
        let port = ports.main;
        let socket = format!("host='{folder}' port={port} user={USER} dbname=pgbouncer");
        match psql(&socket, "SHOW VERSION") {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}
