//! HAProxy as a plain reverse proxy that keeps its connections to the upstream, with as many threads
//! as there are cores.

use std::fs;

use tempfile::TempDir;

use crate::failure::Failure;
use crate::process::{Process, free_port};
use crate::tool::HAPROXY;

pub(crate) struct Haproxy {
    // Before the folder that it reads from.
    process: Process,
    port: u16,
    _folder: TempDir,
}

impl Haproxy {
    pub(crate) fn start(upstream: u16) -> Result<Self, Failure> {
        let folder = tempfile::tempdir().map_err(Failure::doing("make a folder"))?;
        let port = free_port()?;
        let path = folder.path().join("haproxy.cfg");
        fs::write(&path, configuration(port, upstream))
            .map_err(Failure::doing("write haproxy.cfg"))?;
        let mut command = HAPROXY.command()?;
        command.arg("-db").arg("-f").arg(&path);
        let log = folder.path().join("log");
        let mut process = Process::start_logged(&command, &log)?;
        process.wait_for(port)?;
        Ok(Self {
            process,
            port,
            _folder: folder,
        })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }
}

/// The upstream gets the same headers about the client as from our gateway.
fn configuration(port: u16, upstream: u16) -> String {
    format!(
        r#"
global
  maxconn 8192
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  option forwardfor
  option http-keep-alive
  http-reuse always
frontend clients
  bind 127.0.0.1:{port}
  http-request set-header X-Forwarded-Proto http
  http-request set-header X-Forwarded-Host %[req.hdr(host)]
  http-request set-header Via "1.1 haproxy"
  default_backend service
backend service
  server service 127.0.0.1:{upstream}
"#
    )
}
