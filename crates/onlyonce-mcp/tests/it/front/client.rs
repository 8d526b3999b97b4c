//! A client over HTTP, the front that it speaks to, and the servers that the front starts.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderMap, HeaderName, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use onlyonce_core::{Engine, MemoryStore};
use onlyonce_mcp::{Bounds, Front, FrontBody, Proxy, Rules, Servers, Started};
use serde_json::{Value, json};
use tokio::io::{DuplexStream, duplex, split};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::support::{End, order_tool, rules};

const PIPE_BYTES: usize = 64 * 1024;
const VERSION: &str = "2025-11-25";

pub(crate) fn bounds() -> Bounds {
    Bounds {
        servers_max: 8,
        idle: Duration::from_secs(600),
        held_bytes_max: 64 << 20,
        is_one_conversation: false,
    }
}

struct Pipes {
    started: mpsc::UnboundedSender<DuplexStream>,
    is_broken: Arc<AtomicBool>,
}

impl Servers for Pipes {
    fn start(&self) -> io::Result<Started> {
        if self.is_broken.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let (server, near) = duplex(PIPE_BYTES);
        self.started.send(server).unwrap();
        let (output, input) = split(near);
        Ok(Started {
            output: Box::new(output),
            input: Box::new(input),
            end: Box::new(|_| async {}.boxed()),
        })
    }
}

/// A front, and the servers that it has started.
pub(crate) struct Shop {
    pub(crate) front: Front,
    started: mpsc::UnboundedReceiver<DuplexStream>,
    is_broken: Arc<AtomicBool>,
}

impl Shop {
    pub(crate) async fn open(bounds: Bounds) -> Self {
        Self::on(&Arc::new(MemoryStore::new()), rules(), bounds).await
    }

    pub(crate) async fn on(store: &Arc<MemoryStore>, rules: Rules, bounds: Bounds) -> Self {
        let (sender, started) = mpsc::unbounded_channel();
        let is_broken = Arc::<AtomicBool>::default();
        let pipes = Pipes {
            started: sender,
            is_broken: Arc::clone(&is_broken),
        };
        let engine = Engine::open(Arc::clone(store)).await.unwrap();
        Self {
            front: Front::new(Proxy::new(engine, rules), pipes, bounds),
            started,
            is_broken,
        }
    }

    pub(crate) fn cannot_start(&self) {
        self.is_broken.store(true, Ordering::SeqCst);
    }

    pub(crate) async fn server(&mut self) -> Server {
        let stream = self.started.recv().await.unwrap();
        Server {
            end: End::new(stream),
        }
    }

    pub(crate) fn initialize(&self, client: Client) -> Asking {
        let version = client.version;
        let client = Client {
            front: Some(self.front.clone()),
            ..client
        };
        client.post(
            &json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
                "protocolVersion": version,
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            }}),
        )
    }

    /// A client in a new session, and its server, whose tools are known.
    pub(crate) async fn begin(&mut self, client: Client) -> (Client, Server) {
        let beginning = self.initialize(client.clone()).start();
        let mut server = self.server().await;
        let asked = server.hear_request().await;
        let result = json!({"protocolVersion": client.version, "capabilities": {}});
        server.answer(&asked, result).await;
        let begun = beginning.await.unwrap();
        let session = begun.session.clone();
        assert_eq!(begun.answer().await["id"], 0);
        let client = Client {
            front: Some(self.front.clone()),
            session: Some(session.expect("it has a session")),
            ..client
        };
        let listing = client.post(&json!({"jsonrpc": "2.0", "id": 98, "method": "tools/list"}));
        let listing = listing.start();
        let asked = server.end.hear().await;
        server
            .answer(&asked, json!({"tools": [order_tool()]}))
            .await;
        listing.await.unwrap().answer().await;
        (client, server)
    }

    /// A client that begins no session.
    pub(crate) fn without_session(&self, client: Client) -> Client {
        Client {
            front: Some(self.front.clone()),
            ..client
        }
    }
}

/// One server's end of its pipes.
pub(crate) struct Server {
    pub(crate) end: End,
}

impl Server {
    /// The next request; lists of tools are answered on the way.
    pub(crate) async fn hear_request(&mut self) -> Value {
        loop {
            let message = self.end.hear().await;
            if message["method"] == "tools/list" {
                self.answer(&message, json!({"tools": [order_tool()]}))
                    .await;
            } else if message.get("id").is_some() {
                return message;
            }
        }
    }

    pub(crate) async fn hear_call(&mut self) -> Value {
        let asked = self.hear_request().await;
        assert_eq!(asked["method"], "tools/call", "{asked}");
        asked
    }

    pub(crate) async fn answer(&mut self, asked: &Value, result: Value) {
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
        self.end.say(answer).await;
    }

    /// Hears a call and answers it.
    pub(crate) async fn order(&mut self, result: Value) -> Value {
        let asked = self.hear_call().await;
        self.answer(&asked, result).await;
        asked
    }

    /// Everything until its input ends, and then it ends too.
    pub(crate) async fn end_with_its_input(mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(line) = self.end.line().await {
            lines.push(line);
        }
        lines
    }

    /// Nothing has reached it but what the test has heard, when it hears this.
    pub(crate) async fn heard_no_more(&mut self, ping: Asking) {
        let asking = ping.start();
        loop {
            let message = self.end.hear().await;
            if message["method"] == "tools/list" {
                self.answer(&message, json!({"tools": [order_tool()]}))
                    .await;
                continue;
            }
            assert_eq!(message["method"], "ping", "{message}");
            self.answer(&message, json!({})).await;
            break;
        }
        asking.await.unwrap();
    }
}

/// A client with a credential, in a session.
#[derive(Clone, Default)]
pub(crate) struct Client {
    front: Option<Front>,
    caller: Option<Arc<str>>,
    session: Option<String>,
    version: &'static str,
}

pub(crate) fn client(caller: &str) -> Client {
    Client {
        caller: Some(caller.into()),
        version: VERSION,
        ..Client::default()
    }
}

impl Client {
    pub(crate) fn of(self, version: &'static str) -> Self {
        Self { version, ..self }
    }

    pub(crate) fn in_session_of(&self, other: &Self) -> Self {
        Self {
            session: other.session.clone(),
            ..self.clone()
        }
    }

    pub(crate) fn post(&self, message: &Value) -> Asking {
        self.request(Method::POST, Some(message))
    }

    pub(crate) fn get(&self) -> Asking {
        self.request(Method::GET, None)
    }

    pub(crate) fn delete(&self) -> Asking {
        self.request(Method::DELETE, None)
    }

    pub(crate) fn ping(&self) -> Asking {
        self.post(&json!({"jsonrpc": "2.0", "id": 99, "method": "ping"}))
    }

    pub(crate) fn text(&self, text: impl Into<Bytes>) -> Asking {
        let mut asking = self.request(Method::POST, None);
        asking.body = text.into();
        asking
    }

    pub(crate) fn request(&self, method: Method, message: Option<&Value>) -> Asking {
        let mut headers = HeaderMap::new();
        let mut put =
            |name: &'static str, value: &str| headers.insert(name, value.parse().unwrap());
        put("content-type", "application/json");
        put("accept", "application/json, text/event-stream");
        if let Some(session) = &self.session {
            put("mcp-session-id", session);
        }
        Asking {
            client: self.clone(),
            method,
            headers,
            body: message.map(ToString::to_string).unwrap_or_default().into(),
        }
    }
}

/// A request that is made.
pub(crate) struct Asking {
    client: Client,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
}

impl std::fmt::Debug for Asking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {:?}", self.method, self.headers, self.body)
    }
}

impl Asking {
    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        let name = HeaderName::from_static(name);
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    pub(crate) fn taking(self, kinds: &str) -> Self {
        self.header("accept", kinds)
    }

    pub(crate) async fn send(self) -> Heard {
        let mut request = Request::new(self.body);
        *request.method_mut() = self.method;
        *request.headers_mut() = self.headers;
        let front = self.client.front.expect("it has a front");
        let response = front.answer(request, self.client.caller).await;
        let (parts, body) = response.into_parts();
        let session = parts.headers.get("mcp-session-id");
        Heard {
            status: parts.status,
            session: session.map(|it| it.to_str().unwrap().to_owned()),
            body,
            text: String::new(),
        }
    }

    /// Sends it on its own, so that the server can be heard meanwhile.
    pub(crate) fn start(self) -> JoinHandle<Heard> {
        tokio::spawn(self.send())
    }
}

/// An answer, as far as it has come.
pub(crate) struct Heard {
    pub(crate) status: StatusCode,
    pub(crate) session: Option<String>,
    body: FrontBody,
    text: String,
}

impl Heard {
    /// The next event: its id, and the message in it.
    pub(crate) async fn event(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let member = |name: &str| {
                    let mut lines = event.lines();
                    lines.find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
                };
                let (id, data) = (member("id:"), member("data:"));
                let rest = rest.to_owned();
                let found = data.map(|data| {
                    let message = serde_json::from_str(&data).unwrap_or_default();
                    (id.unwrap_or_default(), message)
                });
                self.text = rest;
                if found.is_some() {
                    return found;
                }
                continue;
            }
            let frame = self.body.frame().await?.unwrap();
            let piece = frame.into_data().unwrap();
            self.text.push_str(std::str::from_utf8(&piece).unwrap());
        }
    }

    /// The next message.
    pub(crate) async fn message(&mut self) -> Value {
        loop {
            let (_, message) = self.event().await.expect("the stream is open");
            if !message.is_null() {
                return message;
            }
        }
    }

    /// All that is left.
    pub(crate) async fn messages(mut self) -> Vec<Value> {
        let mut messages = Vec::new();
        while let Some((_, message)) = self.event().await {
            messages.push(message);
        }
        messages.retain(|message| !message.is_null());
        messages
    }

    pub(crate) async fn whole(self) -> String {
        let body = self.body.collect().await.unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    }

    /// The answer, in whatever form it came.
    pub(crate) async fn answer(self) -> Value {
        let text = self.whole().await;
        let in_stream = text.lines().rev().find_map(|it| it.strip_prefix("data: {"));
        let text = in_stream.map_or(text.clone(), |it| format!("{{{it}"));
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"))
    }
}
