//! `cargo xtask chaos` and `cargo xtask settle`: real gateways under faults, by a package of its own
//! that is built together with the gateway and given the servers and programs it needs.

use std::process::{Command, ExitCode};

use crate::cargo::{self, exit_code};
use crate::{Failure, servers};

/// What is to withstand it: a package, and its program.
const GATEWAY: (&str, &str) = ("onlyonce-cli", "onlyonce");

/// What breaks things. Package and program are called the same.
#[derive(Clone, Copy)]
pub(crate) enum Suite {
    Chaos,
    Settle,
}

impl Suite {
    const fn name(self) -> &'static str {
        match self {
            Self::Chaos => "onlyonce-chaos",
            Self::Settle => "onlyonce-settle",
        }
    }

    /// Exits as the run does.
    pub(crate) fn run(self, is_dev: bool, args: &[String]) -> Result<ExitCode, Failure> {
        let (name, (package, program)) = (self.name(), GATEWAY);
        let built = if is_dev {
            cargo::as_tested(&[name, program], name)?
        } else {
            cargo::optimised(&[name, package], name)?
        };
        let program = built.ok_or_else(|| Failure::new(format!("{name} does not build")))?;
        servers::install_missing(Command::new(&program).arg("missing"))?;
        let mut command = Command::new(program);
        command.arg("run").args(args).current_dir(cargo::root());
        exit_code(command)
    }
}
