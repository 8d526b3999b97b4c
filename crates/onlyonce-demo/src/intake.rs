//! The intake service: drafts, fields, submissions, each operation once. Every intake has a router
//! of its own, with its own time to live; a request finds it by the name in its path, or by the
//! submission it is about.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{MatchedPath, OriginalUri, Path, Request, State};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, patch, post};
use onlyonce::policy::{Duplicate, KeyNeed};
use onlyonce::{IdempotencyLayer, Policy, Profile};
use onlyonce_observe::BreakerState;
use onlyonce_observe::Observed;
use serde::Deserialize;
use serde_json::{Map, Value};
use tower::ServiceExt as _;

pub(crate) use self::definition::Definition;

use crate::actor::Actor;
use crate::db::{Db, Work};
use crate::ids::Ids;
use crate::once::{Once, traced};
use crate::outbox::Outbox;
use crate::record::Noted;
use crate::reply::{Fault, word};

mod definition;
pub(crate) mod events;
mod handlers;

/// What the handlers of one intake share.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) db: Db,
    pub(crate) ids: Ids,
    pub(crate) outbox: Outbox,
    pub(crate) noted: Noted,
    pub(crate) definition: Arc<Definition>,
}

/// A path about one submission.
#[derive(Deserialize)]
pub(crate) struct SubmissionPath {
    pub(crate) submission: String,
}

/// The routers, by intake.
#[derive(Clone)]
struct Intakes {
    db: Db,
    observed: Observed,
    routers: Arc<BTreeMap<String, Router>>,
}

/// The routes of all intakes under `profile`.
pub(crate) fn router(
    desks: Vec<Desk>,
    observed: &Observed,
    once: &Once,
    db: &Db,
    profile: Profile,
) -> Router {
    let envelope = profile.policy().http.envelope;
    let routers = desks
        .into_iter()
        .map(|desk| {
            let id = desk.definition.id.clone();
            (id, of_intake(desk, once, profile.policy()))
        })
        .collect();
    let intakes = Intakes {
        db: db.clone(),
        observed: observed.clone(),
        routers: Arc::new(routers),
    };
    Router::new()
        .route("/api/intakes/{intake}/submissions", post(by_name))
        .route("/api/intakes/{intake}/submit", post(by_name))
        .route("/api/intakes/{intake}/validate", post(by_name))
        .route("/api/submissions/{id}", get(by_submission))
        .route("/api/submissions/{id}/fields", patch(by_submission))
        .route("/api/submissions/{id}/submit", post(by_submission))
        .route("/api/submissions/{id}/validate", post(by_submission))
        .route("/api/submissions/{id}/events", get(by_submission))
        .layer(from_fn_with_state(envelope, word))
        .with_state(intakes)
}

/// One intake's own routes: what changes something runs once, what only looks needs no key.
fn of_intake(desk: Desk, once: &Once, mut policy: Policy) -> Router {
    let envelope = policy.http.envelope;
    let id = &desk.definition.id;
    let at = |what: &str| format!("/api/intakes/{id}/{what}");
    let rules = &desk.definition.idempotency;
    if let Some(ttl_ms) = rules.ttl_ms {
        policy.keep_for = Duration::from_millis(ttl_ms);
    }
    if let Some(lock_timeout_ms) = rules.lock_timeout_ms {
        policy.duplicate = Duplicate::Wait(Duration::from_millis(lock_timeout_ms));
    }
    if let Some(execution_timeout_ms) = rules.execution_timeout_ms {
        policy.execution_max = Duration::from_millis(execution_timeout_ms);
    }
    // What changes nothing needs no key; under one it is answered once, as everything is.
    let mut looks = policy.clone();
    looks.http.methods = looks.http.methods.all_need(KeyNeed::Optional);
    let spans = once.spans(&policy);
    let [layer, optional] = [policy, looks].map(|policy| {
        let layer = IdempotencyLayer::new(once.engine.clone());
        layer.policy(policy).label(id.as_str())
    });
    let under = |layer: &IdempotencyLayer, operation: &'static str, handler: MethodRouter<Desk>| {
        let handler = handler.layer(from_fn_with_state(envelope, word));
        if desk.definition.idempotency.enabled {
            handler
                .layer(layer.clone().operation(operation))
                .layer(from_fn_with_state(spans.clone(), traced))
        } else {
            handler
        }
    };
    let once = |operation, handler| under(&layer, operation, handler);
    let asked = |handler| under(&optional, "validate", handler);
    let changing = Router::new()
        .route(&at("submissions"), once("create", post(handlers::create)))
        .route(&at("submit"), once("submit", post(handlers::submit_whole)))
        .route(
            &at("submissions/{submission}/fields"),
            once("setFields", patch(handlers::set_fields)),
        )
        .route(
            &at("submissions/{submission}/submit"),
            once("submit", post(handlers::submit)),
        )
        .route(&at("validate"), asked(post(handlers::validate_fields)))
        .route(
            &at("submissions/{submission}/validate"),
            asked(post(handlers::validate)),
        );
    let looking = Router::new()
        .route(&at("submissions/{submission}"), get(handlers::show))
        .route(&at("submissions/{submission}/events"), get(events::list))
        .layer(from_fn_with_state(envelope, word));
    changing.merge(looking).with_state(desk)
}

async fn by_name(
    State(intakes): State<Intakes>,
    Path(intake): Path<String>,
    request: Request,
) -> Response {
    intakes.answer(&intake, request).await
}

async fn by_submission(
    State(intakes): State<Intakes>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    const SELECT: &str = "SELECT intake FROM submissions WHERE id = $1";
    // Rows and records are in one database: what is known of one is known of the other.
    if intakes.observed.breaker() == BreakerState::Open {
        return Fault::down().into_response();
    }
    match intakes.db.all::<(String,)>(SELECT, &[(&id).into()]).await {
        Ok(found) => match found.first() {
            Some((intake,)) => intakes.answer_about(intake, request).await,
            None => no_submission().into_response(),
        },
        Err(error) => Fault::from(error).into_response(),
    }
}

impl Intakes {
    /// Answers a request about a submission as one to its intake: a key is the intake's, whichever of
    /// its paths it is sent to (D0 §2.2).
    async fn answer_about(&self, intake: &str, mut request: Request) -> Response {
        let target = request.uri().path_and_query().map_or("/", |it| it.as_str());
        let within = target.strip_prefix("/api/").unwrap_or_default();
        let Ok(target) = format!("/api/intakes/{intake}/{within}").parse() else {
            return no_submission().into_response();
        };
        *request.uri_mut() = target;
        request.extensions_mut().remove::<OriginalUri>();
        self.answer(intake, request).await
    }

    async fn answer(&self, intake: &str, mut request: Request) -> Response {
        let Some(router) = self.routers.get(intake) else {
            return Fault::not_found(format!("there is no intake `{intake}`")).into_response();
        };
        // The intake's own route is the one to be seen in records.
        request.extensions_mut().remove::<MatchedPath>();
        match router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

fn no_submission() -> Fault {
    Fault::not_found("there is no such submission")
}

/// A submission as it stands.
#[derive(sqlx::FromRow)]
pub(crate) struct Submission {
    owner: Option<String>,
    state: String,
    fields: String,
    /// How many events it has.
    events: i64,
    created_at: i64,
    submitted_at: Option<i64>,
}

impl Submission {
    /// Reads it for `actor`: what belongs to another is not there.
    pub(crate) async fn read(desk: &Desk, id: &str, actor: &Actor) -> Result<Self, Fault> {
        const SELECT: &str = "SELECT owner, state, fields, events, created_at, submitted_at \
            FROM submissions WHERE id = $1";
        let found = desk.db.all(SELECT, &[id.into()]).await?;
        Self::of(found, actor)
    }

    /// The same to change it: nobody else does until the work ends, and the event to come is
    /// counted already.
    async fn hold(work: &mut Work, id: &str, actor: &Actor) -> Result<Self, Fault> {
        const HOLD: &str = "UPDATE submissions SET events = events + 1 WHERE id = $1 \
            RETURNING owner, state, fields, events, created_at, submitted_at";
        let found = work.all(HOLD, &[id.into()]).await?;
        Self::of(found, actor)
    }

    fn of(found: Vec<Self>, actor: &Actor) -> Result<Self, Fault> {
        let mut found = found.into_iter();
        found
            .find(|it| it.owner.is_none() || it.owner.as_deref() == actor.name())
            .ok_or_else(no_submission)
    }

    fn fields(&self) -> Map<String, Value> {
        serde_json::from_str(&self.fields).unwrap_or_default()
    }
}
