//! A gateway as its own process, and what it says.

use std::net::SocketAddr;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::support::program::RUN_MAX;

/// The name all gateways of a service are called by: whom a request was sent to is part of its
/// record's address.
pub(super) const HOST: &str = "shop.example";

/// A running gateway; it ends with this value.
pub(super) struct Process {
    child: Child,
    pub(super) address: SocketAddr,
    said: Arc<Mutex<String>>,
    folder: Arc<tempfile::TempDir>,
}

impl Process {
    /// A gateway on a free port with these settings.
    pub(super) async fn start(settings: &str) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        Self::start_in(folder, "127.0.0.1:0", settings).await
    }

    /// Another gateway in this one's place, which has ended.
    pub(super) async fn again(self, settings: &str) -> Self {
        Self::start_in(
            Arc::clone(&self.folder),
            &self.address.to_string(),
            settings,
        )
        .await
    }

    async fn start_in(folder: Arc<tempfile::TempDir>, listen: &str, settings: &str) -> Self {
        let file = folder.path().join("onlyonce.toml");
        std::fs::write(&file, settings).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_onlyonce"))
            .args(["gateway", "--listen", listen, "--admin", "127.0.0.1:0"])
            .arg("--config")
            .arg(&file)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let said = Arc::new(Mutex::new(String::new()));
        let address = tokio::time::timeout(RUN_MAX, async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if let Some((_, rest)) = line.split_once("listens on http://") {
                    return rest.split(',').next().unwrap().parse().unwrap();
                }
                said.lock().unwrap().push_str(&line);
            }
            panic!("it did not start: {}", said.lock().unwrap())
        });
        let address = address.await.expect("it says where it listens");
        let heard = Arc::clone(&said);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let mut heard = heard.lock().unwrap();
                heard.push_str(&line);
                heard.push('\n');
            }
        });
        Self {
            child,
            address,
            said,
            folder,
        }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Everything it has said since it listens.
    pub(super) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub(super) fn write_settings(&self, settings: &str) {
        let file = self.folder.path().join("onlyonce.toml");
        std::fs::write(file, settings).unwrap();
    }

    /// Sends it a signal by name, and no other process.
    pub(super) fn signal(&self, name: &str) {
        let id = self.child.id().expect("it runs").to_string();
        let sent = std::process::Command::new("kill")
            .args([&format!("-{name}"), &id])
            .status();
        assert!(sent.unwrap().success());
    }

    pub(super) async fn ended(&mut self) -> ExitStatus {
        let ended = tokio::time::timeout(RUN_MAX, self.child.wait());
        ended.await.expect("it ends").unwrap()
    }
}

/// Returns when `holds`.
pub(super) async fn eventually(holds: impl AsyncFn() -> bool) {
    let holding = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let held = tokio::time::timeout(RUN_MAX, holding).await;
    held.expect("it comes to hold");
}
