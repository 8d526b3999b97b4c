//! What every test here stands on: an app with a counting handler behind the layer, requests that
//! can be sent again and again, and answers that are easy to look at. Nothing opens a socket.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use onlyonce_core::operate::{Filter, Page};
use onlyonce_core::{
    Clock, Engine, Event, Execution, MemoryStore, Policy, Profile, Record, Release, SlotSecret,
    Store,
};
use onlyonce_tower::{Allowance, IdempotencyLayer, RequestBody, ScopePart};
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};

mod ask;
mod bodies;
mod carrier;
mod gate;
mod recorder;
mod stores;

pub(crate) use self::ask::{Answer, Ask, ask, post};
pub(crate) use self::bodies::Frames;
use self::carrier::Carrier;
pub(crate) use self::gate::Gate;
pub(crate) use self::recorder::Recorder;
pub(crate) use self::stores::Faulty;

/// The one path most tests use.
pub(crate) const PATH: &str = "/orders";

/// A key that every profile takes: the `n`th UUID of version 4.
pub(crate) fn uuid(n: u64) -> String {
    format!("7c9e6679-7425-40de-944b-{n:012x}")
}

/// The error of the inner service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken(pub(crate) &'static str);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Broken {}

impl From<Infallible> for Broken {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// What a handler gives back.
pub(crate) type Handled = Result<Response<Body>, Broken>;
type Handling = Pin<Box<dyn Future<Output = Handled> + Send>>;
type Handler = Arc<dyn Fn(usize, Request<Body>) -> Handling + Send + Sync>;
type Served = BoxCloneSyncService<Request<Body>, Response<Body>, Broken>;

/// A service behind the layer, and everything a test wants to know of it.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) engine: Engine,
    pub(crate) events: Arc<Recorder>,
    runs: Arc<AtomicUsize>,
    service: Served,
    carrier: Carrier,
}

/// An app before it opens.
pub(crate) struct Builder {
    policy: Policy,
    clock: Option<Arc<dyn Clock>>,
    is_timed: bool,
    scope: Option<Vec<ScopePart>>,
    route: Option<&'static str>,
    operation: Option<&'static str>,
    #[cfg(feature = "jwt")]
    tokens: Option<onlyonce_tower::scope::JwtVerifier>,
    allowance: Option<Allowance>,
    store: Arc<dyn Store>,
    handler: Handler,
    classify: Option<fn(&Broken) -> Release>,
}

/// `{"run":n}` as JSON with this status.
pub(crate) fn numbered(status: u16, run: usize) -> Response<Body> {
    let mut response = Response::new(Body::from(format!(r#"{{"run":{run}}}"#)));
    *response.status_mut() = status.try_into().expect("a status");
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// What the handler of this request knows of its own execution.
pub(crate) fn execution(request: &Request<Body>) -> Execution {
    let execution = request.extensions().get::<Execution>();
    execution.expect("a keyed request").clone()
}

impl App {
    /// An app under a profile's rules.
    pub(crate) fn under(profile: Profile) -> Builder {
        Self::with(profile.policy())
    }

    /// An app under these rules; each run answers 200 with its number.
    pub(crate) fn with(policy: Policy) -> Builder {
        Builder {
            policy,
            clock: None,
            is_timed: true,
            scope: None,
            route: None,
            operation: None,
            #[cfg(feature = "jwt")]
            tokens: None,
            allowance: None,
            store: Arc::new(MemoryStore::new()),
            handler: Arc::new(|run, _| Box::pin(async move { Ok(numbered(200, run)) })),
            classify: None,
        }
    }

    /// An app around an axum router that has its layers already.
    #[cfg(feature = "axum")]
    pub(crate) fn routed(engine: Engine, runs: Arc<AtomicUsize>, router: axum::Router) -> Self {
        Self {
            engine,
            events: Arc::default(),
            runs,
            carrier: Carrier::default(),
            service: BoxCloneSyncService::new(ServiceExt::<Request<Body>>::map_err(
                router,
                Broken::from,
            )),
        }
    }

    /// How often the handler was started.
    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    /// Sends a request; the inner service must not fail.
    pub(crate) async fn send(&self, ask: &Ask) -> Answer {
        self.try_send(ask).await.expect("the inner service failed")
    }

    /// Sends a request that the inner service may fail.
    pub(crate) async fn try_send(&self, ask: &Ask) -> Result<Answer, Broken> {
        self.call(ask.request()).await
    }

    /// Sends any request.
    pub(crate) async fn call(&self, request: Request<Body>) -> Result<Answer, Broken> {
        let request = self.carrier.carry(request);
        let response = self.service.clone().oneshot(request).await?;
        Ok(Answer::of(response).await)
    }

    /// The response with its body still unread.
    pub(crate) async fn respond(&self, ask: &Ask) -> Response<Body> {
        let service = self.service.clone();
        let request = self.carrier.carry(ask.request());
        let response = service.oneshot(request).await;
        response.expect("the inner service failed")
    }

    /// Sends a request in a task of its own.
    pub(crate) fn spawn(&self, ask: &Ask) -> tokio::task::JoinHandle<Answer> {
        let (app, ask) = (self.clone(), ask.clone());
        tokio::spawn(async move { app.send(&ask).await })
    }

    /// Lets other tasks go on until an event has happened; moves no clock.
    pub(crate) async fn until(&self, happened: impl Fn(&Event) -> bool) {
        self.until_times(1, happened).await;
    }

    /// The same until it has happened `times` over.
    pub(crate) async fn until_times(&self, times: usize, happened: impl Fn(&Event) -> bool) {
        const TURNS_MAX: usize = 10_000;
        for _ in 0..TURNS_MAX {
            if self.events.count(&happened) >= times {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("it did not happen; what did: {:?}", self.events.all());
    }

    /// Every record in the store.
    pub(crate) async fn records(&self) -> Vec<Record> {
        let page = Page {
            after: None,
            records_max: usize::MAX,
        };
        let operate = self.engine.store().operate().expect("an operators' side");
        let listed = operate.list(&Filter::default(), &page).await;
        let listed = listed.expect("a store that lists");
        listed.into_iter().map(|(_, record)| record).collect()
    }

    /// The only record in the store.
    pub(crate) async fn record(&self) -> Record {
        let mut records = self.records().await;
        assert_eq!(records.len(), 1, "{records:?}");
        records.remove(0)
    }
}

impl Builder {
    /// Changes the rules.
    pub(crate) fn but(mut self, change: impl FnOnce(&mut Policy)) -> Self {
        change(&mut self.policy);
        self
    }

    /// Reads the time here.
    pub(crate) fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Adds no time to a request with a key.
    pub(crate) fn untimed(mut self) -> Self {
        self.is_timed = false;
        self
    }

    /// Addresses records by these parts.
    pub(crate) fn scope(mut self, parts: impl IntoIterator<Item = ScopePart>) -> Self {
        self.scope = Some(parts.into_iter().collect());
        self
    }

    /// Covers only this route.
    pub(crate) fn route(mut self, pattern: &'static str) -> Self {
        self.route = Some(pattern);
        self
    }

    /// Verifies tokens like this.
    #[cfg(feature = "jwt")]
    pub(crate) fn tokens(mut self, verifier: onlyonce_tower::scope::JwtVerifier) -> Self {
        self.tokens = Some(verifier);
        self
    }

    /// Names what it does.
    pub(crate) fn operation(mut self, name: &'static str) -> Self {
        self.operation = Some(name);
        self
    }

    /// Bounds what a caller may take.
    pub(crate) fn allowance(mut self, allowance: Allowance) -> Self {
        self.allowance = Some(allowance);
        self
    }

    /// Keeps records here.
    pub(crate) fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = store;
        self
    }

    /// Says what the inner service's errors mean.
    pub(crate) fn classify(mut self, classify: fn(&Broken) -> Release) -> Self {
        self.classify = Some(classify);
        self
    }

    /// Answers each run, by its number, with a response.
    pub(crate) fn answer(
        self,
        answer: impl Fn(usize) -> Response<Body> + Send + Sync + 'static,
    ) -> Self {
        self.handler(move |run, _| std::future::ready(Ok(answer(run))))
    }

    /// Handles each run, by its number, with a future.
    pub(crate) fn handler<F>(
        mut self,
        handler: impl Fn(usize, Request<Body>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Handled> + Send + 'static,
    {
        self.handler = Arc::new(move |run, request| Box::pin(handler(run, request)));
        self
    }

    /// Holds every run at `gate` before it is handled.
    pub(crate) fn gate(mut self, gate: &Arc<Gate>) -> Self {
        let (handler, gate) = (self.handler, Arc::clone(gate));
        self.handler = Arc::new(move |run, request| {
            let (handler, gate) = (Arc::clone(&handler), Arc::clone(&gate));
            Box::pin(async move {
                gate.pass().await;
                handler(run, request).await
            })
        });
        self
    }

    /// The app, ready for requests. All apps of a test on one store are processes of one service.
    pub(crate) async fn open(self) -> App {
        let events = Arc::new(Recorder::default());
        let subscriber = Arc::clone(&events);
        let mut carrier = Carrier::of(&self.policy.http);
        if !self.is_timed {
            carrier.time = None;
        }
        let mut engine = Engine::builder(self.store)
            .secret(SlotSecret::from_bytes([7; SlotSecret::BYTES]))
            .subscribe(subscriber);
        if let Some(clock) = self.clock {
            engine = engine.clock(clock);
        }
        let engine = engine.open().await.expect("the engine opens");

        let mut layer = IdempotencyLayer::new(engine.clone()).policy(self.policy);
        if let Some(parts) = self.scope {
            layer = layer.scope(parts);
        }
        if let Some(pattern) = self.route {
            layer = layer.route(pattern).expect("a route pattern");
        }
        #[cfg(feature = "jwt")]
        if let Some(verifier) = self.tokens {
            layer = layer.tokens(verifier);
        }
        if let Some(name) = self.operation {
            layer = layer.operation(name);
        }
        if let Some(allowance) = self.allowance {
            layer = layer.allowance(allowance);
        }

        let runs = Arc::new(AtomicUsize::new(0));
        let (handler, counted) = (self.handler, Arc::clone(&runs));
        let inner = service_fn(move |request: Request<RequestBody<Body>>| {
            let run = counted.fetch_add(1, Ordering::SeqCst) + 1;
            handler(run, request.map(Body::new))
        });
        let outside = ServiceBuilder::new().map_response(
            |response: Response<onlyonce_tower::ResponseBody<Body>>| response.map(Body::new),
        );
        let service = match self.classify {
            Some(classify) => {
                let inner = layer.classify_errors(classify).layer(inner);
                BoxCloneSyncService::new(outside.service(inner))
            }
            None => BoxCloneSyncService::new(outside.service(layer.layer(inner))),
        };
        App {
            engine,
            events,
            runs,
            service,
            carrier,
        }
    }
}
