//! A gateway as its own process, and a service behind it that does what a test needs.

use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::routing::post;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::Child;
use tokio::sync::Notify;

use super::program::onlyonce;

/// What the service has seen.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) runs: AtomicUsize,
    pub(crate) gate: Notify,
    pub(crate) traceparents: Mutex<Vec<String>>,
}

/// A service on a free port: `/orders` answers, `/slow` when told to, `/big` at length.
pub(crate) async fn service() -> (String, Arc<Work>) {
    let work = Arc::<Work>::default();
    let order = async |State(work): State<Arc<Work>>, request: Request| {
        let sent = request.headers().get("traceparent");
        let sent = sent.map(|it| it.to_str().unwrap().to_owned());
        work.traceparents.lock().unwrap().extend(sent);
        format!("order {}", work.runs.fetch_add(1, Ordering::SeqCst) + 1)
    };
    let slow = async |State(work): State<Arc<Work>>| {
        work.runs.fetch_add(1, Ordering::SeqCst);
        work.gate.notified().await;
        "slow"
    };
    let app = Router::new()
        .route("/orders", post(order))
        .route("/slow", post(slow))
        .route("/big", post(async || "x".repeat(100_000)))
        .with_state(Arc::clone(&work));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, app).into_future());
    (address, work)
}

/// A service that is lost with every request.
pub(crate) fn lost() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut bytes = [0; 4096];
            assert!(stream.unwrap().read(&mut bytes).unwrap() > 0);
        }
    });
    address
}

/// A service that is lost with its first request, and answers all others.
pub(crate) fn vanishing() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (mut stream, mut bytes) = (stream.unwrap(), [0; 4096]);
            assert!(stream.read(&mut bytes).unwrap() > 0);
            if number > 0 {
                let answer =
                    "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nagain";
                stream.write_all(answer.as_bytes()).unwrap();
            }
        }
    });
    address
}

/// `onlyonce gateway`, running.
pub(crate) struct Running {
    pub(crate) url: String,
    pub(crate) admin: String,
    pub(crate) child: Child,
    pub(crate) folder: TempDir,
    log: Arc<Mutex<String>>,
}

impl Running {
    pub(crate) async fn start(upstream: &str, settings: &str) -> Self {
        Self::start_with(upstream, settings, &[], TempDir::new().unwrap()).await
    }

    /// The same with variables, in a folder that may have been used before. `FOLDER` in the
    /// settings is that folder.
    pub(crate) async fn start_with(
        upstream: &str,
        settings: &str,
        variables: &[(&str, String)],
        folder: TempDir,
    ) -> Self {
        let config = folder.path().join("onlyonce.toml");
        let settings = settings.replace("FOLDER", &folder.path().display().to_string());
        let own = format!(
            "upstream = \"{upstream}\"\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n"
        );
        std::fs::write(&config, own + &settings).unwrap();
        let mut command = onlyonce(&["gateway", "--config", config.to_str().unwrap()]);
        for (name, value) in variables {
            command.env(name, value);
        }
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::<Mutex<String>>::default();
        let (url, admin) = loop {
            let line = lines.next_line().await.unwrap();
            let line = line.unwrap_or_else(|| panic!("it did not start: {}", log.lock().unwrap()));
            if let Some(addresses) = addresses(&line) {
                break addresses;
            }
            log.lock().unwrap().push_str(&(line + "\n"));
        };
        let written = Arc::clone(&log);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                written.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        Self {
            url,
            admin,
            child,
            folder,
            log,
        }
    }

    /// What it wrote to stderr so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn request(&self, path: &str, key: &str) -> reqwest::RequestBuilder {
        let request = reqwest::Client::new().post(format!("{}{path}", self.url));
        request.header("idempotency-key", key)
    }

    pub(crate) async fn send(&self, path: &str, key: &str, body: &str) -> u16 {
        let request = self.request(path, key).body(body.to_owned());
        request.send().await.unwrap().status().as_u16()
    }

    /// Sends a signal by its name.
    pub(crate) async fn signal(&self, name: &str) {
        let id = self.child.id().unwrap().to_string();
        let sent = tokio::process::Command::new("kill")
            .args([name, &id])
            .status()
            .await;
        assert!(sent.unwrap().success());
    }
}

/// Returns when `holds`.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..3000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: it did not come to hold");
}

/// A token that nobody signed, of a user: its name is for people, not trusted.
pub(crate) fn token(user: &str) -> String {
    // {"alg":"none"}, then the claims, in base64 without padding.
    let claims = format!("{{\"sub\":\"{user}\"}}");
    format!(
        "Bearer eyJhbGciOiJub25lIn0.{}.c2ln",
        base64(claims.as_bytes())
    )
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three
            .iter()
            .fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - three.len()));
        for digit in 0..=three.len() {
            let at = bits >> (18 - 6 * digit) & 63;
            text.push(char::from(DIGITS[at as usize]));
        }
    }
    text
}

/// Where a gateway says that it listens and where its operators reach it, as JSON or as text.
fn addresses(line: &str) -> Option<(String, String)> {
    let told: Value = serde_json::from_str(line).unwrap_or_default();
    let words = told["message"].as_str().unwrap_or(line);
    let words = words.strip_prefix("onlyonce listens on ")?;
    let (url, admin) = words.split_once(", operators on ")?;
    Some((url.to_owned(), admin.to_owned()))
}
