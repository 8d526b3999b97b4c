//! The programs that others measure with: where they are, which Debian package has them, and what
//! they say.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use onlyonce_testkit::servers;

use crate::failure::Failure;

/// Where Debian puts servers; not in everyone's `PATH`.
const MORE_FOLDERS: [&str; 2] = ["/usr/local/sbin", "/usr/sbin"];

/// A program, and the Debian package that has it.
#[derive(Clone, Copy)]
pub(crate) struct Tool {
    name: &'static str,
    package: &'static str,
}

pub(crate) const REDIS_BENCHMARK: Tool = Tool::new("redis-benchmark", "redis-tools");
pub(crate) const PGBENCH: Tool = Tool::new("pgbench", "postgresql");
pub(crate) const NGINX: Tool = Tool::new("nginx", "nginx-light");
pub(crate) const HAPROXY: Tool = Tool::new("haproxy", "haproxy");
pub(crate) const NODE: Tool = Tool::new("node", "nodejs");
pub(crate) const NPM: Tool = Tool::new("npm", "npm");
pub(crate) const PYTHON: Tool = Tool::new("python3", "python3-venv");
pub(crate) const WRK: Tool = Tool::new("wrk", "wrk");
pub(crate) const CHROMEDRIVER: Tool = Tool::new("chromedriver", "chromium-driver");

const ALL: [Tool; 9] = [
    REDIS_BENCHMARK,
    PGBENCH,
    NGINX,
    HAPROXY,
    NODE,
    NPM,
    PYTHON,
    WRK,
    CHROMEDRIVER,
];

impl Tool {
    const fn new(name: &'static str, package: &'static str) -> Self {
        Self { name, package }
    }

    /// The program, to be given arguments.
    pub(crate) fn command(self) -> Result<Command, Failure> {
        let Self { name, package } = self;
        let path = self.find().ok_or_else(|| {
            Failure::new(format!(
                "{name} is not installed: apt-get install {package}"
            ))
        })?;
        Ok(Command::new(path))
    }

    fn find(self) -> Option<PathBuf> {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path)
            .chain(MORE_FOLDERS.map(PathBuf::from))
            .map(|folder| folder.join(self.name))
            .find(|file| file.is_file())
    }

    /// What it writes to stdout, once it has ended well.
    pub(crate) fn said(self, command: &mut Command) -> Result<String, Failure> {
        let output = command.stdin(Stdio::null()).output();
        let output = output.map_err(Failure::doing(format!("run {}", self.name)))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Failure::new(format!(
            "{} failed, {}: {}",
            self.name,
            output.status,
            said.trim()
        )))
    }

    /// It said something that is not understood here.
    pub(crate) fn odd(self, said: &str) -> Failure {
        Failure::new(format!("{} said something unexpected: {said}", self.name))
    }
}

/// The Debian packages that have to be installed before everything can be measured.
pub(crate) fn missing_packages() -> Vec<&'static str> {
    let absent = ALL.into_iter().filter(|tool| tool.find().is_none());
    let mut packages: Vec<_> = absent.map(|tool| tool.package).collect();
    packages.extend(servers::missing_packages());
    packages.sort_unstable();
    packages.dedup();
    packages
}
