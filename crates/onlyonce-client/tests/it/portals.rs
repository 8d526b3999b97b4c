//! Networks that answer instead of the service: login pages, redirects, block pages. Nothing of it
//! makes an operation done or dead, and a key does not leave its service.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::header::LOCATION;
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse as _, Response};
use axum::routing::any;
use onlyonce_client::{Cause, Http, Keys, Operation, Queue, Retry, Sender, Status, Transport};
use onlyonce_core::policy::Duplicate;
use onlyonce_core::{Policy, Profile, Reason};
use tempfile::tempdir;

use crate::profiles;
use crate::support::{Say, Script, http, operation, serve};

const LOGIN: &str = "<html><body>Welcome to the hotel</body></html>";

/// A login page at an address of its own, which counts the keys that get there.
struct Portal {
    address: String,
    keys_seen: Arc<AtomicUsize>,
}

impl Portal {
    async fn start() -> Self {
        let keys_seen = Arc::<AtomicUsize>::default();
        let seen = Arc::clone(&keys_seen);
        let page = any(async move |request: Request| {
            if request.headers().contains_key("idempotency-key") {
                seen.fetch_add(1, Ordering::SeqCst);
            }
            Html(LOGIN)
        });
        let address = serve(Router::new().fallback(page)).await;
        Self { address, keys_seen }
    }
}

/// The way to a service: closed by a portal until somebody signs in.
#[derive(Clone)]
struct Way {
    is_open: Arc<AtomicBool>,
    portal: String,
    status: StatusCode,
}

async fn guard(State(way): State<Way>, request: Request, next: Next) -> Response {
    if way.is_open.load(Ordering::SeqCst) {
        return next.run(request).await;
    }
    (way.status, [(LOCATION, way.portal)]).into_response()
}

async fn waits(queue: &Queue, id: onlyonce_client::OperationId) -> String {
    loop {
        match queue.status(id).await.unwrap().unwrap() {
            Status::Waiting {
                cause: Some(cause), ..
            } => return cause.name().to_owned(),
            Status::Waiting { cause: None, .. } => tokio::task::yield_now().await,
            settled @ (Status::Spare | Status::Done { .. } | Status::Failed { .. }) => {
                panic!("{settled:?}")
            }
        }
    }
}

async fn survives(portal: &Portal, transport: impl Transport, status: StatusCode) {
    let (is_open, applied) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let way = Way {
        is_open: Arc::clone(&is_open),
        portal: format!("{}/login?from=/apply", portal.address),
        status,
    };
    let count = Arc::clone(&applied);
    let app = Router::new()
        .route(
            "/apply",
            any(async move || format!("applied {}", count.fetch_add(1, Ordering::SeqCst))),
        )
        .layer(from_fn_with_state(way, guard));
    let address = serve(app).await;
    let folder = tempdir().unwrap();
    let queue = Queue::open(folder.path(), Sender::new(transport))
        .await
        .unwrap();
    let operation = Operation::post(&format!("{address}/apply")).unwrap();
    let id = queue.enqueue(operation).await.unwrap();
    let draining = tokio::spawn({
        let queue = queue.clone();
        async move { queue.drain().await }
    });

    assert_eq!(waits(&queue, id).await, "not-the-service", "{status}");
    assert_eq!(applied.load(Ordering::SeqCst), 0);
    is_open.store(true, Ordering::SeqCst);
    queue.hurry().await.unwrap();
    draining.await.unwrap().unwrap();

    assert!(matches!(
        queue.status(id).await.unwrap(),
        Some(Status::Done { .. })
    ));
    assert_eq!(applied.load(Ordering::SeqCst), 1, "{status}");
}

#[tokio::test]
async fn a_redirect_to_a_login_page_is_not_done_and_its_key_goes_nowhere() {
    let portal = Portal::start().await;

    for status in [301, 302, 303, 307, 308, 511] {
        survives(&portal, http(), StatusCode::from_u16(status).unwrap()).await;
    }

    assert_eq!(portal.keys_seen.load(Ordering::SeqCst), 0);
}

/// An address that sends its callers back to itself, with GET, and then answers.
#[tokio::test]
async fn a_redirect_to_the_same_address_is_no_answer_whatever_the_settings_say() {
    let gets = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&gets);
    let app = Router::new().route(
        "/orders/{status}",
        any(async move |method: Method, Path(status): Path<u16>| {
            if method == Method::GET {
                count.fetch_add(1, Ordering::SeqCst);
                return (StatusCode::OK, "no orders yet").into_response();
            }
            let here = format!("/orders/{status}");
            let status = StatusCode::from_u16(status).unwrap();
            (status, [(LOCATION, here)]).into_response()
        }),
    );
    let address = serve(app).await;

    for status in [301, 302, 303] {
        let operation = Operation::post(&format!("{address}/orders/{status}")).unwrap();
        let follows = reqwest::redirect::Policy::default();
        let settings = reqwest::Client::builder().no_proxy().redirect(follows);
        let sender = Sender::new(Http::with(settings).unwrap());

        let failure = sender.attempt(&operation, &Keys::default().v4()).await;

        let failure = failure.expect_err("nobody said that it is done");
        assert_eq!(failure.cause, Cause::NotTheService, "{status}: {failure}");
        assert!(failure.may_have_run(), "{status}");
    }
    assert_eq!(gets.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn what_a_redirect_leads_to_does_not_say_that_nothing_ran() {
    let app = Router::new()
        .route(
            "/accepted",
            any(async || (StatusCode::SEE_OTHER, [(LOCATION, "/gone")])),
        )
        .route(
            "/far",
            any(async || (StatusCode::SEE_OTHER, [(LOCATION, "http://127.0.0.1:9/")])),
        );
    let address = serve(app).await;

    for path in ["/accepted", "/far"] {
        let operation = Operation::post(&format!("{address}{path}")).unwrap();
        let key = Keys::default().v4();
        let failure = Sender::new(http()).attempt(&operation, &key).await;

        let failure = failure.unwrap_err();
        assert!(failure.may_have_run(), "{path}: {failure}");
        assert!(failure.cause.is_retryable(), "{path}: {failure}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_answer_of_a_network_ends_an_operation() {
    let page = |status| Say::With(status, "content-type", "text/html; charset=utf-8", LOGIN);
    let redirect = |status| Say::With(status, "location", "https://portal.test/login", "");
    let says: Vec<Say> = [200, 201, 203, 400, 401, 403, 404, 410, 451]
        .map(page)
        .into_iter()
        .chain([300, 301, 302, 303, 304, 305, 307, 308].map(redirect))
        .chain((0..20).map(|_| Say::Status(511)))
        // No media type at all.
        .chain([Say::With(200, "server", "portal", LOGIN)])
        .chain([Say::With(200, "refresh", "0; url=https://portal.test/", "")])
        .collect();
    let count = says.len();
    let script = Script::new(says);
    let folder = tempdir().unwrap();
    let queue = Queue::open(folder.path(), script.sender()).await.unwrap();

    let id = queue.enqueue(operation("a")).await.unwrap();
    queue.drain().await.unwrap();

    assert_eq!(script.seen().len(), count + 1);
    let keys = script.keys();
    assert!(keys.iter().all(|key| *key == keys[0]));
    assert!(matches!(
        queue.status(id).await.unwrap(),
        Some(Status::Done { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn a_login_page_does_not_undo_a_step() {
    let page = Say::With(404, "content-type", "text/html", LOGIN);
    let script = Script::new([Say::Status(200), Say::Status(400), page]);
    let folder = tempdir().unwrap();
    let queue = Queue::open(folder.path(), script.sender()).await.unwrap();
    let undo = Operation::delete("http://service.test/a").unwrap();
    let group = onlyonce_client::Group::new()
        .step_or_undo(operation("a"), undo)
        .step(operation("b"));

    queue.enqueue_group(group).await.unwrap();
    queue.drain().await.unwrap();

    // Once more after the page, which was nobody's answer.
    assert_eq!(
        script.story(),
        ["POST /a", "POST /b", "DELETE /a", "DELETE /a"]
    );
}

#[tokio::test]
async fn a_redirect_within_the_service_is_sent_on_with_method_body_and_key() {
    for status in [
        StatusCode::TEMPORARY_REDIRECT,
        StatusCode::PERMANENT_REDIRECT,
    ] {
        let name = format!("moved-{}", status.as_u16());
        let target = format!("/apply/{name}");
        let echo = async move |request: Request| {
            let (parts, body) = request.into_parts();
            let body = axum::body::to_bytes(body, 1000).await.unwrap();
            let key = &parts.headers["idempotency-key"];
            format!("{} {} {body:?}", parts.method, key.to_str().unwrap())
        };
        let app = Router::new()
            .route("/old", any(async move || (status, [(LOCATION, target)])))
            .route("/apply/{name}", any(echo));
        let address = serve(app).await;
        let key = Keys::default().v4();
        let operation = Operation::new(Method::PUT, &format!("{address}/old")).unwrap();
        let operation = operation.json(&"tea").unwrap();

        let sent = Sender::new(http()).send(&operation, &key).await.unwrap();

        let expected = format!(r#"PUT {} b"\"tea\"""#, key.expose());
        assert_eq!(sent.reply.body, expected);
    }
}

#[tokio::test]
async fn a_service_that_redirects_for_ever_is_left_alone() {
    let count = Arc::<AtomicUsize>::default();
    let seen = Arc::clone(&count);
    let app = Router::new().route(
        "/round",
        any(async move || {
            seen.fetch_add(1, Ordering::SeqCst);
            (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, "/round")])
        }),
    );
    let operation = Operation::post(&format!("{}/round", serve(app).await)).unwrap();

    let key = Keys::default().v4();
    let failure = Sender::new(http()).attempt(&operation, &key).await;

    let cause = failure.unwrap_err().cause;
    assert_eq!(cause.name(), "not-the-service");
    assert_eq!(count.load(Ordering::SeqCst), 6);
}

#[tokio::test]
async fn a_202_that_says_still_running_is_not_done() {
    for status in [202, 409, 425] {
        let mut policy = Policy {
            duplicate: Duplicate::Refuse,
            ..Profile::Middleware.policy()
        };
        policy.http.refusals.set_status(Reason::InProgress, status);
        let (address, gate) = profiles::start(policy).await;
        let slow = Operation::post(&format!("{address}/slow")).unwrap();
        let key = Keys::default().v4();
        let ask = || {
            let (slow, key) = (slow.clone(), key.clone());
            tokio::spawn(async move {
                let once = Retry {
                    attempts_max: 1,
                    ..Retry::default()
                };
                Sender::new(http()).retry(once).attempt(&slow, &key).await
            })
        };

        // One of them runs; the other is told that it does.
        let (mut one, mut other) = (ask(), ask());
        let refused = tokio::select! {
            refused = &mut one => refused,
            refused = &mut other => refused,
        };

        let cause = refused.unwrap().unwrap_err().cause;
        assert_eq!(cause.name(), "in-progress", "{status}");
        gate.add_permits(2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_asks_again_after_a_202_and_ever_less_often() {
    let folder = tempdir().unwrap();
    let taken = || Say::Status(202);
    let script = Script::new([taken(), taken(), taken(), Say::Status(201)]);
    let queue = Queue::open(folder.path(), script.sender()).await.unwrap();
    let id = queue.enqueue(operation("a")).await.unwrap();

    queue.drain().await.unwrap();

    let status = queue.status(id).await.unwrap();
    assert!(matches!(
        status,
        Some(Status::Done {
            status: Some(201),
            ..
        })
    ));
    let seen = script.seen();
    assert!(seen.iter().all(|it| it.key == seen[0].key));
    let pauses: Vec<_> = seen.windows(2).map(|two| two[1].at - two[0].at).collect();
    assert!(pauses.is_sorted() && pauses[2] > pauses[0], "{pauses:?}");
}
