//! Questions to a server through its own command line program.

use std::env;
use std::ffi::OsStr;
use std::process::{Command, Stdio};

use super::ServerError;
use super::patience::PATIENCE;
use super::program::Program;

/// A command that knows nothing of our environment but where programs are: variables such as
/// `PGPORT` would lead it elsewhere.
pub(super) fn bare(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("LC_ALL", "C");
    if let Some(path) = env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

/// A program to ask; it is ended if a server keeps it waiting for too long.
pub(super) fn ask(program: Program) -> Result<Command, ServerError> {
    let mut command = bare("timeout");
    command
        .arg("--kill-after=5")
        .arg(PATIENCE.as_secs().to_string())
        .arg(program.find()?);
    Ok(command)
}

/// What the program answers, without the line break at the end.
pub(super) fn answer(name: Program, command: &mut Command) -> Result<String, ServerError> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(ServerError::io(format!("run {}", name.name)))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let said = [text(&output.stderr), text(&output.stdout)].join("\n");
    Err(ServerError::Command {
        program: name.name.to_owned(),
        said: format!("{}: {}", output.status, said.trim()),
    })
}
