//! The operators' console: what its pages show, whom they let in, and what its forms do.

use std::sync::Arc;

use onlyonce_core::Store;
use onlyonce_gateway::Gateway;
use reqwest::header::HeaderMap;

use crate::support::{client, settings};
use crate::wire::{Say, scripted};

mod access;
mod browser;
mod chromium;
mod drawn;
mod forms;
mod in_part;
mod pages;
mod watched;

const TOKEN: &str = "a-token-nobody-guesses";
const PAGES: [&str; 6] = [
    "/",
    "/records",
    "/in-doubt",
    "/callers",
    "/observed",
    "/health",
];

fn url(gateway: &Gateway, path: &str) -> String {
    format!("http://{}{path}", gateway.admin_address())
}

/// An answer that was read to its end.
struct Got {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Got {
    fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    #[track_caller]
    fn has(&self, text: &str) {
        assert!(self.text.contains(text), "{text} is not in {}", self.text);
    }

    #[track_caller]
    fn has_not(&self, text: &str) {
        assert!(!self.text.contains(text), "{text} is in {}", self.text);
    }
}

async fn read(request: reqwest::RequestBuilder) -> Got {
    let answer = request.send().await.unwrap();
    Got {
        status: answer.status().as_u16(),
        headers: answer.headers().clone(),
        text: answer.text().await.unwrap(),
    }
}

/// A client that does not follow where it is led.
fn still() -> reqwest::Client {
    let none = reqwest::redirect::Policy::none();
    reqwest::Client::builder().redirect(none).build().unwrap()
}

async fn open(gateway: &Gateway, path: &str) -> Got {
    read(still().get(url(gateway, path))).await
}

/// A form as a browser sends it from a page of the console.
fn form(gateway: &Gateway, path: &str, fields: &[(&str, &str)]) -> reqwest::RequestBuilder {
    let mut body = form_urlencoded::Serializer::new(String::new());
    body.extend_pairs(fields);
    still()
        .post(url(gateway, path))
        .header("origin", url(gateway, ""))
        .header("content-type", "application/x-www-form-urlencoded")
        .body(body.finish())
}

async fn send(gateway: &Gateway, path: &str, fields: &[(&str, &str)]) -> Got {
    read(form(gateway, path, fields)).await
}

async fn order(gateway: &Gateway, path: &str, key: &str, user: &str) -> u16 {
    let request = client().post(format!("http://{}{path}", gateway.address()));
    let request = request
        .header("idempotency-key", key)
        .header("x-user", user);
    request.send().await.unwrap().status().as_u16()
}

/// A gateway whose service is lost with every request, and leaves these in doubt.
async fn in_doubt(outcomes: usize, more: &str) -> Gateway {
    in_doubt_around(outcomes, more, |store| store).await
}

/// The same on a store of one's own.
async fn in_doubt_around(
    outcomes: usize,
    more: &str,
    wrap: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>,
) -> Gateway {
    let (lost, _) = scripted(|_, _| Say::Nothing).await;
    let rules = "scope = [\"user-header:x-user\"]\ninstance = \"web-1\"\n";
    let more = format!("{rules}{more}[rules]\non_lapse = \"hold\"\n");
    let settings = settings(lost, &more);
    let gateway = Gateway::start_around(&settings, wrap).await.unwrap();
    for number in 0..outcomes {
        let key = format!("order-number-{number:04}");
        assert_eq!(order(&gateway, "/orders", &key, "ada").await, 502);
    }
    gateway
}

/// The slots of what is in doubt.
async fn slots(gateway: &Gateway) -> Vec<String> {
    doubts(gateway, "slot").await
}

/// The attempts that are in doubt, as forms name them.
async fn attempts(gateway: &Gateway) -> Vec<String> {
    doubts(gateway, "attempt_id").await
}

/// A field of each record that is in doubt.
async fn doubts(gateway: &Gateway, field: &str) -> Vec<String> {
    let page = open(gateway, "/api/v1/records/in-doubt?limit=1000").await;
    let page: serde_json::Value = serde_json::from_str(&page.text).unwrap();
    let records = page["records"].as_array().unwrap().iter();
    let value = |record: &serde_json::Value| record[field].as_str().unwrap().to_owned();
    records.map(value).collect()
}
