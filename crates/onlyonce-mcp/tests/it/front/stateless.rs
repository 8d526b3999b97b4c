//! Revision 2026-07-28: no sessions, no handshake.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::client::{Asking, Client, Shop, bounds, client};
use crate::support::{KEY, said, text};

const VERSION: &str = "2026-07-28";

fn meta() -> Value {
    json!({"io.modelcontextprotocol/protocolVersion": VERSION, "progressToken": 1})
}

/// A request of this revision, with what is repeated in its headers.
fn ask(client: &Client, method: &'static str, mut params: Value) -> Asking {
    params["_meta"] = meta();
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let asking = client.post(&message);
    let asking = asking.header("mcp-protocol-version", VERSION);
    let asking = asking.header("mcp-method", method);
    match params["name"].as_str() {
        Some(name) => asking.header("mcp-name", name),
        None => asking,
    }
}

fn order(client: &Client, arguments: Value) -> Asking {
    ask(
        client,
        "tools/call",
        json!({"name": "order", "arguments": arguments}),
    )
}

#[tokio::test]
async fn requests_of_one_caller_share_a_server_and_none_hears_of_another() {
    let mut shop = Shop::open(bounds()).await;
    let ada = shop.without_session(client("ada"));

    let one = order(&ada, json!({"item": "tea"})).start();
    let mut server = shop.server().await;
    let asked_one = server.hear_call().await;
    let two = order(&ada, json!({"item": "cake"})).start();
    let asked_two = server.hear_call().await;
    let token = &asked_two["params"]["_meta"]["progressToken"];
    let params = json!({"progressToken": token, "progress": 1});
    let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
    server.end.say(&progress).await;
    server.answer(&asked_two, text("cake")).await;
    server.answer(&asked_one, text("tea")).await;
    let one = one.await.unwrap();
    let two = two.await.unwrap().messages().await;

    assert_eq!(one.session, None);
    let one = one.answer().await;
    assert_eq!((said(&one), &one["id"]), ("tea", &json!(1)));
    assert_eq!(two.len(), 2, "{two:?}");
    assert_eq!(two[0]["params"]["progressToken"], 1, "{two:?}");
    assert_eq!((said(&two[1]), &two[1]["id"]), ("cake", &json!(1)));
}

#[tokio::test]
async fn callers_have_servers_and_keys_of_their_own() {
    let mut shop = Shop::open(bounds()).await;
    let keyed = || json!({"item": "tea", "idempotencyKey": KEY});
    let (ada, bob) = (
        shop.without_session(client("ada")),
        shop.without_session(client("bob")),
    );

    let asking = order(&ada, keyed()).start();
    let mut adas = shop.server().await;
    adas.order(text("order 1")).await;
    asking.await.unwrap();
    let asking = order(&bob, keyed()).start();
    let mut bobs = shop.server().await;
    bobs.order(text("order 2")).await;
    let second = asking.await.unwrap().answer().await;
    let again = order(&ada, keyed()).send().await.answer().await;

    assert_eq!((said(&second), said(&again)), ("order 2", "order 1"));
    adas.heard_no_more(ask(&ada, "ping", json!({}))).await;
}

#[tokio::test]
async fn a_closed_stream_cancels_a_call_without_a_key_and_no_other() {
    let mut shop = Shop::open(bounds()).await;
    let ada = shop.without_session(client("ada"));

    let keyed = || order(&ada, json!({"item": "tea", "idempotencyKey": KEY}));
    let leaving = keyed().start();
    let mut server = shop.server().await;
    let asked_keyed = server.hear_call().await;
    leaving.abort();
    let leaving = order(&ada, json!({"item": "cake"})).start();
    let asked_bare = server.hear_call().await;
    leaving.abort();
    let cancelled = server.end.hear().await;
    server.answer(&asked_keyed, text("order 17")).await;
    let retry = keyed().send().await.answer().await;

    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], asked_bare["id"]);
    assert_eq!(said(&retry), "order 17");
    server.heard_no_more(ask(&ada, "ping", json!({}))).await;
}

#[tokio::test]
async fn headers_must_say_what_the_message_says() {
    let mut shop = Shop::open(bounds()).await;
    let ada = shop.without_session(client("ada"));
    let tea = || order(&ada, json!({"item": "tea"}));
    let encoded = tea().header("mcp-name", "=?base64?b3JkZXI=?=").start();
    let mut server = shop.server().await;
    server.order(text("order 17")).await;
    assert_eq!(encoded.await.unwrap().status, StatusCode::OK);

    for asking in [
        tea().header("mcp-name", "other"),
        tea().header("mcp-method", "tools/list"),
        tea().header("mcp-protocol-version", "2026-08-01"),
    ] {
        let heard = asking.send().await;
        assert_eq!(heard.status, StatusCode::BAD_REQUEST);
        assert_eq!(heard.answer().await["error"]["code"], -32020);
    }
    server.heard_no_more(ask(&ada, "ping", json!({}))).await;
}

#[tokio::test]
async fn arguments_that_a_tool_wants_in_headers_must_be_there() {
    let mut shop = Shop::open(bounds()).await;
    let ada = shop.without_session(client("ada"));
    let ship = || {
        let arguments = json!({"region": "süd", "idempotencyKey": KEY});
        let params = json!({"name": "ship", "arguments": arguments});
        ask(&ada, "tools/call", params)
    };

    let asking = ship()
        .header("mcp-param-region", "=?base64?c8O8ZA==?=")
        .start();
    let mut server = shop.server().await;
    let listed = server.end.hear().await;
    let property = json!({"type": "string", "x-mcp-header": "Region"});
    let schema = json!({"type": "object", "properties": {"region": property}});
    let tools = json!([{"name": "ship", "inputSchema": schema}]);
    server.answer(&listed, json!({"tools": tools})).await;
    let asked = server.end.hear().await;
    server.answer(&asked, text("shipped")).await;
    let shipped = asking.await.unwrap().answer().await;
    let missing = ship().send().await;
    let wrong = ship().header("mcp-param-region", "nord").send().await;

    assert_eq!(said(&shipped), "shipped");
    for heard in [missing, wrong] {
        assert_eq!(heard.status, StatusCode::BAD_REQUEST);
        assert_eq!(heard.answer().await["error"]["code"], -32020);
    }
}

#[tokio::test]
async fn an_error_from_before_anything_ran_has_the_status_of_its_kind() {
    let mut shop = Shop::open(bounds()).await;
    let ada = shop.without_session(client("ada"));

    let mut asking = ask(&ada, "made/up", json!({})).start();
    let mut server = shop.server().await;
    for (code, status) in [(-32601, 404), (-32022, 400), (-32000, 200)] {
        let asked = server.end.hear().await;
        let error = json!({"code": code, "message": "no"});
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "error": error});
        server.end.say(answer).await;
        let heard = asking.await.unwrap();
        asking = ask(&ada, "made/up", json!({})).start();

        assert_eq!(heard.status, status, "{code}");
        assert_eq!(heard.answer().await["error"]["code"], code);
    }
}

#[tokio::test]
async fn what_the_revision_does_not_have_is_refused() {
    let mut shop = Shop::open(bounds()).await;
    let ada = shop.without_session(client("ada"));
    let modern = |asking: Asking| asking.header("mcp-protocol-version", VERSION);
    let message = |message: &Value| modern(ada.post(message));

    for (asking, status) in [
        (modern(ada.get()), 405),
        (modern(ada.request(Method::DELETE, None)), 405),
        (modern(ada.text("[]")), 400),
        (
            message(&json!({"jsonrpc": "2.0", "id": 1, "result": {}})),
            400,
        ),
        (
            message(&json!({"jsonrpc": "2.0", "method": "notifications/x"})),
            202,
        ),
    ] {
        let what = format!("{asking:?}");
        assert_eq!(asking.send().await.status, status, "{what}");
    }
    let asking = ask(&ada, "server/discover", json!({})).start();
    let mut server = shop.server().await;
    let asked = server.end.hear().await;
    let question = json!({"jsonrpc": "2.0", "id": 9, "method": "roots/list"});
    server.end.say(&question).await;
    let refused = server.end.hear().await;
    server.answer(&asked, json!({})).await;

    assert_eq!(
        (&refused["id"], &refused["error"]["code"]),
        (&json!(9), &json!(-32601))
    );
    assert_eq!(asking.await.unwrap().status, StatusCode::OK);
}
