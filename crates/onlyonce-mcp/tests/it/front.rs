//! Clients over HTTP before servers on pipes, message by message.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use self::client::{Client, Heard, Shop, bounds, client};
use crate::support::{KEY, call, order, refused, said, text};

mod bounds;
mod client;
mod settled;
mod stateless;

const CANCELLED: &str = "notifications/cancelled";

fn cancel(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "method": CANCELLED, "params": {"requestId": id}})
}

fn ping(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "ping"})
}

#[tokio::test]
async fn a_session_has_a_server_of_its_own_and_a_key_runs_once_in_all_of_them() {
    let mut shop = Shop::open(bounds()).await;
    let (ada, mut first) = shop.begin(client("ada")).await;
    let (again, mut second) = shop.begin(client("ada")).await;

    let asking = ada.post(&order(7, KEY, "tea")).start();
    let asked = first.order(text("order 17")).await;
    let answer = asking.await.unwrap().answer().await;
    let repeated = again.post(&order("x", KEY, "tea")).send().await;
    let repeated = repeated.answer().await;

    assert!(asked["params"]["arguments"].get("idempotencyKey").is_none());
    assert_eq!((said(&answer), &answer["id"]), ("order 17", &json!(7)));
    assert_eq!(
        (said(&repeated), &repeated["id"]),
        ("order 17", &json!("x"))
    );
    second.heard_no_more(again.ping()).await;
}

#[tokio::test]
async fn callers_are_kept_apart() {
    let mut shop = Shop::open(bounds()).await;
    let (ada, mut adas) = shop.begin(client("ada")).await;
    let (bob, mut bobs) = shop.begin(client("bob")).await;

    let asking = ada.post(&order(1, KEY, "tea")).start();
    adas.order(text("order 1")).await;
    asking.await.unwrap();
    let asking = bob.post(&order(1, KEY, "tea")).start();
    bobs.order(text("order 2")).await;
    let answer = asking.await.unwrap().answer().await;
    let stolen = bob.in_session_of(&ada);

    assert_eq!(said(&answer), "order 2");
    for method in [Method::GET, Method::POST, Method::DELETE] {
        let heard = stolen.request(method, Some(&ping(1))).send().await;
        assert_eq!(heard.status, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn a_stream_that_breaks_off_stops_no_call_and_is_read_on() {
    let mut shop = Shop::open(bounds()).await;
    let (ada, mut server) = shop.begin(client("ada")).await;
    let mut bare = call(5, json!({"item": "tea"}));
    bare["params"]["_meta"] = json!({"progressToken": "p"});

    let mut stream = ada.post(&bare).send().await;
    let (primer, nothing) = stream.event().await.unwrap();
    let asked = server.hear_call().await;
    let token = &asked["params"]["_meta"]["progressToken"];
    let params = json!({"progressToken": token, "progress": 1});
    let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
    server.end.say(&progress).await;
    let (seen, progress) = stream.event().await.unwrap();
    drop(stream);
    server.answer(&asked, text("order 17")).await;
    let on = ada.get().header("last-event-id", &seen).send().await;
    let on = on.messages().await;
    let all = ada.get().header("last-event-id", &primer).send().await;
    let all = all.messages().await;

    assert_eq!(nothing, Value::Null);
    assert_eq!(progress["params"]["progressToken"], "p", "{progress}");
    assert_eq!((on.len(), said(&on[0])), (1, "order 17"), "{on:?}");
    assert_eq!((all.len(), said(&all[1])), (2, "order 17"), "{all:?}");
    server.heard_no_more(ada.ping()).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_is_cancelled_at_the_server_and_what_it_answers_counts() {
    let mut shop = Shop::open(bounds()).await;
    let (ada, mut server) = shop.begin(client("ada")).await;

    let stream = ada.post(&order(1, KEY, "tea")).send().await;
    let asked = server.hear_call().await;
    let taken = ada.post(&cancel(1)).send().await;
    let cancelled = server.end.hear().await;
    server.answer(&asked, text("order 17")).await;
    let retry = ada.post(&order(2, KEY, "tea")).send().await;

    assert_eq!(taken.status, StatusCode::ACCEPTED);
    assert_eq!(cancelled["method"], CANCELLED);
    assert_eq!(cancelled["params"]["requestId"], asked["id"]);
    assert!(stream.messages().await.is_empty());
    assert_eq!(said(&retry.answer().await), "order 17");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_that_is_not_answered_is_in_doubt() {
    let mut shop = Shop::open(bounds()).await;
    let (ada, mut server) = shop.begin(client("ada")).await;

    let stream = ada.post(&order(1, KEY, "tea")).send().await;
    server.hear_call().await;
    ada.post(&cancel(1)).send().await;
    assert_eq!(server.end.hear().await["method"], CANCELLED);
    let retry = ada.post(&order(2, KEY, "tea")).send().await;

    let retry = retry.answer().await;
    assert_eq!(refused(&retry), "outcome-unknown", "{retry}");
    assert!(stream.messages().await.is_empty());
    server.heard_no_more(ada.ping()).await;
}

#[tokio::test]
async fn a_cancelled_request_without_a_key_is_cancelled_under_its_id_at_the_server() {
    let mut shop = Shop::open(bounds()).await;
    let (ada, mut server) = shop.begin(client("ada")).await;

    let stream = ada.post(&call(1, json!({"item": "tea"}))).send().await;
    let asked = server.hear_call().await;
    ada.post(&cancel(1)).send().await;
    let cancelled = server.end.hear().await;

    assert_eq!(cancelled["params"]["requestId"], asked["id"], "{cancelled}");
    assert!(stream.messages().await.is_empty());
}

#[tokio::test]
async fn a_server_that_dies_leaves_calls_with_a_key_in_doubt_and_answers_the_others() {
    let mut shop = Shop::open(bounds()).await;
    let (ada, mut server) = shop.begin(client("ada")).await;

    let keyed = ada.post(&order(1, KEY, "tea")).send().await;
    server.hear_call().await;
    let bare = ada.post(&call(2, json!({"item": "tea"}))).send().await;
    server.hear_call().await;
    drop(server);
    let (keyed, bare) = (keyed.answer().await, bare.answer().await);
    let gone = ada.post(&ping(3)).send().await;
    let (new, mut server) = shop.begin(client("ada")).await;
    let retry = new.post(&order(4, KEY, "tea")).send().await.answer().await;

    assert_eq!(refused(&keyed), "outcome-unknown", "{keyed}");
    let why = bare["error"]["message"].as_str().unwrap();
    assert!(why.contains("took effect is not known"), "{bare}");
    assert_eq!(bare["id"], 2);
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
    assert_eq!(refused(&retry), "outcome-unknown", "{retry}");
    server.heard_no_more(new.ping()).await;
}

#[tokio::test]
async fn a_session_that_is_ended_lets_its_calls_come_to_their_end() {
    let mut shop = Shop::open(bounds()).await;
    let (ada, mut server) = shop.begin(client("ada")).await;

    let stream = ada.post(&order(1, KEY, "tea")).send().await;
    let asked = server.hear_call().await;
    let ended = ada.delete().send().await;
    let gone = ada.post(&ping(2)).send().await;
    server.answer(&asked, text("order 17")).await;
    let closed = server.end.line().await;
    drop(server);
    let (new, _server) = shop.begin(client("ada")).await;
    let retry = new.post(&order(3, KEY, "tea")).send().await.answer().await;

    assert_eq!(ended.status, StatusCode::NO_CONTENT);
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
    assert_eq!(closed, None);
    assert_eq!(said(&stream.answer().await), "order 17");
    assert_eq!(said(&retry), "order 17");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_nobody_uses_ends() {
    let mut shop = Shop::open(onlyonce_mcp::Bounds {
        idle: Duration::from_secs(30),
        ..bounds()
    })
    .await;
    let (unused, mut server) = shop.begin(client("ada")).await;
    let (used, _other) = shop.begin(client("ada")).await;
    let _reading = used.get().send().await;

    let closed = server.end.line().await;
    drop(server);

    assert_eq!(closed, None);
    assert_eq!(unused.get().send().await.status, StatusCode::NOT_FOUND);
    let still = used.post(&json!({"jsonrpc": "2.0", "method": "notifications/x"}));
    assert_eq!(still.send().await.status, StatusCode::ACCEPTED);
}

#[tokio::test(start_paused = true)]
async fn servers_are_bounded_and_only_the_caller_s_own_makes_room() {
    let mut shop = Shop::open(onlyonce_mcp::Bounds {
        servers_max: 1,
        idle: Duration::from_secs(3600),
        ..bounds()
    })
    .await;
    let (first, server) = shop.begin(client("ada")).await;

    let refused = shop.initialize(client("bob")).send().await;
    let ending = tokio::spawn(server.end_with_its_input());
    let (second, _server) = shop.begin(client("ada")).await;
    ending.await.unwrap();

    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(first.get().send().await.status, StatusCode::NOT_FOUND);
    assert_eq!(second.get().send().await.status, StatusCode::OK);
}

#[tokio::test]
async fn what_belongs_to_no_request_is_said_on_one_stream_and_waits_for_it() {
    let mut shop = Shop::open(bounds()).await;
    let (ada, mut server) = shop.begin(client("ada")).await;
    let question = json!({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {}});
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});

    server.end.say(&changed).await;
    let mut standing = ada.get().send().await;
    let heard = standing.message().await;
    let mut running = ada.post(&order(1, KEY, "tea")).send().await;
    let asked = server.hear_call().await;
    server.end.say(&question).await;
    let put = standing.message().await;
    drop(standing);
    server.end.say(&question).await;
    let put_again = running.message().await;
    let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {"action": "accept"}});
    let taken = ada.post(&answer).send().await;
    let told = server.end.hear().await;
    server.answer(&asked, text("order 17")).await;

    assert_eq!(heard, changed);
    assert_eq!((put, put_again), (question.clone(), question));
    assert_eq!((taken.status, told), (StatusCode::ACCEPTED, answer));
    assert_eq!(said(&running.answer().await), "order 17");
}

#[tokio::test]
async fn requests_that_use_one_id_get_each_its_own_answer() {
    let mut shop = Shop::open(bounds()).await;
    let (ada, mut server) = shop.begin(client("ada")).await;

    let one = ada.post(&call(1, json!({"item": "tea"}))).send().await;
    let asked_one = server.hear_call().await;
    let two = ada.post(&call(1, json!({"item": "cake"}))).send().await;
    let asked_two = server.hear_call().await;
    server.answer(&asked_two, text("cake")).await;
    server.answer(&asked_one, text("tea")).await;

    assert_eq!(said(&one.answer().await), "tea");
    assert_eq!(said(&two.answer().await), "cake");
}

#[tokio::test]
async fn a_key_in_the_header_counts() {
    let mut shop = Shop::open(bounds()).await;
    let (ada, mut server) = shop.begin(client("ada")).await;
    let bare = call(1, json!({"item": "tea"}));
    let with = |key: &str| ada.post(&bare).header("idempotency-key", key);

    let asking = with("\"in-header\"").start();
    server.order(text("order 17")).await;
    asking.await.unwrap();
    let retry = with("in-header").send().await.answer().await;
    let bad = with("\"in-header").send().await;

    assert_eq!(said(&retry), "order 17");
    assert_eq!(bad.status, StatusCode::BAD_REQUEST);
    server.heard_no_more(ada.ping()).await;
}

#[tokio::test]
async fn a_batch_runs_each_of_its_calls_once_where_the_revision_has_batches() {
    let mut shop = Shop::open(bounds()).await;
    let (old, mut server) = shop.begin(client("ada").of("2025-03-26")).await;
    let (new, _other) = shop.begin(client("ada")).await;
    let batch = json!([order(1, KEY, "tea"), ping(2), order(3, KEY, "tea")]);

    let asking = old.post(&batch).taking("application/json").start();
    for _ in 0..2 {
        let asked = server.hear_request().await;
        let result = match asked["method"].as_str() {
            Some("ping") => json!({}),
            _ => text("order 17"),
        };
        server.answer(&asked, result).await;
    }
    let answers: Value = serde_json::from_str(&asking.await.unwrap().whole().await).unwrap();
    let refused = new.post(&batch).send().await;

    let mut answers = answers.as_array().unwrap().clone();
    answers.sort_by_key(|answer| answer["id"].as_u64());
    assert_eq!(answers[1]["id"], 2, "{answers:?}");
    assert_eq!(
        (said(&answers[0]), said(&answers[2])),
        ("order 17", "order 17")
    );
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    server.heard_no_more(old.ping()).await;
}

#[tokio::test]
async fn requests_that_are_none_of_the_protocol_s_are_refused() {
    let mut shop = Shop::open(bounds()).await;
    let (ada, mut server) = shop.begin(client("ada")).await;
    let said = ping(1);
    let version = |version: &str| ada.post(&said).header("mcp-protocol-version", version);
    let unnamed = shop.without_session(client("ada")).post(&said);
    let no_text = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"x\":\"\xff\"}";

    for (request, status) in [
        (version("2025-06-18"), StatusCode::OK),
        (version("1999-01-01"), StatusCode::BAD_REQUEST),
        (unnamed, StatusCode::BAD_REQUEST),
        (ada.post(&json!("no message")), StatusCode::BAD_REQUEST),
        (ada.text("{\"id\": NaN"), StatusCode::BAD_REQUEST),
        (ada.text("[]"), StatusCode::BAD_REQUEST),
        (ada.text(&no_text[..]), StatusCode::BAD_REQUEST),
        (
            ada.post(&said).taking("text/html"),
            StatusCode::NOT_ACCEPTABLE,
        ),
        (
            ada.get().taking("application/json"),
            StatusCode::NOT_ACCEPTABLE,
        ),
        (
            ada.get().header("last-event-id", "77-1"),
            StatusCode::BAD_REQUEST,
        ),
        (
            ada.get().header("last-event-id", "0-18446744073709551615"),
            StatusCode::OK,
        ),
        (
            ada.request(Method::PUT, None),
            StatusCode::METHOD_NOT_ALLOWED,
        ),
        (
            ada.post(&said).header("content-type", "text/plain"),
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ),
    ] {
        let what = format!("{request:?}");
        assert_eq!(request.send().await.status, status, "{what}");
    }
    assert_eq!(server.end.hear().await["method"], "ping");
    server.heard_no_more(ada.ping()).await;
}

#[tokio::test]
async fn a_server_that_does_not_begin_or_cannot_be_started_is_no_session() {
    let mut shop = Shop::open(bounds()).await;

    let beginning = shop.initialize(client("ada")).start();
    let mut server = shop.server().await;
    let asked = server.hear_request().await;
    let error = json!({"code": -32602, "message": "no"});
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "error": error});
    server.end.say(answer).await;
    let refused: Heard = beginning.await.unwrap();
    shop.cannot_start();
    let broken = shop.initialize(client("ada")).send().await;

    assert_eq!((refused.status, &refused.session), (StatusCode::OK, &None));
    assert_eq!(refused.answer().await["error"]["message"], "no");
    assert_eq!(server.end.line().await, None);
    assert_eq!(broken.status, StatusCode::BAD_GATEWAY);
}

#[tokio::test(start_paused = true)]
async fn a_front_that_is_told_to_stop_ends_its_servers_and_begins_nothing() {
    let mut shop = Shop::open(bounds()).await;
    let (ada, mut server) = shop.begin(client("ada")).await;
    let stream = ada.post(&order(1, KEY, "tea")).send().await;
    server.hear_call().await;

    let stopping = tokio::spawn({
        let front = shop.front.clone();
        async move { front.shutdown().await }
    });
    let closed = server.end.line().await;
    drop(server);
    stopping.await.unwrap();
    let refused_now = shop.initialize(client("ada")).send().await;

    assert_eq!(closed, None);
    assert_eq!(refused(&stream.answer().await), "outcome-unknown");
    assert_eq!(refused_now.status, StatusCode::SERVICE_UNAVAILABLE);
}

/// Sessions and keys of a client without a credential are those of every other one without.
#[tokio::test]
async fn a_client_without_a_credential_has_a_session_too() {
    let mut shop = Shop::open(bounds()).await;
    let (nobody, mut server) = shop.begin(Client::default()).await;

    let asking = nobody.post(&order(1, KEY, "tea")).start();
    server.order(text("order 17")).await;

    assert_eq!(said(&asking.await.unwrap().answer().await), "order 17");
}
