//! Programs of the system that need root: `ip`, `mount`, `umount`.

use std::process::{Command, Stdio};

use crate::failure::Failure;

/// Runs a program to its end and gives what it wrote; `purpose` says what cannot be done otherwise.
pub(crate) fn run(words: &[&str], purpose: &str) -> Result<String, Failure> {
    let [program, args @ ..] = words else {
        return Err(Failure::new("no program to run"));
    };
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(Failure::doing(format!("run {program} ({purpose})")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!(
        "cannot {purpose}: `{}` said: {}\n\
         this needs root and its capabilities; leave such faults out with --only",
        words.join(" "),
        said.trim()
    )))
}

/// Whether a process of this id, as written in a name of ours, still runs.
pub(crate) fn runs(process: &str) -> bool {
    std::path::Path::new("/proc").join(process).exists()
}
