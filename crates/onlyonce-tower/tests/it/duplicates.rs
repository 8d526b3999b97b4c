//! Many duplicates of one key at once, and callers who go away: over the layer, and over real
//! connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use onlyonce_core::{
    Claim, Claimed, Completed, Engine, Event, Lease, MemoryStore, Operate, Policy, Release,
    Released, Renewed, Response, Slot, Store, StoreError, Subscriber, Token, async_trait,
};
use onlyonce_tower::IdempotencyLayer;
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;
use tower::{Layer, ServiceExt, service_fn};

const DUPLICATES: usize = 10_000;

/// The memory store, counting what it is asked.
#[derive(Default)]
struct Counted {
    inner: MemoryStore,
    claims: AtomicUsize,
    completions: AtomicUsize,
}

#[async_trait]
impl Store for Counted {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        self.claims.fetch_add(1, Ordering::SeqCst);
        self.inner.claim(claim).await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        self.inner.renew(lease, lease_for).await
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        self.completions.fetch_add(1, Ordering::SeqCst);
        self.inner.complete(lease, response, keep_for).await
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        self.inner.release(lease, why).await
    }

    async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        self.inner.settled(slot, seen, at_most).await
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(&self.inner)
    }
}

/// Counts the duplicates that have attached.
#[derive(Default)]
struct Attached(AtomicUsize);

impl Subscriber for Attached {
    fn on_event(&self, _about: &onlyonce_core::About<'_>, event: &Event) {
        if matches!(event, Event::Attached { .. }) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

async fn eventually(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_thousand_concurrent_duplicates_run_once_and_get_one_answer() {
    let store = Arc::new(Counted::default());
    let attached = Arc::new(Attached::default());
    let subscriber: Arc<dyn Subscriber> = attached.clone();
    let engine = Engine::builder(Arc::clone(&store))
        .subscribe(subscriber)
        .open()
        .await
        .unwrap();
    let policy = Policy {
        local_waiters_max: 2 * DUPLICATES,
        duplicate: onlyonce_core::policy::Duplicate::Wait(Duration::from_secs(600)),
        execution_max: Duration::from_secs(600),
        ..Policy::default()
    };
    let (runs, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let handler = {
        let (runs, gate) = (Arc::clone(&runs), Arc::clone(&gate));
        service_fn(move |_request: Request<_>| {
            let (runs, gate) = (Arc::clone(&runs), Arc::clone(&gate));
            async move {
                let number = runs.fetch_add(1, Ordering::SeqCst) + 1;
                let _pass = gate.acquire().await.unwrap();
                let body = Full::from(format!("charge {number}"));
                Ok::<_, std::convert::Infallible>(http::Response::new(body))
            }
        })
    };
    let service = IdempotencyLayer::new(engine).policy(policy).layer(handler);

    let racing: Vec<_> = (0..DUPLICATES)
        .map(|_| {
            let request = Request::post("http://shop.example/charges")
                .header("idempotency-key", "the-one-key")
                .body(Full::from("same body"))
                .unwrap();
            let service = service.clone();
            tokio::spawn(async move {
                let response = service.oneshot(request).await.unwrap();
                let (parts, body) = response.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let replayed = parts.headers.contains_key("idempotent-replayed");
                (parts.status, body, replayed)
            })
        })
        .collect();
    eventually(|| attached.0.load(Ordering::SeqCst) == DUPLICATES - 1).await;
    gate.add_permits(1);
    let answers = join_all(racing).await;

    let mut replays = 0;
    for answer in answers {
        let (status, body, replayed) = answer.unwrap();
        assert_eq!((status, &body[..]), (StatusCode::OK, &b"charge 1"[..]));
        replays += usize::from(replayed);
    }
    assert_eq!(replays, DUPLICATES - 1);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(store.claims.load(Ordering::SeqCst), 1);
    assert_eq!(store.completions.load(Ordering::SeqCst), 1);
}

/// A real server whose handler waits for the gate.
struct Server {
    address: std::net::SocketAddr,
    runs: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
}

async fn serve() -> Server {
    let engine = Engine::open(MemoryStore::new()).await.unwrap();
    let (runs, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let handler = {
        let (runs, gate) = (Arc::clone(&runs), Arc::clone(&gate));
        move || async move {
            let number = runs.fetch_add(1, Ordering::SeqCst) + 1;
            let _pass = gate.acquire().await.unwrap();
            format!("charge {number}")
        }
    };
    let app = Router::new()
        .route("/charges", post(handler))
        .layer(IdempotencyLayer::new(engine));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    Server {
        address,
        runs,
        gate,
    }
}

impl Server {
    fn request(&self) -> Request<Full<Bytes>> {
        Request::post(format!("http://{}/charges", self.address))
            .header("idempotency-key", "the-one-key")
            .body(Full::from("same body"))
            .unwrap()
    }

    async fn started(&self) {
        eventually(|| self.runs.load(Ordering::SeqCst) == 1).await;
    }

    /// The retry replays the first run, and nothing ran twice.
    async fn retry_replays(&self, http2: bool) {
        let client = Client::builder(TokioExecutor::new())
            .http2_only(http2)
            .build_http();
        let response = client.request(self.request()).await.unwrap();
        assert_eq!(response.headers()["idempotent-replayed"], "true");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "charge 1");
        assert_eq!(self.runs.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_http1_connection_does_not_cancel_the_handler() {
    let server = serve().await;
    let mut connection = tokio::net::TcpStream::connect(server.address)
        .await
        .unwrap();
    let head = format!(
        "POST /charges HTTP/1.1\r\nhost: {}\r\nidempotency-key: the-one-key\r\ncontent-length: 9\r\n\r\nsame body",
        server.address
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    server.started().await;

    drop(connection);
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.gate.add_permits(10);

    server.retry_replays(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_http2_stream_does_not_cancel_the_handler() {
    let server = serve().await;
    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http();
    let call = tokio::spawn(client.request(server.request()));
    server.started().await;

    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.gate.add_permits(10);

    server.retry_replays(true).await;
}
