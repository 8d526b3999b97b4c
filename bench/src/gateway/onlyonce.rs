//! The gateway as it is shipped.

use std::path::Path;
use std::process::Command;

use super::process::{Process, free_port};
use crate::failure::Failure;

pub(super) struct Onlyonce {
    process: Process,
    port: u16,
    admin: u16,
}

impl Onlyonce {
    pub(super) fn start(program: &Path, upstream: u16, store: &str) -> Result<Self, Failure> {
        let (port, admin) = (free_port()?, free_port()?);
        let mut command = Command::new(program);
        command.arg("gateway").args(["--store", store]);
        command
            .arg("--upstream")
            .arg(format!("http://127.0.0.1:{upstream}"));
        command.arg("--listen").arg(format!("127.0.0.1:{port}"));
        command.arg("--admin").arg(format!("127.0.0.1:{admin}"));
        let mut process = Process::start(&command)?;
        process.wait_for(port)?;
        Ok(Self {
            process,
            port,
            admin,
        })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn admin(&self) -> u16 {
        self.admin
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }
}
