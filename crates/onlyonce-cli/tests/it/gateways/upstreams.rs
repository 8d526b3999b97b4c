//! Services that are not ours.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::process::eventually;

/// Python's http.server, which counts what it does.
pub(super) struct Shop {
    _child: Child,
    address: SocketAddr,
}

impl Shop {
    pub(super) async fn start() -> Self {
        let mut child = Command::new("python3")
            .args(["-c", include_str!("shop.py")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("python3 is installed");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.next_line().await.unwrap().expect("it says its port");
        Self {
            _child: child,
            address: format!("127.0.0.1:{port}").parse().unwrap(),
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How often it ran, by key.
    pub(super) async fn runs(&self) -> BTreeMap<String, u64> {
        let answer = reqwest::get(format!("{}/runs", self.url())).await.unwrap();
        serde_json::from_str(&answer.text().await.unwrap()).unwrap()
    }

    pub(super) async fn runs_of(&self, key: &str) -> u64 {
        self.runs().await.get(key).copied().unwrap_or_default()
    }

    /// Lets what is slow end.
    pub(super) async fn open(&self) {
        reqwest::get(format!("{}/open", self.url())).await.unwrap();
    }
}

/// nginx, which answers every request with an id of its own.
pub(super) struct Nginx {
    _child: Child,
    _folder: tempfile::TempDir,
    address: SocketAddr,
}

impl Nginx {
    pub(super) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let at = folder.path().display();
        let settings = format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log;\n\
             events {{}}\n\
             http {{\n\
               access_log off; client_body_temp_path {at}/body; proxy_temp_path {at}/proxy;\n\
               fastcgi_temp_path {at}/fastcgi; uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;\n\
               server {{ listen {address}; location / {{ return 201 $request_id; }} }}\n\
             }}\n"
        );
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, settings).unwrap();
        let program = ["/usr/sbin/nginx", "nginx"]
            .into_iter()
            .find(|path| std::path::Path::new(path).exists())
            .unwrap_or("nginx");
        let child = Command::new(program)
            .arg("-p")
            .arg(folder.path())
            .arg("-c")
            .arg(&file)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("nginx is installed");
        eventually(async || TcpStream::connect(address).await.is_ok()).await;
        Self {
            _child: child,
            _folder: folder,
            address,
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}
