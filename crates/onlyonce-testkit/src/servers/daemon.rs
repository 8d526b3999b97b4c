//! The process behind a server: how it starts, ends, hangs and starts again.

#[cfg(test)]
mod tests;

use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Signal;

use super::account::Account;
use super::home::Home;
use super::patience::Deadline;
use super::{ServerError, free_port, tree};

/// In every server's log when it could not bind its port.
const PORT_TAKEN: &str = "Address already in use";
const PORTS_TRIED_MAX: usize = 10;

/// The process of a server. It ends with this value.
pub struct Daemon {
    process: Mutex<Option<Child>>,
    recipe: Box<dyn Recipe>,
    ports: Ports,
    home: Home,
}

/// The ports of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) main: u16,
    /// The cluster bus, where there is one.
    pub(super) bus: u16,
}

/// How to run one kind of server.
pub(super) trait Recipe: Send + Sync {
    /// Its name in errors and in the name of its folder.
    fn name(&self) -> &'static str;

    /// Prepares what does not depend on a port; called once.
    fn install(&self, home: &Home) -> Result<(), ServerError>;

    /// Writes the configuration; called again if a port was taken.
    fn configure(&self, home: &Home, ports: Ports) -> Result<(), ServerError>;

    /// The command that runs it in the foreground.
    fn command(&self, home: &Home, ports: Ports) -> Result<Command, ServerError>;

    /// `Ok` once it serves. To be asked in a way that no other server can answer.
    fn check(&self, home: &Home, ports: Ports) -> Result<(), String>;

    /// Ends it in order, without waiting for its clients.
    fn stop_signal(&self) -> Signal {
        Signal::TERM
    }

    /// Ends it at once when nobody will need its data again.
    fn end_signal(&self) -> Signal {
        Signal::KILL
    }

    /// Removes what a process of it may leave outside of its folder.
    fn clear_up(&self, _process: u32) {}
}

/// Why a start failed.
enum Stalled {
    PortTaken(ServerError),
    Other(ServerError),
}

impl Daemon {
    pub(super) fn start(recipe: impl Recipe + 'static, user: Account) -> Result<Self, ServerError> {
        let home = Home::new(recipe.name(), user)?;
        recipe.install(&home)?;
        let mut daemon = Self {
            process: Mutex::new(None),
            recipe: Box::new(recipe),
            ports: Ports::choose()?,
            home,
        };

        let mut tried = 1;
        loop {
            daemon.recipe.configure(&daemon.home, daemon.ports)?;
            match daemon.hold().launch() {
                Ok(()) => break,
                Err(Stalled::PortTaken(_)) if tried < PORTS_TRIED_MAX => tried += 1,
                Err(Stalled::PortTaken(error) | Stalled::Other(error)) => return Err(error),
            }
            daemon.ports = Ports::choose()?;
        }
        Ok(daemon)
    }

    pub(super) fn home(&self) -> &Home {
        &self.home
    }

    pub(super) fn ports(&self) -> Ports {
        self.ports
    }

    pub(super) fn hold(&self) -> Held<'_> {
        let process = self.process.lock();
        Held {
            daemon: self,
            process: process.unwrap_or_else(PoisonError::into_inner),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Nobody is there to be told if it fails.
        let _ = self.hold().end();
    }
}

/// A daemon while only we may touch its process: its id would otherwise be another's as soon as
/// someone else has waited for its end.
pub(super) struct Held<'a> {
    daemon: &'a Daemon,
    process: MutexGuard<'a, Option<Child>>,
}

impl Held<'_> {
    pub(super) fn start_again(&mut self) -> Result<(), ServerError> {
        if self.pid().is_some() {
            return Ok(());
        }
        // Someone who looks for a free port may hold ours for a moment.
        let deadline = Deadline::new();
        loop {
            match self.launch() {
                Ok(()) => return Ok(()),
                Err(Stalled::PortTaken(_)) if deadline.wait() => {}
                Err(Stalled::PortTaken(error) | Stalled::Other(error)) => return Err(error),
            }
        }
    }

    /// Starts the process and waits until it serves. If it does not, nothing is left running.
    fn launch(&mut self) -> Result<(), Stalled> {
        let Daemon { home, recipe, .. } = self.daemon;
        let from = home.log_length();
        let command = recipe.command(home, self.daemon.ports)?;
        *self.process = Some(home.spawn(&command, recipe.end_signal())?);

        let deadline = Deadline::new();
        let why = loop {
            let ended = self.reap()?;
            let checked = recipe.check(home, self.daemon.ports);
            // Asked last: PgBouncer goes on without its port, and would pass the check.
            if home.log(from).contains(PORT_TAKEN) {
                self.kill()?;
                let why = format!("port {} was taken", self.daemon.ports.main);
                return Err(Stalled::PortTaken(home.failure(recipe.name(), why, from)));
            }
            match (ended, checked) {
                (Some(status), _) => break format!("it ended: {status}"),
                (None, Ok(())) => return Ok(()),
                (None, Err(_)) if deadline.wait() => {}
                (None, Err(seen)) => break format!("not ready yet: {seen}"),
            }
        };
        self.kill()?;
        Err(Stalled::Other(home.failure(recipe.name(), why, from)))
    }

    pub(super) fn kill(&mut self) -> Result<(), ServerError> {
        let Some(pid) = self.pid() else {
            return Ok(());
        };
        let killed = tree::kill(pid)?;
        self.wait(&Deadline::new())?;
        tree::wait_until_gone(&killed)
    }

    pub(super) fn terminate(&mut self) -> Result<(), ServerError> {
        let signal = self.daemon.recipe.stop_signal();
        self.ask_to_end(signal, &Deadline::new())
    }

    /// Ends it for good.
    fn end(&mut self) -> Result<(), ServerError> {
        match self.daemon.recipe.end_signal() {
            Signal::KILL => self.kill(),
            signal => {
                let asked = self.ask_to_end(signal, &Deadline::brief());
                asked.or_else(|_| self.kill())
            }
        }
    }

    fn ask_to_end(&mut self, signal: Signal, deadline: &Deadline) -> Result<(), ServerError> {
        let Some(pid) = self.pid() else {
            return Ok(());
        };
        tree::signal(pid, signal)?;
        // A paused one would not hear it.
        tree::resume(pid)?;
        self.wait(deadline)
    }

    pub(super) fn pause(&mut self) -> Result<(), ServerError> {
        tree::stop(self.running()?).map(drop)
    }

    pub(super) fn resume(&mut self) -> Result<(), ServerError> {
        tree::resume(self.running()?)
    }

    /// Waits for the end of the process.
    fn wait(&mut self, deadline: &Deadline) -> Result<(), ServerError> {
        while self.process.is_some() {
            if self.reap()?.is_none() && !deadline.wait() {
                return Err(ServerError::Patience {
                    what: format!("{} has ended", self.daemon.recipe.name()),
                    seen: "it still runs".to_owned(),
                });
            }
        }
        Ok(())
    }

    /// How the process ended, if it just did.
    fn reap(&mut self) -> Result<Option<ExitStatus>, ServerError> {
        let Some(child) = self.process.as_mut() else {
            return Ok(None);
        };
        let cannot = ServerError::io(format!("look after {}", self.daemon.recipe.name()));
        let pid = child.id();
        let status = child.try_wait().map_err(cannot)?;
        if status.is_some() {
            *self.process = None;
            self.daemon.recipe.clear_up(pid);
            self.daemon.home.vacate()?;
        }
        Ok(status)
    }

    pub(super) fn pid(&mut self) -> Option<u32> {
        // What has ended by itself does not run.
        let _ = self.reap();
        self.process.as_ref().map(Child::id)
    }

    fn running(&mut self) -> Result<u32, ServerError> {
        let server = self.daemon.recipe.name();
        self.pid().ok_or(ServerError::NotRunning { server })
    }
}

impl Ports {
    fn choose() -> Result<Self, ServerError> {
        Ok(Self {
            main: free_port()?,
            bus: free_port()?,
        })
    }
}

impl From<ServerError> for Stalled {
    fn from(error: ServerError) -> Self {
        Self::Other(error)
    }
}
