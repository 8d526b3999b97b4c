//! A program that runs as long as we want it to, and not longer than we do.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::failure::Failure;

const PATIENCE: u32 = 500;
const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Process(Child);

impl Process {
    /// Starts `command` in a way that it ends with us, whatever ends us.
    pub(super) fn start(command: &Command) -> Result<Self, Failure> {
        let program = command.get_program();
        let mut wrapped = Command::new("setpriv");
        wrapped.args(["--pdeathsig", "TERM", "--"]);
        wrapped.arg(program).args(command.get_args());
        let cannot = Failure::doing(format!("start {}", program.to_string_lossy()));
        Ok(Self(wrapped.spawn().map_err(cannot)?))
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits until somebody listens on this port.
    pub(super) fn wait_for(&mut self, port: u16) -> Result<(), Failure> {
        for _ in 0..PATIENCE {
            if let Ok(Some(status)) = self.0.try_wait() {
                return Err(Failure::new(format!("a program ended at once: {status}")));
            }
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        Err(Failure::new("a program does not listen"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            // It has not been waited for: the id is still its own.
            let _ = kill_process(pid, Signal::TERM);
        }
        drop(self.0.wait());
    }
}

/// A port that nobody has at the moment.
pub(super) fn free_port() -> Result<u16, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0");
    let address = listener.and_then(|listener| listener.local_addr());
    Ok(address.map_err(Failure::doing("find a free port"))?.port())
}
