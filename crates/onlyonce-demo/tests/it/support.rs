//! The services on a free port with a database of their own, and a client to speak to them.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use onlyonce_demo::{Demo, Options};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;

/// By when what is waited for must be there. Far more than it takes; nothing depends on how long.
const SOON: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// Running services.
pub(crate) struct Bed {
    pub(crate) demo: Demo,
    pub(crate) url: String,
    client: reqwest::Client,
    _folder: Option<TempDir>,
}

impl Bed {
    /// On SQLite, with everything as it is built in.
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// On SQLite, with options to change.
    pub(crate) async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut options = Options::new(database(&folder));
        change(&mut options);
        Self::start(&options, Some(folder)).await
    }

    pub(crate) async fn start(options: &Options, folder: Option<TempDir>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let demo = Demo::start(options, listener).await.unwrap();
        Self {
            url: format!("http://{}", demo.address()),
            demo,
            client: reqwest::Client::new(),
            _folder: folder,
        }
    }

    pub(crate) fn post(&self, path: &str) -> Ask {
        Ask::new(self.client.post(format!("{}{path}", self.url)))
    }

    pub(crate) fn patch(&self, path: &str) -> Ask {
        Ask::new(self.client.patch(format!("{}{path}", self.url)))
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        Ask::new(self.client.get(format!("{}{path}", self.url)))
            .send()
            .await
    }

    pub(crate) fn getting(&self, path: &str) -> Ask {
        Ask::new(self.client.get(format!("{}{path}", self.url)))
    }

    pub(crate) fn deleting(&self, path: &str) -> Ask {
        Ask::new(self.client.delete(format!("{}{path}", self.url)))
    }

    /// A token for an actor.
    pub(crate) async fn token(&self, kind: &str, id: &str) -> String {
        let answer = self
            .post("/api/v1/tokens")
            .json(serde_json::json!({"type": kind, "id": id}))
            .send()
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()["token"].as_str().unwrap().to_owned()
    }

    /// The events of a submission.
    pub(crate) async fn events(&self, submission: &str) -> Vec<Value> {
        let path = format!("/api/submissions/{submission}/events");
        let answer = self.get(&path).await;
        answer.json()["events"].as_array().unwrap().clone()
    }

    /// Asks until the answer is as wanted.
    pub(crate) async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let asking = async {
            loop {
                let found = self.get(path).await.json();
                if wanted(&found) {
                    return found;
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::time::timeout(SOON, asking)
            .await
            .unwrap_or_else(|_| panic!("{path} never was as wanted"))
    }
}

pub(crate) fn database(folder: &TempDir) -> String {
    format!("sqlite:{}", folder.path().join("demo.db").display())
}

/// A file of intakes in a folder.
pub(crate) fn intakes(folder: &TempDir, intakes: &Value) -> PathBuf {
    let path = folder.path().join("intakes.json");
    std::fs::write(&path, intakes.to_string()).unwrap();
    path
}

/// One request to be.
pub(crate) struct Ask(reqwest::RequestBuilder);

impl Ask {
    fn new(request: reqwest::RequestBuilder) -> Self {
        Self(request.timeout(SOON))
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header("Idempotency-Key", key)
    }

    pub(crate) fn token(self, token: &str) -> Self {
        self.header("Authorization", &format!("Bearer {token}"))
    }

    /// The host it asks for, whatever the address: records are kept apart by it.
    pub(crate) fn host(self, host: &str) -> Self {
        self.header("Host", host)
    }

    /// Gives up after this long.
    pub(crate) fn within(self, at_most: Duration) -> Self {
        Self(self.0.timeout(at_most))
    }

    /// A body of any kind.
    pub(crate) fn text(self, body: String) -> Self {
        Self(self.0.body(body))
    }

    pub(crate) fn header(self, name: &str, value: &str) -> Self {
        Self(self.0.header(name, value))
    }

    pub(crate) fn json(self, body: Value) -> Self {
        self.body(body.to_string())
    }

    pub(crate) fn body(self, body: impl Into<String>) -> Self {
        let sent = self.header("Content-Type", "application/json");
        Self(sent.0.body(body.into()))
    }

    pub(crate) async fn send(self) -> Answer {
        self.try_send().await.unwrap()
    }

    pub(crate) async fn try_send(self) -> Result<Answer, reqwest::Error> {
        let answer = self.0.send().await?;
        Ok(Answer {
            status: answer.status(),
            headers: answer.headers().clone(),
            text: answer.text().await?,
        })
    }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The text at `name` of the JSON.
    #[track_caller]
    pub(crate) fn text_at(&self, name: &str) -> String {
        let found = self.json()[name].as_str().map(str::to_owned);
        found.unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }
}

/// A UUID of version 4, the `n`th.
pub(crate) fn uuid(n: u64) -> String {
    let mut text = String::new();
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bd1_e995_1b87_3593;
    write!(
        text,
        "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
        mixed >> 32,
        mixed & 0xffff,
        (mixed >> 16) & 0xfff,
        n & 0xfff,
        n
    )
    .unwrap();
    text
}
