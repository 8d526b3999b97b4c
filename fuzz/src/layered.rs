//! A service behind the layer, on no socket and in no time: the clock stands still.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use onlyonce_core::{Engine, Execution, MemoryStore, Policy, SlotSecret};
use onlyonce_tower::{IdempotencyLayer, Replayed, RequestBody, ResponseBody, ScopePart};
use tower::util::BoxCloneSyncService;
use tower::{Layer as _, ServiceExt as _, service_fn};

/// The answer of every run.
pub(crate) struct Handler {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

pub(crate) struct Layered {
    pub(crate) engine: Engine,
    service: BoxCloneSyncService<Request<Body>, Response<ResponseBody<Body>>, Infallible>,
    runs: Arc<AtomicUsize>,
    keyed: Arc<AtomicUsize>,
}

/// A request that can be sent again.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) is_replay: bool,
}

/// Runs `work` to its end.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without sockets or threads needs nothing from the system")
        .block_on(work)
}

/// An engine on an empty store.
async fn engine() -> Engine {
    Engine::builder(MemoryStore::new())
        .secret(SlotSecret::from_bytes([7; SlotSecret::BYTES]))
        .open()
        .await
        .expect("an engine opens on an empty store")
}

impl Layered {
    /// The handler behind a layer with this policy, and this scope if any.
    pub(crate) async fn open(
        policy: Policy,
        scope: Option<Vec<ScopePart>>,
        handler: Handler,
    ) -> Self {
        let engine = engine().await;
        let mut layer = IdempotencyLayer::new(engine.clone()).policy(policy);
        if let Some(scope) = scope {
            layer = layer.scope(scope);
        }
        let (runs, keyed) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let counted = (Arc::clone(&runs), Arc::clone(&keyed));
        let handler = Arc::new(handler);
        let inner = service_fn(move |request: Request<RequestBody<Body>>| {
            counted.0.fetch_add(1, Ordering::Relaxed);
            let is_keyed = request.extensions().get::<Execution>().is_some();
            counted.1.fetch_add(is_keyed.into(), Ordering::Relaxed);
            let mut response = Response::new(Body::from(handler.body.clone()));
            *response.status_mut() = handler.status;
            std::future::ready(Ok::<_, Infallible>(response))
        });
        Self {
            engine,
            service: BoxCloneSyncService::new(layer.layer(inner)),
            runs,
            keyed,
        }
    }

    pub(crate) async fn send(&self, ask: &Ask) -> Answer {
        let Ok(response) = self.service.clone().oneshot(ask.request()).await;
        Answer::of(response.map(Body::new)).await
    }

    /// How often the handler ran.
    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }

    /// How often it ran under a key.
    pub(crate) fn keyed_runs(&self) -> usize {
        self.keyed.load(Ordering::Relaxed)
    }
}

impl Ask {
    /// `METHOD target`, a line for each header, an empty line, the body; nothing if there is no such
    /// request.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let end = text.windows(2).position(|pair| pair == b"\n\n");
        let (head, body) = match end {
            Some(at) => (&text[..at], &text[at + 2..]),
            None => (text, &b""[..]),
        };
        let mut lines = head.split(|byte| *byte == b'\n');
        let first = lines.next()?;
        let space = first.iter().position(|byte| *byte == b' ')?;
        let mut headers = HeaderMap::new();
        for line in lines {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let name = HeaderName::from_bytes(&line[..colon]).ok()?;
            headers.append(
                name,
                HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?,
            );
        }
        Some(Self {
            method: Method::from_bytes(&first[..space]).ok()?,
            uri: Uri::try_from(&first[space + 1..]).ok()?,
            headers,
            body: Bytes::copy_from_slice(body),
        })
    }

    pub(crate) fn request(&self) -> Request<Body> {
        let mut request = Request::new(Body::from(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}

impl Answer {
    /// A response, read to its end.
    pub(crate) async fn of(response: Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("a body in memory ends");
        Self {
            status: parts.status,
            headers: parts.headers,
            body: body.to_bytes(),
            is_replay: parts.extensions.get::<Replayed>().is_some(),
        }
    }

    pub(crate) fn is_json(&self) -> bool {
        let kind = self.headers.get(http::header::CONTENT_TYPE);
        kind.is_some_and(|kind| kind.as_bytes().ends_with(b"json"))
            && serde_json::from_slice::<serde_json::Value>(&self.body).is_ok()
    }
}
