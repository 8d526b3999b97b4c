//! Words for the person at the terminal: data to stdout, everything else to stderr.

use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

/// A "no": not found, not conformant.
pub(crate) const NO: u8 = 1;
/// A wrong call or a failure.
pub(crate) const FAILED: u8 = 2;

/// Not yet: something is left to be done later.
pub(crate) const LATER: u8 = 3;

/// Says something. Nobody there to hear it is no failure.
pub(crate) fn say(words: fmt::Arguments<'_>) {
    drop(writeln!(std::io::stderr(), "{words}"));
}

/// Gives data.
pub(crate) fn give(data: fmt::Arguments<'_>) {
    drop(writeln!(std::io::stdout(), "{data}"));
}

/// Says what failed, with its causes; gives the exit code for it.
pub(crate) fn failed(error: &dyn std::error::Error) -> ExitCode {
    let mut words = format!("onlyonce: {error}");
    let mut cause = error.source();
    while let Some(next) = cause {
        words.push_str(&format!(": {next}"));
        cause = next.source();
    }
    say(format_args!("{words}"));
    FAILED.into()
}
