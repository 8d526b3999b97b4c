//! A service on the library, as a process of its own: a handler of three durable steps behind the
//! layer, and a job that looks up whether it happened. Its effects are those of a ledger.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use onlyonce::core::Finding;
use onlyonce::job::Question;
use onlyonce::tower::RequestBody;
use onlyonce::{Engine, Execution, IdempotencyLayer, Job, Policy};
use serde_json::{Value, json};
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::failure::Failure;
use crate::ledger::{OPERATION, Order};
use crate::plan::{Bug, LEASE, LOOK_MAX};
use crate::web::{Activity, json, send, serve};

/// How long the ledger may take for one effect.
const EFFECT_MAX: Duration = Duration::from_secs(10);
/// The steps of a ride.
pub(crate) const STEPS: [&str; 3] = ["reserve", "charge", "mail"];

/// The settings of a worker.
#[derive(Args)]
pub(crate) struct Settings {
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long)]
    store: String,
    #[arg(long)]
    ledger: SocketAddr,
    /// A bug that must be found
    #[arg(long, value_enum)]
    bug: Option<Bug>,
}

struct Worker {
    engine: Engine,
    outside: Outside,
}

/// What lies outside of the process, and how it is treated.
#[derive(Clone, Copy)]
struct Outside {
    ledger: SocketAddr,
    bug: Option<Bug>,
}

/// Serves until it is killed.
pub(crate) async fn run(settings: &Settings) -> Result<(), Failure> {
    let store = onlyonce::open_store(&settings.store).await;
    let store = store.map_err(Failure::doing("open the store of a worker"))?;
    let engine = Engine::open(store).await;
    let worker = Rc::new(Worker {
        engine: engine.map_err(Failure::doing("open the engine of a worker"))?,
        outside: Outside {
            ledger: settings.ledger,
            bug: settings.bug,
        },
    });
    let handler = move |request| Rc::clone(&worker).answer(request);
    let served = serve(settings.listen, Activity::default(), handler).await;
    served.map(drop).map_err(Failure::doing("serve a worker"))
}

impl Worker {
    async fn answer(self: Rc<Self>, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes());
        let body = body.unwrap_or_default();
        let request = Request::from_parts(parts, Full::new(body));
        match request.uri().path() {
            "/rides" => self.ride(request).await,
            "/jobs" => self.work(request).await,
            _ => json(StatusCode::NOT_FOUND, &json!({"error": "nothing here"})),
        }
    }

    /// The handler of steps, behind the layer.
    async fn ride(&self, request: Request<Full<Bytes>>) -> Response<Full<Bytes>> {
        let layer = IdempotencyLayer::new(self.engine.clone()).quiet();
        let layer = layer.policy(Policy {
            lease_for: LEASE,
            ..Policy::default()
        });
        let outside = self.outside;
        let handler = service_fn(move |request: Request<RequestBody<_>>| async move {
            let execution = request.extensions().get::<Execution>().cloned();
            let body = request.into_body().collect().await;
            let order = body.ok().and_then(|body| order(&body.to_bytes()));
            let (Some(execution), Some(order)) = (execution, order) else {
                let wrong = json!({"error": "no key, or no order"});
                return Ok::<_, Infallible>(json(StatusCode::BAD_REQUEST, &wrong));
            };
            Ok(answer(outside.pay(&execution, &order).await))
        });
        let Ok(response) = layer.layer(handler).oneshot(request).await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes());
        Response::from_parts(parts, Full::new(body.unwrap_or_default()))
    }

    /// The job, asked for by the key of the request.
    async fn work(&self, request: Request<Full<Bytes>>) -> Response<Full<Bytes>> {
        let key = request.headers().get("idempotency-key");
        let key = key.and_then(|key| key.to_str().ok()).map(ToOwned::to_owned);
        let Ok(body) = request.into_body().collect().await;
        let (Some(key), Some(order)) = (key, order(&body.to_bytes())) else {
            return json(
                StatusCode::BAD_REQUEST,
                &json!({"error": "no key, or no order"}),
            );
        };
        let outside = self.outside;
        let reference = order.reference.clone();
        let job = self.job();
        let done = job.run_with(&key, &reference, move |execution| async move {
            outside.charge(&execution, "readable", &order).await
        });
        let done = done.await.map(|ran| ran.value);
        answer(done.map_err(|error| error.to_string()))
    }

    fn job(&self) -> Job {
        let outside = self.outside;
        let job = self.engine.job("charge");
        let rules = Policy {
            lease_for: LEASE,
            ..job.rules().clone()
        };
        job.policy(rules)
            .reconcile(move |question: Question| async move { outside.look_up(&question).await })
    }
}

impl Outside {
    /// Three steps, each with a key of its own at the ledger.
    async fn pay(self, execution: &Execution, order: &Order) -> Result<Value, String> {
        let mut made = json!(order.reference);
        for what in STEPS {
            let name = match self.bug {
                Some(Bug::NamelessStep) => format!("{what}-{}", execution.attempt()),
                Some(Bug::TimeoutIsNo | Bug::LeaseSurvives) | None => what.to_owned(),
            };
            let order = Order {
                what: what.to_owned(),
                ..order.clone()
            };
            let step = execution.step(&name, &made);
            made = step
                .run_with(|inside| async move { self.charge(&inside, "keyed", &order).await })
                .await?;
        }
        Ok(made)
    }

    /// One effect at the ledger.
    async fn charge(
        self,
        execution: &Execution,
        kind: &str,
        order: &Order,
    ) -> Result<Value, String> {
        let operation = execution.operation().to_string();
        let body = json!({"reference": order.reference, "what": order.what});
        let request = Request::post(format!("/{kind}"))
            .header(OPERATION, &operation)
            .header("idempotency-key", &operation)
            .body(Full::from(body.to_string()))
            .map_err(|error| error.to_string())?;
        let answer = send(self.ledger, request, EFFECT_MAX).await;
        let answer = answer.map_err(|error| format!("the ledger is lost: {error}"))?;
        value(&answer).ok_or_else(|| format!("the ledger says {}", answer.status()))
    }

    /// Whether an attempt of the job happened. Only a clear answer counts.
    async fn look_up(self, question: &Question) -> Finding {
        let operation = question.execution().operation();
        let request = Request::get(format!("/charges/{operation}")).body(Full::default());
        let Ok(request) = request else {
            return Finding::CannotTell;
        };
        match (send(self.ledger, request, LOOK_MAX).await, self.bug) {
            (Ok(answer), _) if answer.status() == StatusCode::NOT_FOUND => Finding::DidNot,
            (Ok(answer), _) => {
                value(&answer).map_or(Finding::CannotTell, |value| question.happened(&value))
            }
            (Err(_), Some(Bug::TimeoutIsNo)) => Finding::DidNot,
            (Err(_), Some(Bug::NamelessStep | Bug::LeaseSurvives) | None) => Finding::CannotTell,
        }
    }
}

/// What was made, or that it is to be tried again.
fn answer(made: Result<Value, String>) -> Response<Full<Bytes>> {
    match made {
        Ok(value) => json(StatusCode::CREATED, &value),
        Err(why) => json(StatusCode::SERVICE_UNAVAILABLE, &json!({"error": why})),
    }
}

fn value(answer: &Response<Bytes>) -> Option<Value> {
    let is_made = answer.status() == StatusCode::CREATED;
    is_made
        .then(|| serde_json::from_slice(answer.body()).ok())
        .flatten()
}

fn order(body: &[u8]) -> Option<Order> {
    serde_json::from_slice(body).ok()
}
