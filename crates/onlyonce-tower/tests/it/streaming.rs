//! What is not covered or has no key streams through: never buffered, never held back.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use onlyonce_core::{Engine, MemoryStore, Policy};
use onlyonce_tower::IdempotencyLayer;
use tokio::sync::mpsc;
use tower::{Layer, ServiceExt, service_fn};

/// A body whose pieces come one at a time.
struct Piecemeal(mpsc::Receiver<&'static str>);

impl Body for Piecemeal {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(cx)
            .map(|piece| piece.map(|piece| Ok(Frame::data(piece.into()))))
    }
}

async fn layer() -> IdempotencyLayer {
    let engine = Engine::open(MemoryStore::new()).await.unwrap();
    let small = Policy {
        limits: onlyonce_core::policy::Limits {
            request_bytes_max: 4,
            response_bytes_max: 4,
            header_bytes_max: 1024,
        },
        ..Policy::default()
    };
    IdempotencyLayer::new(engine).policy(small)
}

#[tokio::test]
async fn a_request_without_a_key_reaches_the_handler_while_it_is_still_being_sent() {
    let (send, pieces) = mpsc::channel(1);
    let echo = service_fn(async |request: Request<_>| {
        Ok::<_, Infallible>(Response::new(request.into_body()))
    });
    let service = layer().await.layer(echo);

    let request = Request::post("/uploads").body(Piecemeal(pieces)).unwrap();
    let response = service.oneshot(request).await.unwrap();
    let mut body = response.into_body();

    for piece in ["first", "second, far over the bound"] {
        send.send(piece).await.unwrap();
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), piece);
    }
    drop(send);
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn a_safe_request_streams_even_with_a_key() {
    let (send, pieces) = mpsc::channel(1);
    let pieces = Arc::new(Mutex::new(Some(pieces)));
    let service = layer().await.layer(service_fn(move |_request: Request<_>| {
        let body = Piecemeal(pieces.lock().unwrap().take().unwrap());
        async move { Ok::<_, Infallible>(Response::new(body)) }
    }));

    let request = Request::builder()
        .method(Method::GET)
        .uri("/events")
        .header("idempotency-key", "a-key")
        .body(Full::<Bytes>::default())
        .unwrap();
    let response = service.oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let mut body = response.into_body();

    for piece in ["event one", "event two"] {
        send.send(piece).await.unwrap();
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), piece);
    }
}
