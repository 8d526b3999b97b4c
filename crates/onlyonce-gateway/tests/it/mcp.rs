//! An MCP endpoint behind the gateway, message by message: a server that counts, and clients that send what
//! no SDK would.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use http::StatusCode;
use onlyonce_gateway::{Gateway, config};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::support::gateway;

mod cancelled;

const RETRIES_MAX: usize = 500;
const ROUTE: &str = "[[route]]\nmatch = \"* /mcp\"\nprotocol = \"mcp\"\n";

/// How the server answers calls.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Answers {
    #[default]
    Json,
    /// Progress, then the answer.
    Events,
    /// An event with an id, and the connection ends; the answer comes to whoever goes on after it.
    Resumed,
    /// Nothing: the stream ends.
    Nothing,
    /// As JSON, once the test says so.
    Gated,
    /// As an event once the call is cancelled, or the stream ends then without one.
    Cancelled {
        is_answered: bool,
    },
    Status(u16),
    /// The tool acts and fails; its error comes with this status.
    Failed(u16),
}

#[derive(Default)]
struct Server {
    runs: AtomicUsize,
    gate: Notify,
    answers: Mutex<Answers>,
    /// What arrived: methods of HTTP and JSON-RPC, and whole bodies.
    heard: Mutex<Vec<String>>,
}

impl Server {
    async fn start() -> (SocketAddr, Arc<Self>) {
        let server = Arc::<Self>::default();
        let app = Router::new()
            .route("/mcp", any(serve))
            .with_state(Arc::clone(&server));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        (address, server)
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    fn answers(&self, answers: Answers) {
        *self.answers.lock().unwrap() = answers;
    }

    fn heard(&self) -> Vec<String> {
        std::mem::take(&mut *self.heard.lock().unwrap())
    }
}

fn events(text: String) -> Response {
    ([("content-type", "text/event-stream")], text).into_response()
}

fn result(id: &Value, number: usize) -> Value {
    let content = json!([{"type": "text", "text": format!("run {number}")}]);
    json!({"jsonrpc": "2.0", "id": id, "result": {"content": content}})
}

async fn serve(State(server): State<Arc<Server>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let text = String::from_utf8_lossy(&body).into_owned();
    let heard = format!("{} {text}", parts.method);
    server.heard.lock().unwrap().push(heard);
    if parts.headers.contains_key("last-event-id") {
        return events(format!("data: {}\n\n", result(&json!(7), server.runs())));
    }
    let message: Value = serde_json::from_str(&text).unwrap_or_default();
    if let Some(batch) = message.as_array() {
        let requests = batch.iter().filter(|it| it.get("id").is_some());
        let answers = requests.map(|it| json!({"jsonrpc": "2.0", "id": it["id"], "result": {}}));
        return axum::Json(answers.collect::<Vec<_>>()).into_response();
    }
    if message["method"] == "ping" {
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": {}});
        return axum::Json(answer).into_response();
    }
    if message["method"] == "tools/list" {
        let tool = json!({"name": "act", "inputSchema": {"type": "object"}});
        let result = json!({"tools": [tool]});
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        return axum::Json(answer).into_response();
    }
    if message["method"] == "notifications/cancelled" {
        server.gate.notify_one();
    }
    if message["method"] != "tools/call" {
        return StatusCode::ACCEPTED.into_response();
    }
    let answers = *server.answers.lock().unwrap();
    if let Answers::Status(status) = answers {
        return StatusCode::from_u16(status).unwrap().into_response();
    }
    let number = server.runs.fetch_add(1, Ordering::SeqCst) + 1;
    let answer = result(&message["id"], number);
    if let Answers::Gated | Answers::Cancelled { .. } = answers {
        server.gate.notified().await;
    }
    match answers {
        Answers::Json | Answers::Gated | Answers::Status(_) => axum::Json(answer).into_response(),
        Answers::Failed(status) => {
            let error = json!({"code": -32001, "message": format!("no item {number}")});
            let answer = json!({"jsonrpc": "2.0", "id": message["id"], "error": error});
            (StatusCode::from_u16(status).unwrap(), axum::Json(answer)).into_response()
        }
        Answers::Events => {
            let progress =
                json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}});
            events(format!(
                ": hello\r\n\r\ndata: {progress}\r\n\r\nevent: message\ndata: {answer}\n\n"
            ))
        }
        Answers::Resumed => events("id: 1\nretry: 10\ndata:\n\n".into()),
        Answers::Cancelled { is_answered: true } => events(format!("data: {answer}\n\n")),
        Answers::Nothing | Answers::Cancelled { is_answered: false } => events(String::new()),
    }
}

fn act(id: impl Into<Value>, key: &str) -> Value {
    call(id, json!({"n": 1, "idempotencyKey": key}))
}

fn call(id: impl Into<Value>, arguments: Value) -> Value {
    let id: Value = id.into();
    let params = json!({"name": "act", "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

struct Client {
    url: String,
    http: reqwest::Client,
    accept: &'static str,
}

impl Client {
    fn of(address: SocketAddr) -> Self {
        Self {
            url: format!("http://{address}/mcp"),
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            accept: "application/json, text/event-stream",
        }
    }

    fn post(&self, body: impl ToString) -> reqwest::RequestBuilder {
        self.http
            .post(&self.url)
            .header("accept", self.accept)
            .header("content-type", "application/json")
            .body(body.to_string())
    }

    async fn say(&self, message: &Value) -> Value {
        let text = self
            .post(message)
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap();
        let last = text.rsplit("data: ").next().unwrap();
        serde_json::from_str(last.trim()).unwrap_or_else(|_| panic!("{text}"))
    }
}

fn refused(answer: &Value) -> &Value {
    &answer["result"]["_meta"]["onlyonce/refused"]["reason"]
}

#[tokio::test]
async fn a_replay_has_its_callers_own_id_and_form() {
    for answers in [Answers::Json, Answers::Events] {
        let (address, server) = Server::start().await;
        server.answers(answers);
        let gateway = gateway(address, ROUTE).await;
        let mut client = Client::of(gateway.address());

        let first = client.say(&act(1, "key-1")).await;
        let again = client.say(&act("two", "key-1")).await;
        client.accept = "text/event-stream";
        let in_events = client.post(act(3, "key-1")).send().await.unwrap();

        assert_eq!(first["id"], 1, "{first}");
        assert_eq!(again["id"], "two", "{again}");
        assert_eq!(again["result"]["content"], first["result"]["content"]);
        assert_eq!(
            again["result"]["_meta"]["onlyonce/replayed"], true,
            "{again}"
        );
        assert_eq!(in_events.headers()["content-type"], "text/event-stream");
        assert!(in_events.text().await.unwrap().contains("\"id\":3"));
        assert_eq!(server.runs(), 1);
        let heard = server.heard().join("\n");
        assert!(
            !heard.contains("idempotencyKey") && !heard.contains("key-1"),
            "{heard}"
        );
        gateway.drain().await;
    }
}

#[tokio::test]
async fn everything_that_is_no_call_with_a_key_passes_as_it_came() {
    let (address, server) = Server::start().await;
    let gateway = gateway(address, ROUTE).await;
    let client = Client::of(gateway.address());
    let messages = [
        r#"{"jsonrpc":"2.0", "id":1.50, "method":"made/up","params":{"x": 1e400}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}"#,
        r#"{"jsonrpc":"2.0","id":"s1","result":{"role":"user"}}"#,
        r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"x"}]"#,
        r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"act"}}"#,
        "not json",
    ];

    for message in messages {
        client.post(message).send().await.unwrap();
    }
    client.http.delete(&client.url).send().await.unwrap();
    client.http.get(&client.url).send().await.unwrap();

    let mut expected: Vec<_> = messages.iter().map(|it| format!("POST {it}")).collect();
    expected.extend(["DELETE ".into(), "GET ".into()]);
    assert_eq!(server.heard(), expected);
    gateway.drain().await;
}

#[tokio::test]
async fn a_key_in_the_header_counts_and_arguments_go_before_it() {
    let (address, server) = Server::start().await;
    let gateway = gateway(address, ROUTE).await;
    let client = Client::of(gateway.address());
    let with = |message: Value| {
        client
            .post(message)
            .header("idempotency-key", "\"in-header\"")
    };

    for id in 1..=2 {
        with(call(id, json!({"n": 1}))).send().await.unwrap();
    }
    assert_eq!(server.runs(), 1);
    with(act(3, "in-arguments")).send().await.unwrap();
    client.say(&act(4, "in-arguments")).await;

    assert_eq!(server.runs(), 2);
    gateway.drain().await;
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_taken_up_again_and_one_that_cannot_be_leaves_doubt() {
    let (address, server) = Server::start().await;
    let gateway = gateway(address, ROUTE).await;
    let client = Client::of(gateway.address());

    server.answers(Answers::Resumed);
    let resumed = client.say(&act(7, "resumed")).await;
    server.answers(Answers::Nothing);
    let lost = client.say(&act(8, "lost")).await;
    server.answers(Answers::Json);
    let again = client.say(&act(9, "lost")).await;

    assert_eq!(
        resumed["result"]["content"][0]["text"], "run 1",
        "{resumed}"
    );
    assert_eq!(refused(&lost), "outcome-unknown", "{lost}");
    assert_eq!(refused(&again), "outcome-unknown", "{again}");
    assert_eq!(server.runs(), 2);
    gateway.drain().await;
}

#[tokio::test]
async fn a_server_that_refuses_before_the_tool_is_heard_as_it_is_and_the_key_stays_free() {
    let (address, server) = Server::start().await;
    let gateway = gateway(address, ROUTE).await;
    let client = Client::of(gateway.address());

    for status in [400, 401, 404, 429] {
        server.answers(Answers::Status(status));
        let answer = client.post(act(1, "key-1")).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status);
    }
    server.answers(Answers::Json);
    let ran = client.say(&act(2, "key-1")).await;
    server.answers(Answers::Status(500));
    let broken = client.say(&act(3, "key-2")).await;

    assert_eq!(ran["result"]["content"][0]["text"], "run 1", "{ran}");
    assert_eq!(refused(&broken), "outcome-unknown", "{broken}");
    gateway.drain().await;
}

/// Frameworks map an exception of a tool to a status, also one that is raised after its effect.
#[tokio::test]
async fn an_error_that_answers_the_call_is_its_answer_whatever_the_http_status() {
    let (address, server) = Server::start().await;
    let gateway = gateway(address, ROUTE).await;
    let client = Client::of(gateway.address());
    let statuses = [
        307, 308, 400, 401, 403, 404, 405, 406, 407, 413, 415, 421, 422, 425, 429, 500, 503,
    ];

    for (at, status) in statuses.into_iter().enumerate() {
        server.answers(Answers::Failed(status));
        let key = format!("key-{status}");
        let first = client.say(&act(1, &key)).await;
        let retry = client.say(&act(2, &key)).await;

        assert_eq!(server.runs(), at + 1, "{status}: {first} {retry}");
        let told = format!("no item {}", at + 1);
        assert_eq!(first["error"]["message"], told, "{status}: {first}");
        let again = retry["error"]["message"].as_str().unwrap();
        assert!(again.starts_with(&told), "{status}: {retry}");
    }
    gateway.drain().await;
}

#[tokio::test]
async fn a_web_page_of_an_unknown_origin_is_refused() {
    let (address, server) = Server::start().await;
    let more = format!("{ROUTE}mcp.origins = [\"https://app.example.org\"]\n");
    let gateway = gateway(address, &more).await;
    let client = Client::of(gateway.address());
    let status = async |origin: &'static str| {
        let request = client.post(call(1, json!({}))).header("origin", origin);
        request.send().await.unwrap().status()
    };

    assert_eq!(status("https://evil.example").await, 403);
    assert_eq!(status("null").await, 403);
    assert_eq!(status("http://localhost.evil.example").await, 403);
    assert_eq!(server.runs(), 0);
    assert_eq!(status("https://app.example.org").await, 200);
    assert_eq!(status("http://localhost:5173").await, 200);
    assert_eq!(status("http://[::1]:5173").await, 200);
    gateway.drain().await;
}

/// A browser says no origin when a page reads from its own host, which may point here by now.
#[tokio::test]
async fn a_page_whose_name_was_pointed_here_reads_nothing() {
    let (address, server) = Server::start().await;
    let more = format!("{ROUTE}mcp.origins = [\"https://app.example.org\"]\n");
    let here = gateway(address, &more).await;
    let client = Client::of(here.address());
    let read = async |host: &str| {
        let request = client.http.get(&client.url).header("host", host);
        request.send().await.unwrap().status()
    };

    for foreign in [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "10.0.0.1",
    ] {
        assert_eq!(read(foreign).await, 421, "{foreign}");
    }
    assert_eq!(server.heard(), [""; 0]);
    for known in ["localhost", "127.0.0.1:1", "[::1]:8080", "app.example.org"] {
        assert_eq!(read(known).await, 202, "{known}");
    }

    // Behind something that has names of its own, any is known.
    let front = "[limits]\naddress_header = \"x-real-ip\"\n";
    let behind = gateway(address, &format!("{front}{ROUTE}")).await;
    let client = Client::of(behind.address());
    let request = client
        .http
        .get(&client.url)
        .header("host", "mcp.example.org");
    assert_eq!(request.send().await.unwrap().status(), 202);
}

#[tokio::test]
async fn hostile_messages_are_no_way_around_the_key() {
    let (address, server) = Server::start().await;
    let gateway = gateway(address, ROUTE).await;
    let client = Client::of(gateway.address());
    let nan = act(1, "k").to_string().replace("\"n\":1", "\"n\":NaN");
    let refused = [
        format!("\u{feff}{}", act(1, "k")),
        nan.replace("idempotencyKey", "idempotency\\u004bey"),
        // As UTF-16 has it; what is behind it finds that out by the zeros.
        act(1, "k").to_string().chars().flat_map(|it| [it, '\0']).collect(),
        nan,
        format!("[{}]", act(1, "k").to_string().replace("\"n\":1", "\"n\":NaN")),
        format!("[{}]", vec![act(1, "k").to_string(); 101].join(",")),
        r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"act","arguments":{"idempotencyKey":"k"}}}"#.into(),
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["act",{"idempotencyKey":"k"}]}"#.into(),
    ];

    for message in refused {
        let answer = client.post(&message).send().await.unwrap();
        assert_eq!(answer.status(), 400, "{message}");
    }
    let packed = client.post(act(1, "k")).header("content-encoding", "gzip");
    assert_eq!(packed.send().await.unwrap().status(), 415);
    let large = call(1, json!({"idempotencyKey": "k", "x": "x".repeat(9 << 20)}));
    assert_eq!(client.post(large).send().await.unwrap().status(), 413);
    let mut bytes = act(1, "k")
        .to_string()
        .replace("\"n\":1", "\"n\":\"~\"")
        .into_bytes();
    bytes
        .iter_mut()
        .filter(|it| **it == b'~')
        .for_each(|it| *it = 0xff);
    let no_text = client.post("").body(bytes).send().await.unwrap();
    assert_eq!(no_text.status(), 400);
    let two_keys = client
        .post(call(1, json!({"n": 1})))
        .header("idempotency-key", "one")
        .header("idempotency-key", "two");
    let told = two_keys
        .send()
        .await
        .unwrap()
        .json::<Value>()
        .await
        .unwrap();
    assert_eq!(self::refused(&told), "bad-key");
    assert_eq!(server.runs(), 0);

    let twice = act(1, "k")
        .to_string()
        .replace("\"id\":1", "\"id\":1,\"method\":\"ping\"");
    for _ in 0..2 {
        client.post(&twice).send().await.unwrap();
    }
    assert_eq!(server.runs(), 1);
    gateway.drain().await;
}

/// The answers in an array or a stream, by their ids.
fn answers_in(text: &str) -> Vec<(Value, Value)> {
    let whole = serde_json::from_str::<Vec<Value>>(text);
    let events = || text.lines().filter_map(|line| line.strip_prefix("data: "));
    let messages = whole.unwrap_or_else(|_| {
        let messages = events().map(|event| serde_json::from_str(event).unwrap());
        messages.collect()
    });
    let answers = messages.into_iter().filter(|it| it.get("id").is_some());
    let mut answers: Vec<_> = answers.map(|it| (it["id"].clone(), it)).collect();
    answers.sort_by_key(|(id, _)| id.to_string());
    answers
}

#[tokio::test]
async fn calls_with_a_key_in_a_batch_run_once_each_and_the_rest_goes_on_together() {
    for (answers, accept) in [
        (Answers::Json, "application/json"),
        (Answers::Json, "application/json, text/event-stream"),
        (Answers::Events, "text/event-stream"),
    ] {
        let (address, server) = Server::start().await;
        server.answers(answers);
        let gateway = gateway(address, ROUTE).await;
        let mut client = Client::of(gateway.address());
        client.accept = accept;
        let ping = json!({"jsonrpc": "2.0", "id": 5, "method": "ping"});
        let told = json!({"jsonrpc": "2.0", "method": "notifications/made/up"});
        let batch = json!([act(1, "one"), ping, act(2, "two"), told, act(3, "one")]);

        let first = client.post(&batch).send().await.unwrap();
        let first = answers_in(&first.text().await.unwrap());
        let again = client.post(json!([act(9, "two")])).send().await.unwrap();
        let again = answers_in(&again.text().await.unwrap());

        let ids: Vec<_> = first.iter().map(|(id, _)| id.clone()).collect();
        assert_eq!(ids, [json!(1), json!(2), json!(3), json!(5)], "{accept}");
        let content = |at: usize| first[at].1["result"]["content"].clone();
        assert_eq!(content(0), content(2), "{accept}");
        assert_ne!(content(0), content(1), "{accept}");
        assert_eq!(again.len(), 1, "{accept}");
        assert_eq!(again[0].1["id"], 9, "{accept}");
        assert_eq!(again[0].1["result"]["content"], content(1), "{accept}");
        assert_eq!(server.runs(), 2, "{accept}");
        let heard = server.heard();
        assert!(
            heard.contains(&format!("POST [{ping},{told}]")),
            "{heard:?}"
        );
        assert!(!heard.join("\n").contains("idempotencyKey"), "{heard:?}");
        gateway.drain().await;
    }
}

#[tokio::test]
async fn a_list_of_tools_in_a_batch_offers_the_key() {
    let (address, _server) = Server::start().await;
    let gateway = gateway(address, ROUTE).await;
    let mut client = Client::of(gateway.address());
    client.accept = "application/json";
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});

    let answer = client
        .post(json!([list, act(2, "one")]))
        .send()
        .await
        .unwrap();
    let answers = answers_in(&answer.text().await.unwrap());

    let tool = &answers[0].1["result"]["tools"][0];
    let properties = &tool["inputSchema"]["properties"];
    assert!(properties.get("idempotencyKey").is_some(), "{answers:?}");
    assert_eq!(answers[1].1["result"]["content"][0]["text"], "run 1");
    gateway.drain().await;
}

#[tokio::test]
async fn settings_that_do_not_fit_to_an_endpoint_are_told() {
    let why = |more: &str| {
        let text = format!("upstream = \"http://127.0.0.1:9\"\n[[route]]\n{more}");
        config::read("gateway.toml", &text).unwrap_err().to_string()
    };

    assert!(why("match = \"POST /mcp\"\nprotocol = \"mcp\"\n").contains("* /mcp"));
    assert!(why("match = \"* /mcp\"\nprotocol = \"mcp\"\npass = true\n").contains("`pass`"));
    let observed = why("match = \"* /mcp\"\nprotocol = \"mcp\"\nmode = \"observe\"\n");
    assert!(observed.contains("cannot be observed"), "{observed}");
    assert!(why("match = \"* /mcp\"\nmcp.tools = [\"a\"]\n").contains("protocol"));
    let bad = why("match = \"* /mcp\"\nprotocol = \"mcp\"\nmcp.reconcile = [\"x\"]\n");
    assert!(bad.contains("create_payment=get_payment"), "{bad}");
}

async fn send_large(client: &Client, key: &str, bytes: usize) -> reqwest::Response {
    let arguments = json!({"idempotencyKey": key, "x": "x".repeat(bytes)});
    client.post(call(1, arguments)).send().await.unwrap()
}

/// Sends messages of about this size until the answer has this status; returns that answer. The room of a
/// message may be given back a moment after its answer has arrived.
async fn until(client: &Client, bytes: usize, status: u16) -> reqwest::Response {
    for number in 0..RETRIES_MAX {
        let answer = send_large(client, &format!("{status}-{bytes}-{number}"), bytes).await;
        if answer.status() == status {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no answer had the status {status}");
}

/// Stalls a message until another one is refused for it. The stalled one is itself refused if the other has
/// taken the room just before, so each try is a new one.
async fn refused_beside_a_stalled_one(
    gateway: &Gateway,
    client: &Client,
) -> (TcpStream, reqwest::Response) {
    for number in 0..RETRIES_MAX {
        let mut stalled = TcpStream::connect(gateway.address()).await.unwrap();
        let head = "POST /mcp HTTP/1.1\r\nhost: a\r\ncontent-length: 1500\r\n\r\n";
        stalled.write_all(head.as_bytes()).await.unwrap();
        stalled.write_all(&[b' '; 1_400]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
        let answer = send_large(client, &format!("before-{number}"), 1_000).await;
        if answer.status() == 503 {
            return (stalled, answer);
        }
    }
    panic!("no message was refused beside a stalled one");
}

#[tokio::test]
async fn messages_without_room_are_refused_before_anything_is_claimed_and_room_comes_back() {
    let (address, server) = Server::start().await;
    let little = "[limits]\nbuffered_bytes = 2048\n[rules]\nrequest_bytes_max = 1500\n";
    let gateway = gateway(address, &format!("{little}{ROUTE}")).await;
    let client = Client::of(gateway.address());
    let (stalled, refused) = refused_beside_a_stalled_one(&gateway, &client).await;
    let runs = server.runs();

    assert!(refused.headers().contains_key("retry-after"));
    let problem: Value = refused.json().await.unwrap();
    assert_eq!(problem["type"], "urn:onlyonce:problem:too-much-buffered");
    assert_eq!(problem["retryable"], true);
    until(&client, 100, 200).await;
    assert_eq!(server.runs(), runs + 1);
    drop(stalled);
    until(&client, 1_000, 200).await;
    // However often it is taken, it is given back: by calls, by repetitions and by what passes.
    for _ in 0..5 {
        until(&client, 1_300, 200).await;
        let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "x": "x".repeat(400)});
        let passed = client.post(list).send().await.unwrap();
        assert_eq!(passed.status(), 200);
    }
}

/// A call goes on without its caller, and its message stays in memory.
#[tokio::test]
async fn a_call_whose_caller_left_keeps_its_room_until_it_ends() {
    let (address, server) = Server::start().await;
    server.answers(Answers::Gated);
    let little = "[limits]\nbuffered_bytes = 2048\n[rules]\nrequest_bytes_max = 1500\n";
    let gateway = gateway(address, &format!("{little}{ROUTE}")).await;
    let client = Client::of(gateway.address());
    let arguments = json!({"idempotencyKey": "left", "x": "x".repeat(1_200)});
    let call = client.post(call(1, arguments)).send();
    let leaving = tokio::spawn(call);
    crate::support::eventually(|| server.runs() == 1).await;
    leaving.abort();

    let arguments = json!({"idempotencyKey": "other", "x": "x".repeat(1_200)});
    let refused = client
        .post(self::call(2, arguments))
        .timeout(Duration::from_secs(20))
        .send()
        .await
        .unwrap();
    assert_eq!(refused.status(), 503);

    server.answers(Answers::Json);
    server.gate.notify_one();
    until(&client, 1_200, 200).await;
}

/// What passes without a key is in memory too, until the server has taken it.
#[tokio::test]
async fn a_message_without_a_key_keeps_its_room_until_it_is_written() {
    let (address, deaf) = crate::support::deaf().await;
    let bounds = "[limits]\nbuffered_bytes = 16777216\n[rules]\nrequest_bytes_max = 12000000\n";
    let gateway = gateway(address, &format!("{bounds}{ROUTE}")).await;
    let client = Client::of(gateway.address());
    let large = json!({"jsonrpc": "2.0", "id": 1, "method": "x", "x": "x".repeat(11_000_000)});

    for large in [large.clone(), json!([large])] {
        let passing = tokio::spawn(client.post(&large).send());
        let taken = deaf.accept().await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;

        let second = client.post(&large).timeout(Duration::from_secs(20));
        let second = second
            .send()
            .await
            .expect("it is refused, and does not wait");

        assert_eq!(second.status(), 503);
        passing.abort();
        drop(taken);
        // Nobody waits for this one any more.
        until_room(&client).await;
    }
}

/// Returns once there is room for a message of twelve megabytes.
async fn until_room(client: &Client) {
    for _ in 0..RETRIES_MAX {
        let bad = [&b"\xff"[..], &vec![b' '; 11_500_000]].concat();
        let answer = client
            .http
            .post(&client.url)
            .body(bad)
            .send()
            .await
            .unwrap();
        if answer.status() == 400 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("there is no room");
}
