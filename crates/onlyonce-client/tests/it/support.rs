//! A service that counts what it applies, a transport that follows a script, and a clock that
//! moves when it is told to.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use axum::routing::post;
use bytes::Bytes;
use onlyonce_client::{Http, Operation, Reply, Sender, Transport, TransportError};
use onlyonce_core::{Clock, Engine, MemoryStore, Policy, SystemClock, Timestamp, async_trait};
use onlyonce_tower::IdempotencyLayer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// A real service behind the layer: `POST /apply/{name}` happens, and is counted, unless the name
/// ends in `-bad`.
pub(crate) struct Service {
    pub(crate) address: String,
    applied: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Service {
    pub(crate) async fn start(policy: Policy) -> Self {
        let applied = Arc::<Mutex<BTreeMap<String, u32>>>::default();
        let engine = Engine::open(MemoryStore::new()).await.unwrap();
        let app = Router::new()
            .route("/apply/{name}", post(apply).delete(apply))
            .with_state(Arc::clone(&applied))
            .layer(IdempotencyLayer::new(engine).policy(policy));
        let address = serve(app).await;
        Self { address, applied }
    }

    pub(crate) fn url(&self, name: impl std::fmt::Display) -> String {
        format!("{}/apply/{name}", self.address)
    }

    pub(crate) fn operation(&self, name: impl std::fmt::Display) -> Operation {
        let body = json!({"name": name.to_string()});
        Operation::post(&self.url(name))
            .unwrap()
            .json(&body)
            .unwrap()
    }

    pub(crate) fn applied(&self) -> BTreeMap<String, u32> {
        self.applied.lock().unwrap().clone()
    }
}

async fn apply(
    State(applied): State<Arc<Mutex<BTreeMap<String, u32>>>>,
    Path(name): Path<String>,
) -> (StatusCode, String) {
    // So that duplicates can meet it while it runs.
    tokio::task::yield_now().await;
    if name.ends_with("-bad") {
        return (StatusCode::BAD_REQUEST, json!({"no": name}).to_string());
    }
    *applied.lock().unwrap().entry(name.clone()).or_default() += 1;
    (StatusCode::CREATED, json!({"applied": name}).to_string())
}

/// Serves on a free port; gives its address.
pub(crate) async fn serve(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// The transport that operations should have.
pub(crate) fn http() -> Http {
    Http::new().unwrap()
}

/// What the network or the service does with one request.
pub(crate) enum Say {
    Status(u16),
    /// With this header and this body.
    With(u16, &'static str, &'static str, &'static str),
    Json(u16, Value),
    RetryAfter(u16, u64),
    NotSent,
    Cut,
    Hang,
}

/// A request that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) key: String,
    pub(crate) what: String,
    pub(crate) authorization: Option<String>,
    pub(crate) at: Duration,
}

/// A transport that does what it is told, and 200 after that.
#[derive(Clone)]
pub(crate) struct Script {
    says: Arc<Mutex<VecDeque<Say>>>,
    seen: Arc<watch::Sender<Vec<Seen>>>,
    clock: Arc<SystemClock>,
}

impl Script {
    pub(crate) fn new(says: impl IntoIterator<Item = Say>) -> Self {
        Self {
            says: Arc::new(Mutex::new(says.into_iter().collect())),
            seen: Arc::new(watch::Sender::new(Vec::new())),
            clock: Arc::new(SystemClock::new()),
        }
    }

    pub(crate) fn sender(&self) -> Sender {
        Sender::new(self.clone())
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.borrow().clone()
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.key).collect()
    }

    /// Method and path of all requests.
    pub(crate) fn story(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.what).collect()
    }

    /// Returns once this many requests were sent.
    pub(crate) async fn until_seen(&self, count: usize) {
        let mut seen = self.seen.subscribe();
        seen.wait_for(|seen| seen.len() >= count).await.unwrap();
    }
}

#[async_trait]
impl Transport for Script {
    async fn exchange(&self, request: Request<Bytes>) -> Result<Reply, TransportError> {
        let text = |name: &str| {
            let value = request.headers().get(name)?;
            Some(value.to_str().unwrap().to_owned())
        };
        let seen = Seen {
            key: text("idempotency-key").unwrap(),
            what: format!("{} {}", request.method(), request.uri().path()),
            authorization: text("authorization"),
            at: self.clock.now(),
        };
        self.seen.send_modify(|all| all.push(seen));
        let say = self.says.lock().unwrap().pop_front();
        let answer = |status: u16, headers: HeaderMap, body: Bytes| {
            Ok(Reply::new(
                StatusCode::from_u16(status).unwrap(),
                headers,
                body,
            ))
        };
        match say.unwrap_or(Say::Status(200)) {
            Say::Status(status) => answer(status, HeaderMap::new(), Bytes::new()),
            Say::With(status, name, value, body) => {
                let header = (name.parse().unwrap(), HeaderValue::from_static(value));
                answer(status, HeaderMap::from_iter([header]), body.into())
            }
            Say::Json(status, body) => answer(status, HeaderMap::new(), body.to_string().into()),
            Say::RetryAfter(status, seconds) => {
                let after = ("retry-after".parse().unwrap(), HeaderValue::from(seconds));
                answer(status, HeaderMap::from_iter([after]), Bytes::new())
            }
            Say::NotSent => Err(TransportError::NotSent("refused".into())),
            Say::Cut => Err(TransportError::Interrupted("reset".into())),
            Say::Hang => std::future::pending().await,
        }
    }
}

/// An operation for a script.
pub(crate) fn operation(name: &str) -> Operation {
    Operation::post(&format!("http://service.test/{name}"))
        .unwrap()
        .json(&json!({"name": name}))
        .unwrap()
}

/// A wall clock that tests move.
pub(crate) struct Calendar {
    clock: SystemClock,
    wall: AtomicU64,
}

impl Calendar {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            clock: SystemClock::new(),
            wall: AtomicU64::new(1_700_000_000_000),
        })
    }

    pub(crate) fn pass(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap();
        self.wall.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for Calendar {
    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_millis(self.wall.load(Ordering::SeqCst))
    }
}

pub(crate) const HOUR: Duration = Duration::from_secs(60 * 60);
