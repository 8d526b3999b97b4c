//! Both ends of a proxy, line by line.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Engine, MemoryStore};
use onlyonce_mcp::{Ended, Proxy, Rules};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, duplex,
    split,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Far more than anything takes; nothing depends on how long.
const HEAR_MAX: Duration = Duration::from_secs(60);
const PIPE_BYTES: usize = 64 * 1024;

/// One end of a line.
pub(crate) struct End {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
}

impl End {
    pub(crate) fn new(stream: DuplexStream) -> Self {
        let (reader, writer) = split(stream);
        Self {
            lines: BufReader::new(reader).lines(),
            writer,
        }
    }

    pub(crate) async fn say(&mut self, message: impl ToString) {
        let line = message.to_string() + "\n";
        self.writer.write_all(line.as_bytes()).await.unwrap();
    }

    /// Says a line that need not be text.
    pub(crate) async fn say_bytes(&mut self, line: &[u8]) {
        self.writer.write_all(line).await.unwrap();
        self.writer.write_all(b"\n").await.unwrap();
    }

    /// The next line, as it is; nothing if the other side has closed.
    pub(crate) async fn line(&mut self) -> Option<String> {
        let line = timeout(HEAR_MAX, self.lines.next_line()).await;
        line.expect("something is said").unwrap()
    }

    pub(crate) async fn hear(&mut self) -> Value {
        let line = self.line().await.expect("the line is open");
        serde_json::from_str(&line).unwrap()
    }

    /// Closes our side; the other may go on.
    pub(crate) async fn hang_up(&mut self) {
        self.writer.shutdown().await.unwrap();
    }
}

/// A proxy with both its ends.
pub(crate) struct Between {
    pub(crate) client: End,
    pub(crate) server: End,
    pub(crate) running: JoinHandle<std::io::Result<Ended>>,
    pub(crate) stop: oneshot::Sender<()>,
}

impl Between {
    /// The server gets a call of `tool` and answers it.
    pub(crate) async fn serve(&mut self, tool: &str, result: Value) -> Value {
        let asked = self.server.hear().await;
        assert_eq!(asked["method"], "tools/call", "{asked}");
        assert_eq!(asked["params"]["name"], tool, "{asked}");
        let id = &asked["id"];
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": result});
        self.server.say(answer).await;
        asked
    }

    /// The client lists the tools, so that the proxy knows them.
    pub(crate) async fn list(&mut self, tools: Value) -> Value {
        self.client
            .say(json!({"jsonrpc": "2.0", "id": "list", "method": "tools/list"}))
            .await;
        let asked = self.server.hear().await;
        assert_eq!(asked["method"], "tools/list", "{asked}");
        let result = json!({"tools": tools});
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
        self.server.say(answer).await;
        self.client.hear().await
    }

    /// Nothing has reached the server but what the test has heard there.
    pub(crate) async fn server_heard_no_more(&mut self) {
        let ping = json!({"jsonrpc": "2.0", "id": "ping", "method": "ping"});
        self.client.say(&ping).await;
        assert_eq!(self.server.hear().await, ping);
    }

    /// Nothing has reached the client but what the test has heard there.
    pub(crate) async fn client_heard_no_more(&mut self) {
        let said = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {}});
        self.server.say(&said).await;
        assert_eq!(self.client.hear().await, said);
    }
}

pub(crate) fn start(engine: &Engine, rules: Rules) -> Between {
    let (client, near_client) = duplex(PIPE_BYTES);
    let (server, near_server) = duplex(PIPE_BYTES);
    let (stop, stopped) = oneshot::channel();
    let proxy = Proxy::new(engine.clone(), rules);
    let running = tokio::spawn(async move {
        let stopped = async {
            if stopped.await.is_err() {
                std::future::pending().await
            }
        };
        proxy
            .run(split(near_client), split(near_server), stopped)
            .await
    });
    Between {
        client: End::new(client),
        server: End::new(server),
        running,
        stop,
    }
}

pub(crate) fn rules() -> Rules {
    Rules::new("shop")
}

pub(crate) async fn engine() -> Engine {
    on(&Arc::new(MemoryStore::new())).await
}

/// An engine of its own on a store that outlives it: a process, as far as the store can tell.
pub(crate) async fn on(store: &Arc<MemoryStore>) -> Engine {
    Engine::open(Arc::clone(store)).await.unwrap()
}

/// A proxy that knows the tool `order`.
pub(crate) async fn shop(engine: &Engine, rules: Rules) -> Between {
    let mut shop = start(engine, rules);
    shop.list(json!([order_tool()])).await;
    shop
}

pub(crate) fn order_tool() -> Value {
    json!({
        "name": "order",
        "description": "Orders an item.",
        "inputSchema": {"type": "object", "properties": {"item": {"type": "string"}}},
    })
}

pub(crate) fn order(id: impl Into<Value>, key: &str, item: &str) -> Value {
    call(id, json!({"item": item, "idempotencyKey": key}))
}

pub(crate) fn call(id: impl Into<Value>, arguments: Value) -> Value {
    let id: Value = id.into();
    let params = json!({"name": "order", "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

pub(crate) fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// What a tool said to the model.
pub(crate) fn said(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap()
}

/// Why the proxy did not run a call.
pub(crate) fn refused(answer: &Value) -> &Value {
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    &answer["result"]["_meta"]["onlyonce/refused"]["reason"]
}

pub(crate) fn is_replayed(answer: &Value) -> bool {
    answer["result"]["_meta"]["onlyonce/replayed"] == true
}

pub(crate) const KEY: &str = "idem_0190a5c4-3f6e-4c1b-9a57-2f0d8f6f1c11";
