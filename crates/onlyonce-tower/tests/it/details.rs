//! Smaller promises of the layer, each on its own.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::Full;
use onlyonce_core::policy::Duplicate;
use onlyonce_core::{Engine, MemoryStore, Profile, StoreErrorKind};
use onlyonce_tower::observe::Observing;
use onlyonce_tower::{IdempotencyLayer, RequestBody};
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::support::{App, Faulty, Gate, PATH, numbered, post, uuid};

#[tokio::test]
async fn a_record_keeps_the_trace_id_of_its_request() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331";
    for (traceparent, kept) in [
        (format!("00-{TRACE}-01"), Some(TRACE)),
        (format!("00-{}-01", TRACE.replace('-', "0")), None),
        ("00-not-a-trace".into(), None),
        ("garbage".into(), None),
    ] {
        let app = App::under(Profile::Standard).open().await;

        app.send(&post(PATH).key(uuid(1)).header("traceparent", &traceparent))
            .await;

        assert_eq!(app.record().await.meta.trace.as_deref(), kept);
    }
}

#[tokio::test]
async fn an_operation_is_called_by_its_name_its_pattern_or_its_path() {
    let (pattern, path) = ("/orders/{id}", "/orders/7");
    for (builder, called) in [
        (App::under(Profile::Standard), path),
        (App::under(Profile::Standard).route(pattern), pattern),
        (
            App::under(Profile::Standard)
                .route(pattern)
                .operation("pay"),
            "pay",
        ),
        (App::under(Profile::Standard).operation("pay"), "pay"),
    ] {
        let app = builder.open().await;

        app.send(&post(path).key(uuid(1))).await;

        assert_eq!(&*app.record().await.meta.operation, called);
    }
}

#[tokio::test]
async fn which_headers_are_not_replayed_is_a_matter_of_policy() {
    let with_cookie = |run| {
        let mut response = numbered(200, run);
        let cookie = HeaderValue::from_static("seen=yes");
        response.headers_mut().insert("set-cookie", cookie);
        response
    };
    for (drop_headers, replayed) in [
        (vec![http::header::SET_COOKIE], None),
        (vec![], Some("seen=yes")),
    ] {
        let app = App::under(Profile::Standard)
            .but(|policy| policy.http.drop_headers = drop_headers)
            .answer(with_cookie)
            .open()
            .await;
        app.send(&post(PATH).key(uuid(1))).await;

        let replay = app.send(&post(PATH).key(uuid(1))).await;

        assert_eq!(replay.header("set-cookie"), replayed);
    }
}

#[tokio::test(start_paused = true)]
async fn each_route_can_have_its_own_time_to_live() {
    let store = Arc::new(MemoryStore::new());
    let route = |pattern, seconds| {
        App::under(Profile::Standard)
            .but(|policy| policy.keep_for = Duration::from_secs(seconds))
            .store(store.clone())
            .route(pattern)
            .open()
    };
    let (short, long) = (route("/short", 10).await, route("/long", 100).await);
    short.send(&post("/short").key(uuid(1))).await;
    long.send(&post("/long").key(uuid(2))).await;

    tokio::time::advance(Duration::from_secs(50)).await;

    assert_eq!(short.send(&post("/short").key(uuid(1))).await.run(), 2);
    assert_eq!(long.send(&post("/long").key(uuid(2))).await.run(), 1);
    assert_eq!((short.runs(), long.runs()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_never_less_than_a_second() {
    let gate = Gate::new();
    let app = App::under(Profile::Standard)
        .but(|policy| {
            policy.duplicate = Duplicate::Refuse;
            policy.retry_after = Duration::from_millis(10);
        })
        .gate(&gate)
        .open()
        .await;
    let first = app.spawn(&post(PATH).key(uuid(1)));
    gate.entered().await;

    let duplicate = app.send(&post(PATH).key(uuid(1))).await;

    assert_eq!(
        (duplicate.status, duplicate.header("retry-after")),
        (409, Some("1"))
    );
    gate.open();
    first.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_result_that_is_not_stored_yet_is_a_503_with_retry_after() {
    let store = Arc::new(MemoryStore::new());
    let faulty = Faulty::to(&store);
    let gate = Gate::new();
    let app = App::under(Profile::Standard)
        .store(faulty.clone())
        .gate(&gate)
        .open()
        .await;
    let first = app.spawn(&post(PATH).key(uuid(1)));
    gate.entered().await;

    faulty.fail(Some(StoreErrorKind::Unavailable));
    gate.open();
    let first = first.await.unwrap();
    faulty.fail(None);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let retry = app.send(&post(PATH).key(uuid(1))).await;

    assert_eq!(
        (first.status, first.header("retry-after")),
        (503, Some("5"))
    );
    assert_eq!((retry.status, retry.run(), app.runs()), (200, 1, 1));
}

#[tokio::test]
async fn a_lease_that_a_client_sends_is_dropped_also_where_nothing_is_enforced() {
    const LEASE: HeaderName = HeaderName::from_static("onlyonce-lease");
    let engine = Engine::open(MemoryStore::new()).await.unwrap();
    let route = Observing::telling(|_| ()).route("*");
    let layer = IdempotencyLayer::new(engine).lease_header(LEASE);
    for layer in [layer.clone(), layer.observe(&route)] {
        let handler = |request: Request<RequestBody<Full<bytes::Bytes>>>| async move {
            let status = if request.headers().contains_key(LEASE) {
                418
            } else {
                200
            };
            let answer = Response::builder().status(status);
            answer.body(Full::<bytes::Bytes>::default())
        };
        let request = Request::get("/").header(LEASE, "a lease of long ago");
        let request = request.body(Full::default()).unwrap();

        let answer = layer.layer(service_fn(handler)).oneshot(request).await;

        assert_eq!(answer.unwrap().status(), 200);
    }
}
