//! Which programs are needed, where they are and which Debian package has them.

#[cfg(test)]
mod tests;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{ServerError, faketime};

/// Where Debian puts servers, their plugins, and libraries for Java; not in everyone's `PATH`.
const MORE_FOLDERS: [&str; 5] = [
    "/usr/local/sbin",
    "/usr/sbin",
    "/sbin",
    "/usr/share/java",
    "/usr/lib/galera",
];
/// Has one folder for each installed major version.
const POSTGRES_FOLDER: &str = "/usr/lib/postgresql";

/// A program, and the Debian package that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) name: &'static str,
    package: &'static str,
}

pub(super) const REDIS_SERVER: Program = Program::new("redis-server", "redis-server");
pub(super) const REDIS_CLI: Program = Program::new("redis-cli", "redis-server");
pub(super) const REDIS_SENTINEL: Program = Program::new("redis-sentinel", "redis-sentinel");
/// Redis as it went on after 7.2, where WAIT means something else than before.
pub(super) const VALKEY_SERVER: Program = Program::new("valkey-server", "valkey-server");
pub(super) const INITDB: Program = Program::new("initdb", "postgresql");
pub(super) const POSTGRES: Program = Program::new("postgres", "postgresql");
pub(super) const PG_BASEBACKUP: Program = Program::new("pg_basebackup", "postgresql");
pub(super) const PSQL: Program = Program::new("psql", "postgresql");
pub(super) const MARIADB_INSTALL: Program = Program::new("mariadb-install-db", "mariadb-server");
pub(super) const MARIADBD: Program = Program::new("mariadbd", "mariadb-server");
pub(super) const MARIADB: Program = Program::new("mariadb", "mariadb-server");
/// Makes a cluster of MariaDB servers; a library that they load.
pub(super) const GALERA: Program = Program::new("libgalera_smm.so", "galera-4");
/// Copies the data of one of them to another.
pub(super) const RSYNC: Program = Program::new("rsync", "rsync");
pub(super) const PGBOUNCER: Program = Program::new("pgbouncer", "pgbouncer");
// What tests of the gateway put behind it and in front of it.
const NGINX: Program = Program::new("nginx", "nginx");
const PYTHON: Program = Program::new("python3", "python3");
const CURL: Program = Program::new("curl", "curl");
const NGHTTP: Program = Program::new("nghttp", "nghttp2-client");
const H2LOAD: Program = Program::new("h2load", "nghttp2-client");
const WRK: Program = Program::new("wrk", "wrk");
/// Checks alert rules; no server.
const PROMTOOL: Program = Program::new("promtool", "prometheus");
// What clicks on the demo's form.
const CHROMIUM: Program = Program::new("chromium", "chromium");
const CHROMEDRIVER: Program = Program::new("chromedriver", "chromium-driver");

/// For the third-party servers that tests of `onlyonce mcp` install.
const NODE: Program = Program::new("node", "nodejs");
const NPM: Program = Program::new("npm", "npm");

// For a service in Java that stores answers in its own transactions.
const JAVAC: Program = Program::new("javac", "default-jdk-headless");
const JDBC: Program = Program::new("postgresql.jar", "libpostgresql-jdbc-java");

// Puts a gateway into a network of its own.
const IP: Program = Program::new("ip", "iproute2");
// Kills a process at one of its system calls.
const STRACE: Program = Program::new("strace", "strace");
/// Judges the unit of the Debian package.
const SYSTEMD_ANALYZE: Program = Program::new("systemd-analyze", "systemd");

const ALL: [Program; 30] = [
    REDIS_SERVER,
    REDIS_CLI,
    REDIS_SENTINEL,
    VALKEY_SERVER,
    INITDB,
    POSTGRES,
    PG_BASEBACKUP,
    PSQL,
    MARIADB_INSTALL,
    MARIADBD,
    MARIADB,
    GALERA,
    RSYNC,
    PGBOUNCER,
    NGINX,
    PYTHON,
    CURL,
    NGHTTP,
    H2LOAD,
    WRK,
    PROMTOOL,
    CHROMIUM,
    CHROMEDRIVER,
    NODE,
    NPM,
    JAVAC,
    JDBC,
    IP,
    STRACE,
    SYSTEMD_ANALYZE,
];

impl Program {
    const fn new(name: &'static str, package: &'static str) -> Self {
        Self { name, package }
    }

    pub(super) fn find(self) -> Result<PathBuf, ServerError> {
        let path = env::var_os("PATH").unwrap_or_default();
        let known = MORE_FOLDERS.map(PathBuf::from);
        // The newest PostgreSQL first: the wrappers in the PATH choose by rules of their own.
        postgres_folders()
            .into_iter()
            .chain(env::split_paths(&path))
            .chain(known)
            .map(|folder| folder.join(self.name))
            .find(|file| file.is_file())
            .ok_or(ServerError::Missing {
                program: self.name,
                package: self.package,
            })
    }
}

/// The Debian packages that have to be installed before all servers can be started.
pub fn missing_packages() -> Vec<&'static str> {
    let absent = ALL.into_iter().filter(|program| program.find().is_err());
    let mut packages: Vec<_> = absent.map(|program| program.package).collect();
    if faketime::library().is_err() {
        packages.push(faketime::PACKAGE);
    }
    if !makes_environments() {
        packages.push("python3-venv");
    }
    packages.dedup();
    packages
}

/// Whether Python can make virtual environments, which Debian has in a package without a program.
fn makes_environments() -> bool {
    let tried = Command::new("python3")
        .args(["-c", "import ensurepip, venv"])
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success())
}

/// The folders of the installed versions of PostgreSQL, the newest first.
fn postgres_folders() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(POSTGRES_FOLDER) else {
        return Vec::new();
    };
    let mut versions: Vec<u32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    versions.sort_unstable();
    let folder = |version: u32| Path::new(POSTGRES_FOLDER).join(version.to_string());
    let folders = versions.into_iter().rev().map(folder);
    folders.map(|folder| folder.join("bin")).collect()
}
