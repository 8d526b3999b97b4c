//! `cargo xtask chaos`: real gateways under random faults, by the package onlyonce-chaos, which is
//! built together with the gateway and given the servers it breaks.

use std::process::{Command, ExitCode};

use crate::cargo::{self, exit_code};
use crate::{Failure, servers};

/// What breaks things, and what is to withstand it.
const PACKAGES: [&str; 2] = ["onlyonce-chaos", "onlyonce-cli"];
const PROGRAMS: [&str; 2] = ["onlyonce-chaos", "onlyonce"];

/// Exits as the run does.
pub(crate) fn run(is_dev: bool, args: &[String]) -> Result<ExitCode, Failure> {
    let [program, _] = PROGRAMS;
    let built = if is_dev {
        cargo::as_tested(&PROGRAMS, program)?
    } else {
        cargo::optimised(&PACKAGES, program)?
    };
    let program = built.ok_or_else(|| Failure::new("the chaos suite does not build"))?;
    servers::install_missing(Command::new(&program).arg("missing"))?;
    let mut command = Command::new(program);
    command.arg("run").args(args).current_dir(cargo::root());
    exit_code(command)
}
