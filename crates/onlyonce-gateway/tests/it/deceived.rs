//! PROTOCOL 34 against answers that are not the service's own, or come too early: portals, load balancers, logins,
//! bodies that break off, answers about something else, and services that are still at work.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use onlyonce_gateway::Gateway;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::{client, gateway};

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
const ID: HeaderName = HeaderName::from_static("onlyonce-operation");

/// What looks are answered with.
#[derive(Clone, Default)]
struct Says {
    status: u16,
    kind: Option<&'static str>,
    body: &'static str,
    /// Which operation it names: itself, for `{id}`.
    about: Option<&'static str>,
}

fn says(status: u16, kind: &'static str, body: &'static str) -> Says {
    Says {
        status,
        kind: (!kind.is_empty()).then_some(kind),
        body,
        about: None,
    }
}

fn about(named: &'static str, says: Says) -> Says {
    Says {
        about: Some(named),
        ..says
    }
}

#[derive(Default)]
struct Seen {
    says: Says,
    /// What the first attempt is answered with.
    first: u16,
    runs: usize,
    looks: Vec<HeaderMap>,
}

type Shared = Arc<Mutex<Seen>>;

async fn service(first: u16, says: Says) -> (SocketAddr, Shared) {
    let seen = Shared::default();
    seen.lock().unwrap().says = says;
    seen.lock().unwrap().first = first;
    let app = Router::new()
        .fallback(respond)
        .with_state(Arc::clone(&seen));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    (address, seen)
}

async fn respond(State(seen): State<Shared>, request: Request) -> Response {
    let mut seen = seen.lock().unwrap();
    if request.method() == "POST" {
        seen.runs += 1;
        let status = if seen.runs == 1 { seen.first } else { 201 };
        let body = format!("run {}", seen.runs);
        return (StatusCode::from_u16(status).unwrap(), body).into_response();
    }
    seen.looks.push(request.headers().clone());
    let says = seen.says.clone();
    let mut answer = (StatusCode::from_u16(says.status).unwrap(), says.body).into_response();
    answer.headers_mut().remove("content-type");
    if let Some(kind) = says.kind {
        let kind = HeaderValue::from_static(kind);
        answer.headers_mut().insert("content-type", kind);
    }
    if says.status == 301 {
        let login = HeaderValue::from_static("/login");
        answer.headers_mut().insert("location", login);
    }
    match says.about {
        Some("{id}") => {
            let id = request.headers()[&ID].clone();
            answer.headers_mut().insert(ID, id);
        }
        Some(named) => {
            let named = HeaderValue::from_static(named);
            answer.headers_mut().insert(ID, named);
        }
        None => {}
    }
    answer
}

fn route(more: &str) -> String {
    format!(
        "[[route]]\nmatch = \"POST /charges\"\nrules.stored.below = 500\n\
         reconcile = {{ ask = \"GET /charges/{{operation}}\"{more} }}\n"
    )
}

async fn charge(gateway: &Gateway) -> reqwest::Response {
    client()
        .post(format!("http://{}/charges", gateway.address()))
        .header("idempotency-key", "key")
        .body("{}")
        .send()
        .await
        .unwrap()
}

/// What came of a retry after an attempt whose answer was an error.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Happened,
    RanAgain,
    CannotTell,
}

async fn found(more: &str, says: Says) -> Found {
    let (address, seen) = service(500, says.clone()).await;
    let gateway = gateway(address, &route(more)).await;
    assert_eq!(charge(&gateway).await.status(), 500);

    let retry = charge(&gateway).await;

    assert!(!retry.headers().contains_key(&ID), "it is not the client's");
    let status = retry.status().as_u16();
    let body = retry.text().await.unwrap();
    let seen = seen.lock().unwrap();
    match (status, seen.runs) {
        (201, 2) => Found::RanAgain,
        (409, 1) => Found::CannotTell,
        (status, 1) if status == says.status => {
            assert_eq!(body, says.body);
            Found::Happened
        }
        other => panic!("{other:?}: {body}"),
    }
}

#[tokio::test]
async fn what_is_not_the_services_own_answer_settles_nothing() {
    let other = "6f0e1c2a-0000-4000-8000-000000000000";
    for says in [
        says(200, HTML, "<html>Please log in</html>"),
        says(200, "Application/XHTML+XML", "<html/>"),
        says(404, HTML, "<html><center>nginx</center></html>"),
        says(410, HTML, "<html/>"),
        says(301, "", ""),
        says(200, JSON, ""),
        says(200, JSON, "{\"id\":1,\"cents\":7"),
        says(200, "application/problem+json", "{"),
        about(other, says(200, JSON, "{\"id\":1}")),
        about(other, says(404, JSON, "{}")),
    ] {
        let what = format!("{} {:?} {:?}", says.status, says.kind, says.body);

        assert_eq!(found("", says).await, Found::CannotTell, "{what}");
    }
    for (says, wanted) in [
        (says(200, JSON, "{\"id\":1}"), Found::Happened),
        (says(200, "", ""), Found::Happened),
        (says(204, JSON, ""), Found::Happened),
        (
            about("{id}", says(200, JSON, "{\"id\":1}")),
            Found::Happened,
        ),
        (says(404, JSON, "{}"), Found::RanAgain),
        (says(404, "", ""), Found::RanAgain),
    ] {
        let what = format!("{} {:?} {:?}", says.status, says.kind, says.body);

        assert_eq!(found("", says).await, wanted, "{what}");
    }
    let pages = ", html = true";
    assert_eq!(found(pages, says(200, HTML, "<p>")).await, Found::Happened);
    assert_eq!(found(pages, says(404, HTML, "<p>")).await, Found::RanAgain);
}

#[tokio::test]
async fn with_echo_only_an_answer_that_names_the_operation_counts() {
    let echo = ", echo = true";
    for says in [
        says(200, JSON, "{\"id\":1}"),
        says(204, "", ""),
        says(404, JSON, "{}"),
        says(404, "", ""),
        says(404, "text/plain", "default backend - 404"),
    ] {
        let what = format!("{} {:?} {:?}", says.status, says.kind, says.body);

        assert_eq!(found(echo, says.clone()).await, Found::CannotTell, "{what}");
        let named = found(echo, about("{id}", says.clone())).await;
        let wanted = match says.status {
            404 => Found::RanAgain,
            _ => Found::Happened,
        };
        assert_eq!(named, wanted, "{what}");
    }
}

/// A service may refuse every attempt that is older than the one which asks.
#[tokio::test]
async fn a_look_says_which_attempt_asks() {
    let (address, seen) = service(500, says(503, "", "")).await;
    let gateway = gateway(address, &route("")).await;
    charge(&gateway).await;

    charge(&gateway).await;

    let seen = seen.lock().unwrap();
    assert_eq!(seen.looks[0]["onlyonce-attempt"], "2");
}

/// A load balancer that has waited for long enough says nothing of what the service does.
#[tokio::test]
async fn a_service_that_may_be_at_work_behind_a_504_is_not_asked_before_the_lease_has_passed() {
    for between in [502, 504] {
        let (address, seen) = service(between, says(404, "", "")).await;
        let lease = "[rules]\nlease = \"5s\"\nwait = \"0s\"\n";
        let gateway = gateway(address, &format!("{lease}{}", route(""))).await;
        assert_eq!(charge(&gateway).await.status(), between);

        assert_eq!(charge(&gateway).await.status(), 409);
        // Only now the service has done it.
        {
            let mut seen = seen.lock().unwrap();
            assert_eq!(seen.looks.len(), 0, "{between}");
            seen.says = says(200, JSON, "{\"id\":1}");
        }
        let settled = loop {
            let answer = charge(&gateway).await;
            if answer.status() != 409 {
                break answer;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };

        assert_eq!(settled.status(), 200, "{between}");
        assert_eq!(seen.lock().unwrap().runs, 1, "{between}");
    }
}

/// A service on raw connections, whose answers to looks end too early.
#[tokio::test]
async fn an_answer_that_breaks_off_settles_nothing() {
    for head in [
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\n{\"a\"\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{\"a\":",
        "HTTP/1.1 404 Not Fou",
        "",
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let runs = Arc::<Mutex<usize>>::default();
        let counted = Arc::clone(&runs);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let counted = Arc::clone(&counted);
                tokio::spawn(async move {
                    let mut asked = [0; 4096];
                    let length = stream.read(&mut asked).await.unwrap();
                    let answer = if asked[..length].starts_with(b"POST") {
                        *counted.lock().unwrap() += 1;
                        "HTTP/1.1 500 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                    } else {
                        head
                    };
                    drop(stream.write_all(answer.as_bytes()).await);
                });
            }
        });
        let gateway = gateway(address, &route("")).await;
        assert_eq!(charge(&gateway).await.status(), 500);

        assert_eq!(charge(&gateway).await.status(), 409, "{head}");

        assert_eq!(*runs.lock().unwrap(), 1, "{head}");
    }
}
