//! A server on the network whose every HTTP answer is in the test's hands.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use onlyonce_mcp::{AnswerBody, Http, Proxy, Remote, Unanswered};
use serde_json::{Value, json};
use tokio::io::{duplex, split};

use crate::support::{End, KEY, engine, is_replayed, order, order_tool, rules};

/// A server with sessions. A call counts once it was read, whatever it is answered with.
#[derive(Default)]
struct Shop {
    calls: Mutex<Vec<String>>,
    sessions: Mutex<u32>,
    /// How calls are answered; with success after that.
    says: Mutex<VecDeque<Say>>,
}

#[derive(Clone, Copy)]
enum Say {
    /// An error that answers the call, with this status.
    Error(u16),
    /// This status, and an error that answers nothing.
    Refusal(u16),
}

impl Shop {
    fn saying(says: impl IntoIterator<Item = Say>) -> Arc<Self> {
        Arc::new(Self {
            says: Mutex::new(says.into_iter().collect()),
            ..Self::default()
        })
    }

    fn calls(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    fn answer(&self, request: &Request<Bytes>) -> Response<AnswerBody> {
        let status = |status| answer(status, &Value::Null);
        if *request.method() != Method::POST {
            return status(405);
        }
        let message: Value = serde_json::from_slice(request.body()).unwrap();
        let result =
            |result: Value| json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        match message["method"].as_str() {
            Some("initialize") => {
                let mut sessions = self.sessions.lock().unwrap();
                *sessions += 1;
                let begun = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
                let mut answer = answer(200, &result(begun));
                let session = HeaderValue::from(*sessions);
                answer.headers_mut().insert("mcp-session-id", session);
                answer
            }
            Some("tools/list") => answer(200, &result(json!({"tools": [order_tool()]}))),
            Some("tools/call") => {
                let say = self.says.lock().unwrap().pop_front();
                let error = json!({"code": -32001, "message": "no such item"});
                if let Some(Say::Refusal(status)) = say {
                    let refusal = json!({"jsonrpc": "2.0", "id": null, "error": error});
                    return answer(status, &refusal);
                }
                self.calls.lock().unwrap().push(message.to_string());
                if let Some(Say::Error(status)) = say {
                    let error = json!({"jsonrpc": "2.0", "id": message["id"], "error": error});
                    return answer(status, &error);
                }
                let content = json!([{"type": "text", "text": "ordered"}]);
                answer(200, &result(json!({"content": content})))
            }
            _ => status(202),
        }
    }
}

fn answer(status: u16, body: &Value) -> Response<AnswerBody> {
    let text = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {});
    let mut answer = Response::new(body.boxed_unsync());
    *answer.status_mut() = StatusCode::from_u16(status).unwrap();
    let json = HeaderValue::from_static("application/json");
    answer.headers_mut().insert("content-type", json);
    answer
}

struct ToShop(Arc<Shop>);

impl Http for ToShop {
    fn send(
        &self,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<AnswerBody>, Unanswered>> {
        std::future::ready(Ok(self.0.answer(&request))).boxed()
    }
}

/// A client in a session with the shop, which knows its tools.
async fn client(shop: &Arc<Shop>) -> End {
    let (client, near_client) = duplex(64 * 1024);
    let url = "http://shop.test/mcp".parse().unwrap();
    let remote = Remote::new(Arc::new(ToShop(Arc::clone(shop))), url, HeaderMap::new());
    let proxy = Proxy::new(engine().await, rules());
    tokio::spawn(async move {
        let forever = std::future::pending();
        proxy.run_remote(split(near_client), remote, forever).await
    });
    let mut client = End::new(client);
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}});
    let initialize = json!({"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": params});
    client.say(initialize).await;
    client.hear().await;
    client
        .say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        .await;
    client
        .say(json!({"jsonrpc": "2.0", "id": "l", "method": "tools/list"}))
        .await;
    client.hear().await;
    client
}

/// Frameworks map an exception of a tool to a status, also one that is raised after its effect.
#[tokio::test]
async fn an_error_that_answers_the_call_is_its_answer_whatever_the_http_status() {
    for status in [
        307, 308, 400, 401, 403, 404, 405, 406, 407, 413, 415, 421, 422, 425, 429, 500, 503,
    ] {
        let shop = Shop::saying([Say::Error(status), Say::Error(status)]);
        let mut client = client(&shop).await;

        client.say(order(1, KEY, "tea")).await;
        let first = client.hear().await;
        client.say(order(2, KEY, "tea")).await;
        let retry = client.hear().await;

        assert_eq!(shop.calls(), 1, "{status}: {first} {retry}");
        assert_eq!(first["error"]["message"], "no such item", "{status}");
        let again = retry["error"]["message"].as_str().unwrap();
        assert!(again.starts_with("no such item"), "{status}: {retry}");
    }
}

#[tokio::test]
async fn a_session_begins_anew_only_where_the_call_has_no_answer() {
    let lost = Shop::saying([Say::Refusal(404)]);
    let mut one = client(&lost).await;
    one.say(order(1, KEY, "tea")).await;
    let met_again = one.hear().await;

    let failed = Shop::saying([Say::Error(404)]);
    let mut other = client(&failed).await;
    other.say(order(1, KEY, "tea")).await;
    let error = other.hear().await;

    assert_eq!((*lost.sessions.lock().unwrap(), lost.calls()), (2, 1));
    assert!(!is_replayed(&met_again) && met_again["result"].is_object());
    assert_eq!((*failed.sessions.lock().unwrap(), failed.calls()), (1, 1));
    assert_eq!(error["error"]["message"], "no such item", "{error}");
}
