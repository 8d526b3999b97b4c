//! Why a server could not be started, asked or stopped, and what to do about it.

use std::io;

/// What went wrong with a server, and what can be done about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// A program is not on this machine.
    #[error(
        "{program} is not installed; on Debian: `apt-get install --no-install-recommends {package}`"
    )]
    Missing {
        /// What was looked for.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// A server was to run as a user who does not exist, or as root.
    #[error("{name} is no user of this machine other than root; name another one")]
    User {
        /// Who was asked for.
        name: String,
    },
    /// A server ended or stayed silent instead of becoming ready.
    #[error("{server} did not start: {why}\n{hint}\nthe end of its log:\n{log}")]
    Start {
        /// Which server.
        server: &'static str,
        /// What was seen of it.
        why: String,
        /// What to look at first.
        hint: &'static str,
        /// The last lines that it wrote.
        log: String,
    },
    /// A server does not run, so that it cannot be paused or resumed.
    #[error("{server} does not run; `start_again` starts it")]
    NotRunning {
        /// Which server.
        server: &'static str,
    },
    /// A command line program said no.
    #[error("{program} failed: {said}")]
    Command {
        /// Which program.
        program: String,
        /// What it wrote.
        said: String,
    },
    /// What was waited for did not happen in time.
    #[error("waited in vain until {what}; last seen: {seen}")]
    Patience {
        /// What should have become true.
        what: String,
        /// What was true instead.
        seen: String,
    },
    /// The operating system said no.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

impl ServerError {
    /// For `map_err`: names what was tried.
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
