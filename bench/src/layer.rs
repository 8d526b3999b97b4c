//! What the tower layer costs a call, in one process on one thread: without a key, with a new one and
//! with a replayed one, against the bare handler. `cargo xtask bench layer` also counts allocations.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use onlyonce_core::{Clock as _, Engine, MemoryStore, SystemClock};
use onlyonce_tower::IdempotencyLayer;
use tokio::runtime::Runtime;
use tower::{Layer as _, Service, service_fn};

use crate::budget::Budget;
use crate::failure::Failure;
use crate::report::Report;
use crate::rounds::{Rounds, Sample};
use crate::say;
use crate::wrk;

const CALLS: u32 = 20_000;
const ROUNDS: u32 = 9;
const RECORDS_MAX: usize = 100_000_000;

/// Which keys the calls have.
#[derive(Clone, Copy)]
enum Keys {
    None,
    New,
    Same,
}

pub(crate) fn run(budget: Budget) -> Result<Report, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::doing("start a runtime"))?;
    let store = MemoryStore::new().records_max(RECORDS_MAX);
    let engine = runtime
        .block_on(Engine::open(store))
        .map_err(Failure::doing("start the engine"))?;
    let mut bare = service_fn(handler);
    let mut layered = IdempotencyLayer::new(engine).layer(service_fn(handler));

    let [mut passed, mut new, mut replayed] = [const { Rounds::new() }; 3];
    for round in budget.rounds(ROUNDS) {
        say(&format!("layer: round {round} of {ROUNDS}"));
        let base = turn(&runtime, &mut bare, Keys::None);
        passed.add(turn(&runtime, &mut layered, Keys::None), base);
        new.add(turn(&runtime, &mut layered, Keys::New), base);
        replayed.add(turn(&runtime, &mut layered, Keys::Same), base);
    }
    let mut report = Report::default();
    for (case, rounds) in [
        ("no key / bare handler", passed),
        ("new key / bare handler", new),
        ("replay / bare handler", replayed),
    ] {
        report.rows.push(rounds.time("layer", case));
    }
    Ok(report)
}

fn turn<S, B>(runtime: &Runtime, service: &mut S, keys: Keys) -> Sample
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Infallible>,
{
    let requests: Vec<_> = (0..CALLS).map(|_| request(keys)).collect();
    let clock = SystemClock::new();
    for request in requests {
        // These services are always ready.
        let response = service.call(request);
        match runtime.block_on(response) {
            Ok(response) => {
                std::hint::black_box(response.status());
            }
            Err(never) => match never {},
        }
    }
    Sample {
        rate: f64::from(CALLS) / clock.now().as_secs_f64(),
        ..Sample::default()
    }
}

async fn handler<B>(request: Request<B>) -> Result<Response<Full<Bytes>>, Infallible>
where
    B: http_body::Body<Data = Bytes>,
{
    drop(std::hint::black_box(request.into_body().collect().await));
    let mut response = Response::new(Full::from(Bytes::from_static(&[b'r'; 200])));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    Ok(response)
}

fn request(keys: Keys) -> Request<Full<Bytes>> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = match keys {
        Keys::None => None,
        Keys::New => Some(NEXT.fetch_add(1, Ordering::Relaxed)),
        Keys::Same => Some(0),
    };
    let mut request = Request::new(Full::from(wrk::body(wrk::BODY_BYTES)));
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = http::Uri::from_static("http://127.0.0.1/payments");
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(AUTHORIZATION, HeaderValue::from_static(wrk::AUTHORIZATION));
    if let Some(number) = number {
        let key = format!("550e8400-e29b-41d4-a716-{number:012}");
        let key = HeaderValue::try_from(key).expect("hexadecimal digits make a header");
        headers.insert("idempotency-key", key);
    }
    request
}
