//! What the layer costs: a new key and a replay on the memory store, against the bare handler, in
//! one process on one thread. Body 300 B, response 200 B. Allocations are counted beside the time.

use std::convert::Infallible;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use divan::{AllocProfiler, Bencher};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use onlyonce_core::{Engine, MemoryStore};
use onlyonce_tower::IdempotencyLayer;
use tokio::runtime::Runtime;
use tower::{Layer, Service, service_fn};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

const SAMPLES: u32 = 200;
const CALLS_A_SAMPLE: u32 = 500;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be built")
}

async fn handler<B>(request: Request<B>) -> Result<Response<Full<Bytes>>, Infallible>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Debug,
{
    let body = request
        .into_body()
        .collect()
        .await
        .expect("the body reads")
        .to_bytes();
    divan::black_box(body);
    let mut response = Response::new(Full::from(Bytes::from_static(&[b'r'; 200])));
    response.headers_mut().insert(
        "content-type",
        http::HeaderValue::from_static("application/json"),
    );
    Ok(response)
}

fn request(key: Option<u64>) -> Request<Full<Bytes>> {
    static BODY: std::sync::LazyLock<Bytes> = std::sync::LazyLock::new(|| {
        let body = format!(
            r#"{{"amount":1999,"currency":"EUR","customer":"cus_7","note":"{}"}}"#,
            "x".repeat(300 - 62)
        );
        body.into()
    });
    let builder = Request::post("http://shop.example/charges")
        .header("content-type", "application/json")
        .header("authorization", "Bearer an-opaque-token-of-ordinary-length");
    let builder = match key {
        Some(key) => builder.header(
            "idempotency-key",
            format!("550e8400-e29b-41d4-a716-{key:012}"),
        ),
        None => builder,
    };
    builder
        .body(Full::from(BODY.clone()))
        .expect("the request is well formed")
}

fn layered(
    runtime: &Runtime,
) -> impl Service<
    Request<Full<Bytes>>,
    Response = Response<impl http_body::Body<Data = Bytes, Error = Infallible>>,
    Error = Infallible,
    Future: Future + Send,
> + Clone {
    let store = MemoryStore::new().records_max(100_000_000);
    let engine = runtime
        .block_on(async { Engine::open(store).await })
        .expect("the engine opens");
    IdempotencyLayer::new(engine).layer(service_fn(handler))
}

fn measure<S, B>(
    bencher: Bencher<'_, '_>,
    runtime: &Runtime,
    service: S,
    key: impl Fn() -> Option<u64> + Sync,
) where
    S: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Infallible> + Clone,
{
    let service = std::cell::RefCell::new(service);
    bencher
        .with_inputs(|| request(key()))
        .bench_local_values(|request| {
            // These services are always ready.
            let response = service.borrow_mut().call(request);
            divan::black_box(runtime.block_on(response).expect("infallible").status())
        });
}

#[divan::bench(sample_count = SAMPLES, sample_size = CALLS_A_SAMPLE)]
fn bare_handler(bencher: Bencher<'_, '_>) {
    measure(bencher, &runtime(), service_fn(handler), || None);
}

#[divan::bench(sample_count = SAMPLES, sample_size = CALLS_A_SAMPLE)]
fn pass_through_without_a_key(bencher: Bencher<'_, '_>) {
    let runtime = runtime();
    measure(bencher, &runtime, layered(&runtime), || None);
}

#[divan::bench(sample_count = SAMPLES, sample_size = CALLS_A_SAMPLE)]
fn new_key(bencher: Bencher<'_, '_>) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let runtime = runtime();
    measure(bencher, &runtime, layered(&runtime), || {
        Some(NEXT.fetch_add(1, Ordering::Relaxed))
    });
}

#[divan::bench(sample_count = SAMPLES, sample_size = CALLS_A_SAMPLE)]
fn replay(bencher: Bencher<'_, '_>) {
    let runtime = runtime();
    measure(bencher, &runtime, layered(&runtime), || Some(7));
}
