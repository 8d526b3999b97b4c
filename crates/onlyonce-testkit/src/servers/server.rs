//! What can be done to every server.

use std::path::Path;

use super::{Daemon, ServerError};

/// A server of any kind.
///
/// All of these return when what they ask for has happened.
pub trait Server {
    /// Its process.
    fn daemon(&self) -> &Daemon;

    /// Where clients find it.
    fn url(&self) -> String;

    /// The port it listens on, of 127.0.0.1. It stays the same.
    fn port(&self) -> u16 {
        self.daemon().ports().main
    }

    /// The id of its process, if it runs.
    fn pid(&self) -> Option<u32> {
        self.daemon().hold().pid()
    }

    /// The folder with all that it keeps.
    fn folder(&self) -> &Path {
        self.daemon().home().path()
    }

    /// All that it wrote to stdout and stderr.
    fn log(&self) -> String {
        self.daemon().home().log(0)
    }

    /// Ends it at once and without warning, with all its processes, as a crash would.
    fn kill(&self) -> Result<(), ServerError> {
        self.daemon().hold().kill()
    }

    /// Asks it to end in order, without waiting for its clients.
    fn terminate(&self) -> Result<(), ServerError> {
        self.daemon().hold().terminate()
    }

    /// Starts it on the same port with what it kept. Does nothing if it runs.
    fn start_again(&self) -> Result<(), ServerError> {
        self.daemon().hold().start_again()
    }

    /// Ends it in order and starts it again.
    fn restart(&self) -> Result<(), ServerError> {
        self.terminate()?;
        self.start_again()
    }

    /// Lets it hang: connections stay open, nothing is answered.
    fn pause(&self) -> Result<(), ServerError> {
        self.daemon().hold().pause()
    }

    /// Lets it go on where it was paused.
    fn resume(&self) -> Result<(), ServerError> {
        self.daemon().hold().resume()
    }
}
