//! nginx as a plain reverse proxy that keeps its connections to the upstream, with as many workers
//! as there are cores.

use std::fs;

use tempfile::TempDir;

use crate::failure::Failure;
use crate::process::{Process, free_port};
use crate::system::children;
use crate::tool::NGINX;

pub(crate) struct Nginx {
    // Before the folder that it writes to.
    process: Process,
    port: u16,
    _folder: TempDir,
}

impl Nginx {
    pub(crate) fn start(upstream: u16) -> Result<Self, Failure> {
        let folder = tempfile::tempdir().map_err(Failure::doing("make a folder"))?;
        let port = free_port()?;
        let path = folder.path().join("nginx.conf");
        let text = configuration(&folder.path().display().to_string(), port, upstream);
        fs::write(&path, text).map_err(Failure::doing("write nginx.conf"))?;
        let mut command = NGINX.command()?;
        command.arg("-e").arg(folder.path().join("error.log"));
        command.arg("-c").arg(&path);
        let mut process = Process::start(&command)?;
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

    /// Its workers.
    pub(crate) fn pids(&self) -> Vec<u32> {
        children(self.process.pid())
    }
}

/// The upstream gets the same headers about the client as from our gateway.
fn configuration(folder: &str, port: u16, upstream: u16) -> String {
    format!(
        r#"
daemon off;
worker_processes auto;
pid {folder}/nginx.pid;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  keepalive_requests 1000000000;
  upstream service {{
    server 127.0.0.1:{upstream};
    keepalive 128;
    keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://service;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_set_header X-Forwarded-Proto $scheme;
      proxy_set_header X-Forwarded-Host $host;
      proxy_set_header Via "1.1 nginx";
      proxy_set_header Forwarded "for=$remote_addr;proto=$scheme;host=$host";
    }}
  }}
}}
"#
    )
}
