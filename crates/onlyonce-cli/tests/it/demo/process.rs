//! A running `onlyonce demo`, with a clock of one's choice.

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_testkit::servers::faketime;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::support::program::RUN_MAX;

/// Records are kept apart by host, and the port is another with every start.
const HOST: &str = "demo.example";

/// How far ahead the machine's clock is, after a restart of the machine if it is.
#[derive(Clone, Copy)]
pub(crate) struct Clock(Duration);

impl Clock {
    pub(crate) const RIGHT: Self = Self(Duration::ZERO);

    pub(crate) fn ahead(by: Duration) -> Self {
        Self(by)
    }
}

pub(crate) struct Process {
    child: Child,
    out: Lines<BufReader<ChildStdout>>,
    url: String,
    admin: String,
    log: Arc<Mutex<String>>,
    token: String,
    client: reqwest::Client,
}

impl Process {
    /// Starts it on this data, and waits until it serves.
    pub(crate) async fn start(data: &Path, clock: Clock) -> Self {
        Self::start_with(data, clock, &[]).await
    }

    /// The same with more arguments.
    pub(crate) async fn start_with(data: &Path, clock: Clock, more: &[&str]) -> Self {
        Self::start_in(data, clock, more, &[]).await
    }

    /// The same with variables.
    pub(crate) async fn start_in(
        data: &Path,
        clock: Clock,
        more: &[&str],
        variables: &[(&str, String)],
    ) -> Self {
        let program = env!("CARGO_BIN_EXE_onlyonce");
        let boot = tempfile::NamedTempFile::new().unwrap();
        let mut command = Command::from(match clock.0 {
            Duration::ZERO => std::process::Command::new(program),
            by => faketime::after_a_restart(program, by, boot.path()).unwrap(),
        });
        command
            .args(["demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .args(["--host", HOST])
            .arg("--data")
            .arg(data)
            .args(more)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let err = BufReader::new(child.stderr.take().unwrap());
        let out = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut err = err.lines();
        // What it logs before it serves is not what is looked for.
        let mut said = String::new();
        let first = loop {
            let line = timeout(RUN_MAX, err.next_line()).await.unwrap().unwrap();
            let line = line.unwrap_or_else(|| panic!("it did not start: {said}"));
            if line.starts_with("onlyonce demo on ") {
                break line;
            }
            said.push_str(&line);
        };
        // Whatever else it says must not stop it from saying it.
        let log = Arc::<Mutex<String>>::default();
        let lines = Arc::clone(&log);
        tokio::spawn(async move {
            while let Ok(Some(line)) = err.next_line().await {
                let mut lines = lines.lock().unwrap();
                lines.push_str(&line);
                lines.push('\n');
            }
        });
        let mut urls = first
            .split([' ', ','])
            .filter(|word| word.starts_with("http://"))
            .map(str::to_owned);
        let mut process = Self {
            child,
            out,
            url: urls.next().unwrap_or_else(|| panic!("no address: {first}")),
            admin: urls.next().unwrap(),
            log,
            token: String::new(),
            client: reqwest::Client::new(),
        };
        let token = process
            .post("/api/v1/tokens", "-", json!({"id": "ada"}))
            .await;
        process.token = token.1["token"].as_str().unwrap().to_owned();
        process
    }

    /// Where it serves.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Where operators reach it.
    pub(crate) fn admin(&self) -> &str {
        &self.admin
    }

    /// A token of a user.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// The lines it printed: what each answers, and itself.
    pub(crate) async fn curl_lines(&mut self) -> Vec<(String, String)> {
        let mut lines = Vec::new();
        let mut answers = String::new();
        loop {
            let line = timeout(RUN_MAX, self.out.next_line())
                .await
                .unwrap()
                .unwrap()
                .unwrap();
            if line.starts_with("onlyonce keys list ") {
                return lines;
            }
            if let Some(comment) = line.strip_prefix("# ") {
                comment.split_once(" (").unwrap().0.clone_into(&mut answers);
            } else if line.starts_with("curl ") {
                lines.push((answers.clone(), line));
            }
        }
    }

    pub(crate) async fn post(&self, path: &str, key: &str, body: Value) -> (u16, Value) {
        self.sender(path, key, body).await.unwrap()
    }

    /// A request to be sent by itself; nothing if it gets no answer.
    pub(crate) fn sender(
        &self,
        path: &str,
        key: &str,
        body: Value,
    ) -> impl Future<Output = Option<(u16, Value)>> + Send + use<> {
        let mut request = self.request(path, key, &body);
        if path == "/api/v1/users" {
            request = request.header("Authorization", format!("Bearer {}", self.token));
        }
        async move {
            let answer = request.send().await.ok()?;
            let status = answer.status().as_u16();
            let text = answer.text().await.ok()?;
            Some((status, serde_json::from_str(&text).ok()?))
        }
    }

    /// Sends all of a request before it reads anything, as simple clients do; gives the status.
    pub(crate) async fn send_first(&self, path: &str, key: &str, body: &[u8]) -> u16 {
        let address = self.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n\
             Idempotency-Key: {key}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let sent = stream.write_all(body).await;
        sent.expect("all of the body is taken");
        let mut line = [0; "HTTP/1.1 200".len()];
        let heard = timeout(RUN_MAX, stream.read_exact(&mut line)).await;
        heard.unwrap().expect("the answer is heard");
        std::str::from_utf8(&line[9..]).unwrap().parse().unwrap()
    }

    /// What it has logged since it served.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// The sum of the samples of a metric.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let page = self.client.get(format!("{}/metrics", self.admin));
        let page = page.timeout(RUN_MAX).send().await.unwrap();
        let page = page.text().await.unwrap();
        let samples = page.lines().filter(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(['{', ' ']))
        });
        let values = samples.map(|line| line.rsplit(' ').next().unwrap());
        values.map(|value| value.parse::<f64>().unwrap()).sum()
    }

    /// A request with a key, to add to.
    pub(crate) fn request(&self, path: &str, key: &str, body: &Value) -> reqwest::RequestBuilder {
        self.client
            .post(format!("{}{path}", self.url))
            .header("Host", HOST)
            .header("Idempotency-Key", key)
            .header("Content-Type", "application/json")
            .timeout(RUN_MAX)
            .body(body.to_string())
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let url = format!("{}{path}", self.url);
        json_of(self.client.get(url)).await
    }

    pub(crate) async fn get_as_user(&self, path: &str) -> Value {
        let request = self.client.get(format!("{}{path}", self.url));
        json_of(match path {
            "/api/v1/users" => request.header("Authorization", format!("Bearer {}", self.token)),
            _ => request,
        })
        .await
    }

    /// The attempt of every record that operators see.
    pub(crate) async fn attempts(&self) -> Vec<u64> {
        let url = format!("{}/api/v1/records?limit=1000", self.admin);
        let page = json_of(self.client.get(url)).await;
        let records = page["records"]
            .as_array()
            .unwrap_or_else(|| panic!("{page}"));
        records
            .iter()
            .map(|it| it["attempt"].as_u64().unwrap())
            .collect()
    }

    /// Kills this very process, and waits for its end.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Presses Ctrl-C; gives whether it ended well.
    pub(crate) async fn interrupt(mut self) -> bool {
        let id = self.child.id().unwrap().to_string();
        let sent = Command::new("kill").args(["-INT", &id]).status().await;
        assert!(sent.unwrap().success());
        let ended = timeout(RUN_MAX, self.child.wait()).await;
        ended.unwrap().unwrap().success()
    }
}

async fn json_of(request: reqwest::RequestBuilder) -> Value {
    let answer = request.timeout(RUN_MAX).send().await.unwrap();
    let text = answer.text().await.unwrap();
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text}"))
}
