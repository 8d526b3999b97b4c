//! The admin API: any request gets what it asks for, or a problem that says what is wrong.

use std::sync::Arc;

use axum::Router;
use http::{StatusCode, Uri};
use onlyonce_core::engine::Who;
use onlyonce_core::operate::{Filter, Page};
use onlyonce_core::{Engine, Fingerprint, Key, KeyRule, Outcome, Policy, Response};
use onlyonce_gateway::{RecordsPage, Settings};
use tower::ServiceExt as _;

use crate::layered::{Answer, Ask, block_on};

const PAGE_RECORDS_MAX: usize = 1000;
/// Stand for the addresses of the records that are there, and of one that is not.
const SLOTS: [&str; 4] = ["SLOT0", "SLOT1", "SLOT2", "SLOT3"];

/// The bytes are a request as `Ask::parse` reads it.
pub fn admin(data: &[u8]) {
    if let Some(ask) = Ask::parse(data) {
        block_on(asked(ask));
    }
}

async fn asked(mut ask: Ask) {
    let settings = Settings::load(
        None,
        [],
        &[
            ("upstream", "http://127.0.0.1:1".to_owned()),
            ("store", "memory:".to_owned()),
            ("instance", "here".to_owned()),
        ],
    );
    let settings = settings.expect("these settings hold");
    let (engine, router) = onlyonce_gateway::operators(&settings)
        .await
        .expect("a store in memory opens");
    let slots = records(&engine).await;
    ask.uri = addressed(&ask.uri, &slots);
    let answer = answer(router, &ask).await;
    check(&ask, &answer);
}

/// Fills the store: a success, a failure, an unknown outcome. Gives their addresses.
async fn records(engine: &Engine) -> Vec<String> {
    let policy = Arc::new(Policy {
        on_lapse: onlyonce_core::OnLapse::Hold,
        ..Policy::default()
    });
    for (name, outcome) in [
        (
            "done",
            Outcome::Finished(Arc::new(Response::new(StatusCode::CREATED, "made"))),
        ),
        (
            "failed",
            Outcome::Finished(Arc::new(Response::new(StatusCode::CONFLICT, "no"))),
        ),
        ("unknown", Outcome::Unknown),
    ] {
        let key = Key::new(name, &KeyRule::default()).expect("a plain name");
        let fingerprint = Fingerprint::new(1, [1; 32]);
        let who = Who {
            actor: Some(name.into()),
            ..Who::doing("POST /orders")
        };
        let call = engine.call(&engine.scope(), &key, fingerprint, &policy, who);
        drop(engine.once(call, async move |_| outcome).await);
    }
    let page = Page {
        after: None,
        records_max: SLOTS.len(),
    };
    let operate = engine.store().operate().expect("an operators' side");
    let listed = operate.list(&Filter::default(), &page).await;
    let listed = listed.expect("a store in memory lists");
    listed.iter().map(|(slot, _)| slot.to_string()).collect()
}

fn addressed(uri: &Uri, slots: &[String]) -> Uri {
    let mut text = uri.to_string();
    for (index, name) in SLOTS.into_iter().enumerate() {
        let absent = "0".repeat(64);
        text = text.replace(name, slots.get(index).unwrap_or(&absent));
    }
    text.parse().unwrap_or_else(|_| uri.clone())
}

/// What comes of a request. Events go on for ever: only their head is looked at.
async fn answer(router: Router, ask: &Ask) -> Answer {
    let mut request = ask.request();
    // Most requests name no host, and would get no further than that.
    let host = request.headers_mut().entry(http::header::HOST);
    host.or_insert(http::HeaderValue::from_static("localhost"));
    let Ok(response) = router.oneshot(request).await;
    let kind = response.headers().get(http::header::CONTENT_TYPE);
    let is_endless = kind.is_some_and(|kind| kind == "text/event-stream");
    if is_endless {
        return Answer::of(response.map(|_| axum::body::Body::empty())).await;
    }
    Answer::of(response).await
}

fn check(ask: &Ask, answer: &Answer) {
    let code = answer.status.as_u16();
    assert!(code < 500, "{} {}: {:?}", ask.method, ask.uri, answer.body);
    assert!(answer.body.len() < 64 * 1024 || ask.uri.path() == "/api/v1/openapi.json");
    let kind = answer.headers.get(http::header::CONTENT_TYPE);
    // People are told on a page.
    let is_page = !ask.uri.path().starts_with("/api/")
        && kind.is_some_and(|kind| kind == "text/html; charset=utf-8");
    if code >= 400 && !is_page {
        let told = format!(
            "{} {}: {code} {kind:?} {:?}",
            ask.method, ask.uri, answer.body
        );
        assert!(
            kind.is_some_and(|kind| kind == "application/problem+json"),
            "{told}"
        );
        assert!(
            ask.method == http::Method::HEAD || answer.is_json(),
            "{told}"
        );
    }
    if code == 200 && ask.uri.path() == "/api/v1/records" && ask.method == http::Method::GET {
        let page: RecordsPage = serde_json::from_slice(&answer.body).expect("a page of records");
        assert!(page.records.len() <= PAGE_RECORDS_MAX);
    }
}
