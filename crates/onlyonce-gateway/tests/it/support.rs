//! A service that counts what it does, a gateway in front of it, and a client.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use http_body_util::Full;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use onlyonce_gateway::{Gateway, Settings, config::ConfigError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

pub(crate) mod flaky;

/// What the service has done.
#[derive(Default)]
pub(crate) struct Work {
    runs: AtomicUsize,
    pub(crate) gate: Notify,
    /// What the service says to whoever asks whether it may come in; 0 is yes.
    pub(crate) access: AtomicU16,
    /// The headers of whoever asked.
    pub(crate) checks: Mutex<Vec<http::HeaderMap>>,
}

impl Work {
    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    /// Counts a run, and says its number.
    fn run(&self) -> usize {
        self.runs.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// A service on a free port.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    pub(crate) work: Arc<Work>,
}

impl Service {
    pub(crate) async fn start() -> Self {
        let work = Arc::<Work>::default();
        let app = Router::new()
            .route("/orders", post(order))
            .route("/slow", post(slow))
            .route("/told", any(told))
            .route("/echo", any(async |body: Bytes| body))
            .route("/me", get(me))
            .route("/socket", get(socket))
            .with_state(Arc::clone(&work));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, work }
    }
}

async fn order(State(work): State<Arc<Work>>) -> Response {
    let number = work.run();
    let headers = [("set-cookie", "session=secret"), ("x-order", "made")];
    (
        http::StatusCode::CREATED,
        headers,
        format!("order {number}"),
    )
        .into_response()
}

/// Whether a caller may come in; nobody without a credential.
async fn me(State(work): State<Arc<Work>>, request: Request) -> http::StatusCode {
    let said = work.access.load(Ordering::SeqCst);
    work.checks.lock().unwrap().push(request.headers().clone());
    if request.headers().contains_key("authorization") {
        http::StatusCode::from_u16(said).unwrap_or(http::StatusCode::NO_CONTENT)
    } else {
        http::StatusCode::UNAUTHORIZED
    }
}

/// Ends when the test says so.
async fn slow(State(work): State<Arc<Work>>) -> String {
    let number = work.run();
    work.gate.notified().await;
    format!("slow {number}")
}

/// What arrived, line by line.
async fn told(request: Request) -> String {
    let mut lines = vec![format!("{} {}", request.method(), request.uri())];
    for (name, value) in request.headers() {
        lines.push(format!("{name}: {}", value.to_str().unwrap_or("?")));
    }
    lines.join("\n")
}

async fn socket(upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(async |mut socket| {
        while let Some(Ok(Message::Text(text))) = socket.recv().await {
            let echo = Message::Text(format!("echo {text}").into());
            if socket.send(echo).await.is_err() {
                break;
            }
        }
    })
}

/// A gateway in front of `service`, with more settings as TOML.
pub(crate) async fn gateway(service: SocketAddr, more: &str) -> Gateway {
    let settings = settings(service, more);
    Gateway::start(&settings).await.unwrap()
}

/// The same on a store that `more` names.
pub(crate) async fn started(service: SocketAddr, more: &str) -> Gateway {
    let settings = load(&format!("upstream = \"http://{service}\"\n{more}"));
    Gateway::start(&settings.unwrap()).await.unwrap()
}

pub(crate) fn settings(service: SocketAddr, more: &str) -> Settings {
    checked(service, more).unwrap()
}

/// The same settings, or what is wrong with them.
pub(crate) fn checked(service: SocketAddr, more: &str) -> Result<Settings, ConfigError> {
    load(&format!(
        "upstream = \"http://{service}\"\nstore = \"memory:\"\n{more}"
    ))
}

fn load(more: &str) -> Result<Settings, ConfigError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = format!("listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n{more}");
    std::fs::write(file.path(), text).unwrap();
    Settings::load(Some(file.path()), [], &[])
}

/// A client that reuses nothing it should not.
pub(crate) fn client() -> reqwest::Client {
    reqwest::Client::builder()
        .timeout(Duration::from_secs(30))
        .build()
        .unwrap()
}

pub(crate) async fn order_with(
    gateway: &Gateway,
    key: &str,
    body: &'static str,
) -> reqwest::Response {
    client()
        .post(format!("http://{}/orders", gateway.address()))
        .header("idempotency-key", key)
        .body(body)
        .send()
        .await
        .unwrap()
}

/// Bytes that come one after the other, when the test sends them.
pub(crate) fn stream() -> (tokio::sync::mpsc::UnboundedSender<Bytes>, Body) {
    let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
    let stream = futures_util::stream::poll_fn(move |cx| {
        receive
            .poll_recv(cx)
            .map(|bytes| bytes.map(Ok::<Bytes, std::io::Error>))
    });
    (send, Body::from_stream(stream))
}

/// Returns when `holds`.
pub(crate) async fn eventually(holds: impl Fn() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it did not come to hold");
}

/// Sends bytes over a connection of their own, and hears all until the gateway closes it.
pub(crate) async fn heard(gateway: &Gateway, sent: &str) -> String {
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    stream.write_all(sent.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut heard))
        .await
        .expect("the gateway closes the connection")
        .unwrap();
    String::from_utf8(heard).unwrap()
}

/// A client of HTTP/2 that sends requests as they are.
pub(crate) async fn http2(gateway: &Gateway) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(gateway.address()).await.unwrap();
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (client, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    client
}

/// A service that answers with the target it was asked for, and counts.
pub(crate) async fn mirror() -> (SocketAddr, Arc<AtomicUsize>) {
    let runs = Arc::<AtomicUsize>::default();
    let target = async |State(runs): State<Arc<AtomicUsize>>, request: Request| {
        runs.fetch_add(1, Ordering::SeqCst);
        format!("got {}", request.uri())
    };
    let app = Router::new().fallback(target).with_state(Arc::clone(&runs));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    (address, runs)
}

/// Sends a head and hears the answer to its end.
pub(crate) async fn ask(gateway: &Gateway, head: &str) -> String {
    heard(
        gateway,
        &format!("{head}host: a\r\nconnection: close\r\n\r\n"),
    )
    .await
}

/// A server that accepts connections, and reads nothing unless the test does.
pub(crate) async fn deaf() -> (SocketAddr, TcpListener) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(16).unwrap();
    (listener.local_addr().unwrap(), listener)
}
