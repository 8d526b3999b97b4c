//! A server whose tools change while the gateway knows them: what it says of that counts at once, wherever it is said.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::support::gateway;

const ROUTE: &str = "[[route]]\nmatch = \"* /mcp\"\nprotocol = \"mcp\"\n";
const CHANGED: &str =
    "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications\\/tools\\/list_changed\"}\n\n";

/// It has a tool that only reads until that changes, and one that always acts.
#[derive(Default)]
struct Server {
    acts: AtomicBool,
    runs: AtomicUsize,
    /// A request named `say` is answered on a stream with this before.
    says: Mutex<String>,
    listeners: Mutex<Vec<mpsc::UnboundedSender<String>>>,
}

impl Server {
    async fn start() -> (SocketAddr, Arc<Self>) {
        let server = Arc::<Self>::default();
        let app = Router::new().route("/mcp", any(serve));
        let app = app.with_state(Arc::clone(&server));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        (address, server)
    }

    fn listened(&self) -> Response {
        let (sender, heard) = mpsc::unbounded_channel();
        self.listeners.lock().unwrap().push(sender);
        let pieces = futures_util::stream::unfold(heard, |mut heard| async move {
            let piece: String = heard.recv().await?;
            Some((Ok::<_, Infallible>(Bytes::from(piece)), heard))
        });
        events(Body::from_stream(pieces))
    }
}

fn events(body: impl Into<Body>) -> Response {
    ([("content-type", "text/event-stream")], body.into()).into_response()
}

async fn serve(State(server): State<Arc<Server>>, request: Request) -> Response {
    if request.method() == Method::GET {
        return server.listened();
    }
    let body = axum::body::to_bytes(request.into_body(), usize::MAX)
        .await
        .unwrap();
    let message: Value = serde_json::from_slice(&body).unwrap();
    let answer = |result: Value| json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    match message["method"].as_str() {
        Some("tools/list") => {
            let hints = json!({"readOnlyHint": !server.acts.load(Ordering::SeqCst)});
            let tool =
                json!({"name": "act", "inputSchema": {"type": "object"}, "annotations": hints});
            let other = json!({"name": "pay", "inputSchema": {"type": "object"}});
            axum::Json(answer(json!({"tools": [tool, other]}))).into_response()
        }
        Some("tools/call") => {
            let run = server.runs.fetch_add(1, Ordering::SeqCst) + 1;
            let answer =
                answer(json!({"content": [{"type": "text", "text": format!("run {run}")}]}));
            let says = server.says.lock().unwrap().clone();
            events(format!("{says}data: {answer}\n\n"))
        }
        Some("say") => {
            let says = server.says.lock().unwrap().clone();
            events(format!("{says}data: {}\n\n", answer(json!({}))))
        }
        _ => StatusCode::ACCEPTED.into_response(),
    }
}

struct Client {
    url: String,
    http: reqwest::Client,
}

impl Client {
    async fn say(&self, method: &str, params: Value) -> String {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let request = self
            .http
            .post(&self.url)
            .header("content-type", "application/json");
        let accept = "application/json, text/event-stream";
        let answer = request
            .header("accept", accept)
            .body(message.to_string())
            .send()
            .await;
        answer.unwrap().text().await.unwrap()
    }

    async fn act(&self, key: &str) {
        let arguments = json!({"n": 1, "idempotencyKey": key});
        let answer = self
            .say("tools/call", json!({"name": "act", "arguments": arguments}))
            .await;
        assert!(answer.contains("run "), "{answer}");
    }
}

/// Says that the tools have changed in one way, and returns how often the tool ran for two calls with one key after that.
async fn runs_after<W: Future<Output = ()>>(
    saying: impl FnOnce(Arc<Server>, Client) -> W,
) -> usize {
    let (address, server) = Server::start().await;
    let gateway = gateway(address, ROUTE).await;
    let url = format!("http://{}/mcp", gateway.address());
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let client = Client { url, http };
    for _ in 0..2 {
        client.act("before").await;
    }
    assert_eq!(server.runs.load(Ordering::SeqCst), 2, "it only reads");

    server.acts.store(true, Ordering::SeqCst);
    let talker = Client {
        url: client.url.clone(),
        http: client.http.clone(),
    };
    saying(Arc::clone(&server), talker).await;
    server.says.lock().unwrap().clear();
    for _ in 0..2 {
        client.act("after").await;
    }
    let runs = server.runs.load(Ordering::SeqCst);
    server.listeners.lock().unwrap().clear();
    gateway.drain().await;
    runs
}

#[tokio::test]
async fn a_change_that_is_told_on_the_stream_of_the_server_counts_at_once() {
    let runs = runs_after(|server, client| async move {
        let accept = ("accept", "text/event-stream");
        let listening = client.http.get(&client.url).header(accept.0, accept.1);
        let mut listening = listening.send().await.unwrap();
        let filler = format!("data: {}\n\n", "x".repeat(100_000));
        for piece in [&filler, &CHANGED[..30], &CHANGED[30..]] {
            let listeners = server.listeners.lock().unwrap();
            listeners[0].send(piece.to_owned()).unwrap();
        }
        let mut heard = Vec::new();
        while heard.len() < filler.len() + CHANGED.len() {
            heard.extend(listening.chunk().await.unwrap().unwrap());
        }
        assert_eq!(
            heard,
            format!("{filler}{CHANGED}").into_bytes(),
            "it passes as it came"
        );
    });

    assert_eq!(runs.await, 3);
}

#[tokio::test]
async fn a_change_that_is_told_before_an_answer_counts_at_once() {
    let of_any_request = runs_after(|server, client| async move {
        *server.says.lock().unwrap() = CHANGED.to_owned();
        let heard = client.say("say", json!({})).await;
        assert!(heard.starts_with(CHANGED), "it passes as it came");
    });
    assert_eq!(of_any_request.await, 3);

    let of_a_call_without_a_key = runs_after(|server, client| async move {
        *server.says.lock().unwrap() = CHANGED.to_owned();
        client.say("tools/call", json!({"name": "act"})).await;
    });
    assert_eq!(of_a_call_without_a_key.await, 4);

    let of_a_call_with_a_key = runs_after(|server, client| async move {
        *server.says.lock().unwrap() = CHANGED.to_owned();
        let call = json!({"name": "pay", "arguments": {"idempotencyKey": "of-another"}});
        client.say("tools/call", call).await;
    });
    assert_eq!(of_a_call_with_a_key.await, 4);
}
