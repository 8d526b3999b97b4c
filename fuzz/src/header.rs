//! Requests: any head and body passes, is refused in the profile's words, or runs once.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use onlyonce_core::{Key, Policy, profile};
use onlyonce_tower::ScopePart;

use crate::NEEDLE;
use crate::layered::{Answer, Ask, Handler, Layered, block_on};

const ANSWER: &[u8] = br#"{"done":true}"#;

/// The first byte picks a profile, the second a scope; the rest is a request as `Ask::parse` reads
/// it.
pub fn header(data: &[u8]) {
    let Some((&[profile, scope], text)) = data.split_first_chunk() else {
        return;
    };
    let Some(ask) = Ask::parse(text) else {
        return;
    };
    let profiles = profile::all();
    let policy = profiles[usize::from(profile) % profiles.len()].policy();
    block_on(sent(&policy, self::scope(scope), &ask));
    block_on(hidden(&policy, ask));
}

fn scope(choice: u8) -> Option<Vec<ScopePart>> {
    let header = |trusted| ScopePart::Header {
        name: HeaderName::from_static("x-user"),
        trusted,
    };
    match choice % 6 {
        0 => None,
        1 => Some(vec![ScopePart::Cookie("session".into())]),
        2 => Some(vec![header(true)]),
        3 => Some(vec![header(false), ScopePart::Route]),
        4 => Some(vec![ScopePart::Body("user".into()), ScopePart::Caller]),
        _ => Some(Vec::new()),
    }
}

fn handler() -> Handler {
    Handler {
        status: StatusCode::OK,
        body: Bytes::from_static(ANSWER),
    }
}

/// The same request twice: what ran under a key does not run again.
async fn sent(policy: &Policy, scope: Option<Vec<ScopePart>>, ask: &Ask) {
    let layered = Layered::open(policy.clone(), scope, handler()).await;
    let first = layered.send(ask).await;
    assert!(!first.is_replay);
    let ran = layered.runs();
    let is_keyed = layered.keyed_runs() == 1;
    assert!(ran <= 1);
    if ran == 0 {
        refused(&first, ask);
    } else {
        assert_eq!((first.status, &first.body[..]), (StatusCode::OK, ANSWER));
    }

    let second = layered.send(ask).await;
    assert_eq!(second.is_replay, is_keyed);
    let runs = if is_keyed { 1 } else { 2 * ran };
    assert_eq!(layered.runs(), runs);
    if is_keyed {
        assert_eq!(second.status, StatusCode::OK);
    } else {
        assert_eq!((second.status, second.body), (first.status, first.body));
    }
}

/// A refusal is in JSON, or in gRPC's own words.
fn refused(answer: &Answer, ask: &Ask) {
    let kind = ask.headers.get(http::header::CONTENT_TYPE);
    if kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")) {
        assert!(answer.headers.contains_key("grpc-status") || answer.status.is_client_error());
        return;
    }
    assert!(answer.status.is_client_error(), "{}", answer.status);
    assert!(answer.is_json(), "{:?}", answer.body);
    assert!(answer.body.len() < 1024, "{:?}", answer.body);
}

/// A key that is refused is not repeated. Where the key was good and
/// the request was refused for something else, a profile may echo it in its own header, and nowhere else.
async fn hidden(policy: &Policy, mut ask: Ask) {
    let name = &policy.http.key_header;
    let Some(value) = ask.headers.get(name) else {
        return;
    };
    let value = [value.as_bytes(), NEEDLE.as_bytes()].concat();
    ask.headers.insert(
        name,
        HeaderValue::from_bytes(&value).expect("two values make one"),
    );
    let layered = Layered::open(policy.clone(), None, handler()).await;
    let mut answer = layered.send(&ask).await;
    if Key::parse(&value, &policy.key).is_ok() {
        answer.headers.remove(name);
    }
    if layered.runs() == 0 {
        let told = format!("{:?} {:?}", answer.headers, answer.body);
        assert!(!told.contains(NEEDLE), "{told}");
    }
}
