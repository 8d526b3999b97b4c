//! A MariaDB server of one's own.

use std::process::Command;

use super::account::Account;
use super::command::{answer, ask};
use super::daemon::{Daemon, Ports, Recipe};
use super::home::Home;
use super::program::{MARIADB, MARIADB_INSTALL, MARIADBD};
use super::{Server, ServerError};

const ACCOUNT: &str = "mysql";
const USER: &str = "onlyonce";
const DATABASE: &str = "onlyonce";
const DATA: &str = "data";
const SOCKET: &str = "mariadb.sock";
const CONNECTIONS_MAX: usize = 200;

/// How a MariaDB server is to run. By default what was committed survives a crash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MariaDbOptions {
    /// Answer before data is on disk. It still survives the death of the server's process.
    pub fast: bool,
    /// Further options of `mariadbd`, such as `--innodb-lock-wait-timeout=1`.
    pub arguments: Vec<String>,
}

/// A MariaDB server with a database and a user without a password.
pub struct MariaDb {
    daemon: Daemon,
}

struct MariaDbRecipe {
    options: MariaDbOptions,
}

impl MariaDb {
    /// Starts a server with fresh data and waits until it answers.
    pub fn start(options: MariaDbOptions) -> Result<Self, ServerError> {
        let user = Account::choose(None, ACCOUNT)?;
        let daemon = Daemon::start(MariaDbRecipe { options }, user)?;
        sql(
            daemon.home(),
            &format!(
                "CREATE DATABASE {DATABASE};
                 CREATE USER {USER}@'127.0.0.1';
                 GRANT ALL ON *.* TO {USER}@'127.0.0.1' WITH GRANT OPTION"
            ),
        )?;
        Ok(Self { daemon })
    }

    /// What `mariadb` answers as an administrator: a line for each row, tabs between columns.
    pub fn sql(&self, statements: &str) -> Result<String, ServerError> {
        sql(self.daemon.home(), &format!("USE {DATABASE}; {statements}"))
    }

    /// Makes a database and returns its address.
    pub fn create_database(&self, name: &str) -> Result<String, ServerError> {
        self.sql(&format!("CREATE DATABASE `{name}`"))?;
        Ok(url(self.port(), name))
    }
}

impl Server for MariaDb {
    fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    fn url(&self) -> String {
        url(self.port(), DATABASE)
    }
}

impl Recipe for MariaDbRecipe {
    fn name(&self) -> &'static str {
        "mariadb"
    }

    fn install(&self, home: &Home) -> Result<(), ServerError> {
        let mut install = Command::new(MARIADB_INSTALL.find()?);
        install
            .arg("--no-defaults")
            .arg(format!("--datadir={}", home.file(DATA).display()))
            .args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
        home.run(MARIADB_INSTALL.name, &install)
    }

    fn configure(&self, _: &Home, _: Ports) -> Result<(), ServerError> {
        // All that it needs to know is in its command.
        Ok(())
    }

    fn command(&self, home: &Home, ports: Ports) -> Result<Command, ServerError> {
        let mut command = Command::new(MARIADBD.find()?);
        command
            .arg("--no-defaults")
            .arg(format!("--datadir={}", home.file(DATA).display()))
            .arg(format!("--tmpdir={}", home.path().display()))
            .arg(format!("--socket={}", home.file(SOCKET).display()))
            .arg(format!("--pid-file={}", home.file("pid").display()))
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--port={}", ports.main))
            .arg(format!("--max-connections={CONNECTIONS_MAX}"))
            .args(["--skip-name-resolve", "--character-set-server=utf8mb4"]);
        if self.options.fast {
            command.args([
                "--innodb-flush-log-at-trx-commit=2",
                "--innodb-doublewrite=0",
                "--innodb-flush-method=nosync",
            ]);
        }
        command.args(&self.options.arguments);
        Ok(command)
    }

    fn check(&self, home: &Home, _: Ports) -> Result<(), String> {
        match sql(home, "SELECT 1") {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Asks through the socket in the server's folder, where no other server can answer.
fn sql(home: &Home, statements: &str) -> Result<String, ServerError> {
    let mut command = ask(MARIADB)?;
    command
        .args(["--no-defaults", "--user=root", "--batch", "--raw"])
        .arg("--skip-column-names")
        .arg(format!("--socket={}", home.file(SOCKET).display()))
        .arg(format!("--execute={statements}"));
    answer(MARIADB, &mut command)
}

fn url(port: u16, database: &str) -> String {
    format!("mysql://{USER}@127.0.0.1:{port}/{database}")
}
