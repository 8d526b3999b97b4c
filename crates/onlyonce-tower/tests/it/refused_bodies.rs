//! Bodies that are read into memory, and those that are refused: what they cost, and who hears.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use onlyonce_core::{Engine, MemoryStore};
use onlyonce_tower::{IdempotencyLayer, Linger};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::{Layer, ServiceExt, service_fn};

const MIB: usize = 1 << 20;

/// What became of a body and its pieces.
#[derive(Default)]
struct Fate {
    /// Pieces whose buffers are still in memory, now and at most.
    alive: AtomicUsize,
    alive_max: AtomicUsize,
    bytes_read: AtomicUsize,
    dropped: AtomicBool,
}

/// A buffer of which a body gives away one piece.
struct Buffer(Arc<Fate>, Vec<u8>);

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.1
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A body of pieces of one size, each in a buffer of its own; then it ends or stands still.
struct Pieces {
    fate: Arc<Fate>,
    left: usize,
    piece_bytes: usize,
    ends: bool,
}

impl Pieces {
    fn new(fate: &Arc<Fate>, count: usize, piece_bytes: usize) -> Self {
        Self {
            fate: Arc::clone(fate),
            left: count,
            piece_bytes,
            ends: true,
        }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return if self.ends {
                Poll::Ready(None)
            } else {
                Poll::Pending
            };
        }
        self.left -= 1;
        let fate = &self.fate;
        let alive = fate.alive.fetch_add(1, Ordering::SeqCst) + 1;
        fate.alive_max.fetch_max(alive, Ordering::SeqCst);
        fate.bytes_read
            .fetch_add(self.piece_bytes, Ordering::SeqCst);
        let buffer = Buffer(Arc::clone(fate), vec![b'x'; self.piece_bytes]);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(buffer)))))
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.fate.dropped.store(true, Ordering::SeqCst);
    }
}

async fn layer() -> IdempotencyLayer {
    IdempotencyLayer::new(Engine::open(MemoryStore::new()).await.unwrap())
}

/// Sends a body under `key` to a service that says how long it was; gives the status.
async fn send(layer: &IdempotencyLayer, headers: &[(&str, &str)], body: Pieces) -> StatusCode {
    let service = layer.layer(service_fn(async |request: Request<_>| {
        let bytes = BodyExt::collect(request.into_body())
            .await
            .unwrap()
            .to_bytes();
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(
            bytes.len().to_string(),
        ))))
    }));
    let mut request = Request::post("/uploads");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = service.oneshot(request.body(body).unwrap()).await.unwrap();
    response.status()
}

async fn eventually(holds: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it did not come to hold");
}

#[tokio::test]
async fn the_buffers_of_a_request_in_small_pieces_are_not_kept_while_it_is_read() {
    let fate = Arc::<Fate>::default();
    let body = Pieces::new(&fate, 100_000, 1);

    let status = send(&layer().await, &[("idempotency-key", "k")], body).await;

    assert_eq!(status, 200);
    assert_eq!(fate.bytes_read.load(Ordering::SeqCst), 100_000);
    assert!(fate.alive_max.load(Ordering::SeqCst) <= 2);
}

#[tokio::test]
async fn the_buffers_of_a_response_in_small_pieces_are_not_kept_while_it_is_read() {
    let fate = Arc::<Fate>::default();
    let told = Arc::clone(&fate);
    let service = layer().await.layer(service_fn(move |_: Request<_>| {
        let body = Pieces::new(&told, 100_000, 1);
        async move { Ok::<_, Infallible>(Response::new(body)) }
    }));
    let request = Request::post("/uploads").header("idempotency-key", "k");

    let request = request.body(Full::<Bytes>::default()).unwrap();
    let response = service.oneshot(request).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();

    assert_eq!(body, vec![b'x'; 100_000]);
    assert!(fate.alive_max.load(Ordering::SeqCst) <= 2);
}

#[tokio::test]
async fn the_rest_of_a_body_that_is_too_large_is_read() {
    let fate = Arc::<Fate>::default();
    let body = Pieces::new(&fate, 64, MIB / 4);

    let status = send(&layer().await, &[("idempotency-key", "k")], body).await;

    assert_eq!(status, 413);
    eventually(|| fate.dropped.load(Ordering::SeqCst)).await;
    assert_eq!(fate.bytes_read.load(Ordering::SeqCst), 16 * MIB);
}

#[tokio::test]
async fn the_body_of_a_request_that_is_refused_by_its_head_is_read() {
    let fate = Arc::<Fate>::default();
    let body = Pieces::new(&fate, 8, MIB);

    let status = send(&layer().await, &[("idempotency-key", "\"bad")], body).await;

    assert_eq!(status, 400);
    eventually(|| fate.dropped.load(Ordering::SeqCst)).await;
    assert_eq!(fate.bytes_read.load(Ordering::SeqCst), 8 * MIB);
}

#[tokio::test]
async fn no_more_of_a_refused_body_is_read_than_the_bound_allows() {
    let fate = Arc::<Fate>::default();
    let linger = Linger {
        bytes_max: 4 << 20,
        ..Linger::default()
    };
    let body = Pieces::new(&fate, usize::MAX, MIB);

    let layer = layer().await.linger(linger);
    let status = send(&layer, &[("idempotency-key", "\"bad")], body).await;

    assert_eq!(status, 400);
    eventually(|| fate.dropped.load(Ordering::SeqCst)).await;
    assert_eq!(fate.bytes_read.load(Ordering::SeqCst), 5 * MIB);
}

#[tokio::test(start_paused = true)]
async fn a_refused_body_that_stands_still_is_let_go() {
    let fate = Arc::<Fate>::default();
    let mut body = Pieces::new(&fate, 1, 10);
    body.ends = false;

    let status = send(&layer().await, &[("idempotency-key", "\"bad")], body).await;

    assert_eq!(status, 400);
    tokio::time::sleep(Linger::default().time_max + Duration::from_secs(1)).await;
    assert!(fate.dropped.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_client_that_waits_for_leave_is_not_given_it_by_a_refusal() {
    let fate = Arc::<Fate>::default();
    let body = Pieces::new(&fate, 8, MIB);
    let headers = [("idempotency-key", "\"bad"), ("expect", "100-continue")];

    let status = send(&layer().await, &headers, body).await;

    assert_eq!(status, 400);
    assert!(fate.dropped.load(Ordering::SeqCst));
    assert_eq!(fate.bytes_read.load(Ordering::SeqCst), 0);
}

/// A server on a free port, of which every keyed request runs once.
async fn served() -> SocketAddr {
    let app = Router::new()
        .route("/uploads", post(async || "stored"))
        .layer(layer().await);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Sends all of a request before it reads a byte, as simple clients do.
#[tokio::test]
async fn a_client_that_sends_all_of_a_large_body_first_hears_that_it_is_too_large() {
    let address = served().await;

    for framing in [
        "content-length: 8388608\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n800000\r\n",
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!("POST /uploads HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\n{framing}");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
            .write_all(&vec![b'x'; 8 * MIB])
            .await
            .expect("all of it is taken");
        if framing.starts_with("transfer") {
            stream.write_all(b"\r\n0\r\n\r\n").await.unwrap();
        }
        let mut heard = [0; 12];
        stream
            .read_exact(&mut heard)
            .await
            .expect("the answer is heard");

        assert_eq!(&heard, b"HTTP/1.1 413");
    }
}
