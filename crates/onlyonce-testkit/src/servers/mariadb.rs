//! A MariaDB server of one's own.

use std::process::Command;

use super::account::Account;
use super::command::{answer, ask};
use super::daemon::{Daemon, Ports, Recipe};
use super::home::Home;
use super::program::{MARIADB, MARIADB_INSTALL, MARIADBD};
use super::{Server, ServerError};

pub(super) const ACCOUNT: &str = "mysql";
const USER: &str = "onlyonce";
pub(super) const DATABASE: &str = "onlyonce";
pub(super) const DATA: &str = "data";
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
        grant(daemon.home())?;
        Ok(Self { daemon })
    }

    /// What `mariadb` answers as an administrator: a line for each row, tabs between columns.
    pub fn sql(&self, statements: &str) -> Result<String, ServerError> {
        sql(self.daemon.home(), &format!("USE {DATABASE}; {statements}"))
    }

    /// Makes a database and returns its address.
    pub fn create_database(&self, name: &str) -> Result<String, ServerError> {
        self.sql(&format!("CREATE DATABASE `{name}`"))?;
        Ok(url(&format!("127.0.0.1:{}", self.port()), name))
    }
}

impl Server for MariaDb {
    fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    fn url(&self) -> String {
        url(&format!("127.0.0.1:{}", self.port()), DATABASE)
    }
}

impl Recipe for MariaDbRecipe {
    fn name(&self) -> &'static str {
        "mariadb"
    }

    fn install(&self, home: &Home) -> Result<(), ServerError> {
        install(home)
    }

    fn configure(&self, _: &Home, _: Ports) -> Result<(), ServerError> {
        // All that it needs to know is in its command.
        Ok(())
    }

    fn command(&self, home: &Home, ports: Ports) -> Result<Command, ServerError> {
        serve(home, ports, &self.options)
    }

    fn check(&self, home: &Home, _: Ports) -> Result<(), String> {
        match sql(home, "SELECT 1") {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Makes fresh data.
pub(super) fn install(home: &Home) -> Result<(), ServerError> {
    let mut install = Command::new(MARIADB_INSTALL.find()?);
    install
        .arg("--no-defaults")
        .arg(format!("--datadir={}", home.file(DATA).display()))
        .args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
    home.run(MARIADB_INSTALL.name, &install)
}

/// The command that runs a server on what is in its folder.
pub(super) fn serve(
    home: &Home,
    ports: Ports,
    options: &MariaDbOptions,
) -> Result<Command, ServerError> {
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
    if options.fast {
        command.args([
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-doublewrite=0",
            "--innodb-flush-method=nosync",
        ]);
    }
    command.args(&options.arguments);
    Ok(command)
}

/// Makes the database and the user of the tests.
pub(super) fn grant(home: &Home) -> Result<(), ServerError> {
    let made = format!(
        "CREATE DATABASE {DATABASE};
         CREATE USER {USER}@'127.0.0.1';
         GRANT ALL ON *.* TO {USER}@'127.0.0.1' WITH GRANT OPTION"
    );
    sql(home, &made).map(drop)
}

/// Asks through the socket in the server's folder, where no other server can answer.
pub(super) fn sql(home: &Home, statements: &str) -> Result<String, ServerError> {
    let mut command = ask(MARIADB)?;
    command
        .args(["--no-defaults", "--user=root", "--batch", "--raw"])
        .arg("--skip-column-names")
        .arg(format!("--socket={}", home.file(SOCKET).display()))
        .arg(format!("--execute={statements}"));
    answer(MARIADB, &mut command)
}

/// The address of a database at one host, or at several with commas between.
pub(super) fn url(hosts: &str, database: &str) -> String {
    format!("mysql://{USER}@{hosts}/{database}")
}
