//! The gateway as it is shipped.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use tempfile::TempDir;

use crate::failure::Failure;
use crate::process::{Process, free_port};

/// Where the program is that is measured.
#[derive(Args, Clone)]
pub(crate) struct Program {
    /// The onlyonce program, by default the one beside this
    #[arg(long, value_name = "FILE")]
    onlyonce: Option<PathBuf>,
}

impl Program {
    /// What is built together lies together.
    pub(crate) fn path(&self) -> Result<PathBuf, Failure> {
        if let Some(program) = &self.onlyonce {
            return Ok(program.clone());
        }
        let own = std::env::current_exe().map_err(Failure::doing("find this program"))?;
        Ok(own.with_file_name("onlyonce"))
    }
}

pub(crate) struct Onlyonce {
    // Before the folder that it writes to.
    process: Process,
    port: u16,
    admin: u16,
    _folder: TempDir,
}

impl Onlyonce {
    pub(crate) fn start(program: &Path, upstream: u16, store: &str) -> Result<Self, Failure> {
        Self::with(program, upstream, store, &[])
    }

    /// The same, with what this file says besides.
    pub(crate) fn configured(
        program: &Path,
        upstream: u16,
        store: &str,
        config: &Path,
    ) -> Result<Self, Failure> {
        Self::with(program, upstream, store, &[Path::new("--config"), config])
    }

    fn with(program: &Path, upstream: u16, store: &str, more: &[&Path]) -> Result<Self, Failure> {
        let (port, admin) = (free_port()?, free_port()?);
        let mut command = Command::new(program);
        command.arg("gateway").args(["--store", store]).args(more);
        command
            .arg("--upstream")
            .arg(format!("http://127.0.0.1:{upstream}"));
        command.arg("--listen").arg(format!("127.0.0.1:{port}"));
        command.arg("--admin").arg(format!("127.0.0.1:{admin}"));
        let folder = tempfile::tempdir().map_err(Failure::doing("make a folder"))?;
        let mut process = Process::start_logged(&command, &folder.path().join("log"))?;
        process.wait_for(port)?;
        Ok(Self {
            process,
            port,
            admin,
            _folder: folder,
        })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn admin(&self) -> u16 {
        self.admin
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }
}
