//! The layer: an engine, a policy, and what keeps callers apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Extensions, HeaderName};
use onlyonce_core::{Engine, OnLapse, Policy, Profile, Reason, Refusal, Release};
use thiserror::Error;
use tower_layer::Layer;

use crate::allowance::Allowance;
use crate::buffer::BufferLimit;
use crate::linger::Linger;
use crate::observe::ObservedRoute;
use crate::params::PathParams;
use crate::reconcile::Reconciler;
#[cfg(feature = "jwt")]
use crate::scope::JwtVerifier;
use crate::scope::{ScopePart, ScopeRule};
use crate::service::Idempotent;

/// Makes a service run each keyed request once.
///
/// ```
/// # use onlyonce_core::{Engine, MemoryStore, Profile};
/// # use onlyonce_tower::{IdempotencyLayer, ScopePart};
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let engine = Engine::open(MemoryStore::new()).await.unwrap();
/// let layer = IdempotencyLayer::new(engine)
///     .profile(Profile::Formbridge)
///     .route("/api/intakes/{intake}/submit")
///     .unwrap()
///     .scope([ScopePart::Path("intake".into()), ScopePart::Caller]);
/// # let _ = layer;
/// # }
/// ```
#[derive(Clone)]
pub struct IdempotencyLayer<C = ErrorsAreUnknown> {
    settings: Settings,
    classify: C,
}

/// What a layer is made of; cheap to clone.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) engine: Engine,
    pub(crate) policy: Arc<Policy>,
    pub(crate) scope: Arc<ScopeRule>,
    pub(crate) route: Option<Arc<Route>>,
    /// What its operations are called in records, logs and metrics, instead of the route's pattern.
    pub(crate) operation: Option<Arc<str>>,
    /// What it is done for, such as an intake's name, where no part of the scope says so.
    pub(crate) label: Option<Arc<str>>,
    pub(crate) allowance: Option<Allowance>,
    pub(crate) buffers: Option<BufferLimit>,
    pub(crate) linger: Linger,
    /// The header in which the inner service gets the lease.
    pub(crate) lease_header: Option<HeaderName>,
    pub(crate) reconciler: Option<Reconciler>,
    /// What is only looked at: then nothing is enforced.
    pub(crate) observed: Option<ObservedRoute>,
    warned: Arc<AtomicBool>,
}

/// A route pattern: what it matches is covered, the rest passes through.
pub(crate) struct Route {
    pub(crate) pattern: Arc<str>,
    /// None if a router before the layer has matched it.
    matcher: Option<matchit::Router<()>>,
}

/// Which path of a request a route shall match.
pub(crate) enum Matched<'p> {
    /// Its own.
    Own(&'p str),
    /// That of the operation whose status it asks for.
    Operation(&'p str),
}

impl Route {
    /// The path's parameters, if it matches.
    pub(crate) fn params(
        &self,
        path: &Matched<'_>,
        extensions: &Extensions,
    ) -> Result<Option<PathParams>, Refusal> {
        let (Matched::Own(text) | Matched::Operation(text)) = path;
        if let Some(matcher) = &self.matcher {
            let found = matcher.at(text).ok();
            return Ok(found.map(|found| PathParams::new(found.params.iter())));
        }
        let Some(params) = extensions.get::<PathParams>() else {
            // Taken for a route without parameters, records of different paths would be one.
            let why = "no router has matched its path, which tells records apart";
            return Err(Refusal::new(Reason::Unscoped).because(why));
        };
        Ok(match path {
            Matched::Own(_) => Some(params.clone()),
            Matched::Operation(_) => params.are_of_operation().then(|| params.clone()),
        })
    }
}

/// A route pattern that cannot be read.
#[derive(Debug, Error)]
#[error("the route pattern {pattern:?} is not valid: write it like /api/intakes/{{intake}}/submit")]
pub struct RouteError {
    pattern: String,
    source: matchit::InsertError,
}

impl IdempotencyLayer {
    /// A layer with the `standard` profile: key optional, one scope for each caller. Another path
    /// under the same key is refused.
    pub fn new(engine: Engine) -> Self {
        let policy = Policy::default();
        Self {
            settings: Settings {
                engine,
                scope: Arc::new(ScopeRule::new(policy.http.scope.clone())),
                policy: Arc::new(policy),
                route: None,
                operation: None,
                label: None,
                allowance: None,
                buffers: None,
                linger: Linger::default(),
                lease_header: None,
                reconciler: None,
                observed: None,
                warned: Arc::default(),
            },
            classify: ErrorsAreUnknown,
        }
    }
}

impl<C> IdempotencyLayer<C> {
    /// Uses a profile's rules and scope.
    #[must_use]
    pub fn profile(self, profile: Profile) -> Self {
        self.policy(profile.policy())
    }

    /// Uses these rules, [within their bounds](Policy::bounded), and the scope they name.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        let policy = policy.bounded();
        let scope = self.settings.scope.of(policy.http.scope.clone());
        self.settings.scope = Arc::new(scope.actors(policy.http.actor_type.clone()));
        self.settings.policy = Arc::new(policy);
        self
    }

    /// Addresses records by these parts, and always by host. The caller is added where none of
    /// them keeps callers apart.
    #[must_use]
    pub fn scope(mut self, parts: impl IntoIterator<Item = ScopePart>) -> Self {
        self.settings.scope = Arc::new(self.settings.scope.of(parts.into_iter().collect()));
        self
    }

    /// Verifies tokens like this, for the scope part [`Jwt`](ScopePart::Jwt). Without it, a request
    /// whose scope asks for a verified token is refused.
    #[cfg(feature = "jwt")]
    #[must_use]
    pub fn tokens(mut self, verifier: JwtVerifier) -> Self {
        self.settings.scope = Arc::new(self.settings.scope.verified_by(verifier));
        self
    }

    /// Covers only paths that match `pattern`, such as `/orders/{id}/pay`; its parameters can be
    /// parts of the scope.
    ///
    /// The path is compared as it was sent, as axum's router does. If the service behind resolves
    /// dot segments or escapes before it looks for a handler, resolve them before this layer too:
    /// otherwise a path that is spelled differently reaches the handler and is not covered.
    pub fn route(mut self, pattern: &str) -> Result<Self, RouteError> {
        let mut matcher = matchit::Router::new();
        matcher.insert(pattern, ()).map_err(|source| RouteError {
            pattern: pattern.into(),
            source,
        })?;
        self.settings.route = Some(Arc::new(Route {
            pattern: pattern.into(),
            matcher: Some(matcher),
        }));
        Ok(self)
    }

    /// Covers what a router before this layer has matched by `pattern`, without matching it again. The router
    /// puts the parameters of the path into the request's extensions, as [`PathParams`], also where there are
    /// none: a request that comes without is refused.
    #[must_use]
    pub fn matched_route(mut self, pattern: impl Into<Arc<str>>) -> Self {
        self.settings.route = Some(Arc::new(Route {
            pattern: pattern.into(),
            matcher: None,
        }));
        self
    }

    /// Calls what runs here `name` in records, logs and metrics, as in `create` or `submit`.
    /// Otherwise it is called by the route's pattern, or by its path where there is none.
    #[must_use]
    pub fn operation(mut self, name: impl Into<Arc<str>>) -> Self {
        self.settings.operation = Some(name.into());
        self
    }

    /// Says what it is done for, such as the name of an intake: the label `intake_id` of metrics, log
    /// and audit. Otherwise that is the first path parameter of the scope.
    #[must_use]
    pub fn label(mut self, name: impl Into<Arc<str>>) -> Self {
        self.settings.label = Some(name.into());
        self
    }

    /// Bounds what one caller may take; layers that share an allowance count together.
    #[must_use]
    pub fn allowance(mut self, allowance: Allowance) -> Self {
        self.settings.allowance = Some(allowance);
        self
    }

    /// Bounds the request bodies that are held in memory at a time; layers that share a limit count
    /// together. A request for whose body there is no room is refused before anything is claimed.
    /// Without it only each body has a bound.
    #[must_use]
    pub fn buffers(mut self, limit: BufferLimit) -> Self {
        self.settings.buffers = Some(limit);
        self
    }

    /// Reads so much of a body that is refused; [`Linger::default`] otherwise.
    #[must_use]
    pub fn linger(mut self, linger: Linger) -> Self {
        self.settings.linger = linger;
        self
    }

    /// Hands the lease to the inner service in this request header, as a
    /// [`Capability`](onlyonce_core::Capability): with it, a program behind a proxy completes the
    /// record in its own database transaction. What a client sends in this header is dropped.
    #[must_use]
    pub fn lease_header(mut self, name: HeaderName) -> Self {
        self.settings.lease_header = Some(name);
        self
    }

    /// Finds out like this whether an earlier attempt happened, before a request runs again: its claim
    /// lapsed, its handler failed with an error of unknown meaning, took too long, or gave an answer
    /// that is neither stored nor from before the work. The policy's `on_lapse` counts no more. Every
    /// process on the store that serves these requests must do so.
    ///
    /// ```
    /// # use onlyonce_core::{Engine, Finding, MemoryStore, Response};
    /// # use onlyonce_tower::{IdempotencyLayer, Question, Reconciler};
    /// # async fn find_charge(_id: String) -> Result<Option<String>, String> { Ok(None) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let engine = Engine::open(MemoryStore::new()).await.unwrap();
    /// let reconciler = Reconciler::new(|question: Question| async move {
    ///     let id = question.execution().operation().to_string();
    ///     match find_charge(id).await {
    ///         Ok(Some(charge)) => {
    ///             Finding::happened(Response::new(http::StatusCode::CREATED, charge))
    ///         }
    ///         Ok(None) => Finding::DidNot,
    ///         Err(_) => Finding::CannotTell,
    ///     }
    /// });
    /// let layer = IdempotencyLayer::new(engine).reconcile(reconciler);
    /// # let _ = layer;
    /// # }
    /// ```
    #[must_use]
    pub fn reconcile(mut self, reconciler: Reconciler) -> Self {
        self.settings.reconciler = Some(reconciler);
        self
    }

    /// Enforces nothing: every request goes to the inner service as it comes, and its answer to the
    /// caller as it is. What enforcing would have done is counted for `route`. Nothing is read from the
    /// store or written to it, so that requests run as if it were not there; a request whose key runs
    /// here while another layer enforces it runs again.
    #[must_use]
    pub fn observe(mut self, route: &ObservedRoute) -> Self {
        self.settings.observed = Some(route.clone());
        self
    }

    /// Says what an error of the inner service means: that nothing ran, or that the outcome is unknown.
    pub fn classify_errors<D>(self, classify: D) -> IdempotencyLayer<D> {
        IdempotencyLayer {
            settings: self.settings,
            classify,
        }
    }

    /// Logs no [`warnings`](Self::warnings) of its own: for a program that shows them itself.
    #[must_use]
    pub fn quiet(self) -> Self {
        self.settings.warned.store(true, Ordering::Relaxed);
        self
    }

    /// What an operator should know before this layer meets callers; logged once when it is used.
    pub fn warnings(&self) -> Vec<&'static str> {
        self.settings.scope.warnings()
    }
}

/// What an error of the inner service means for its request.
pub trait ClassifyError<E>: Clone + Send + Sync + 'static {
    /// [`Release::NotRun`] only if the operation certainly did not happen.
    fn classify(&self, error: &E) -> Release;
}

/// Any error leaves the outcome unknown: the safe assumption.
#[derive(Clone, Copy, Debug)]
pub struct ErrorsAreUnknown;

impl<E> ClassifyError<E> for ErrorsAreUnknown {
    fn classify(&self, _error: &E) -> Release {
        Release::Unknown
    }
}

impl<E, F> ClassifyError<E> for F
where
    F: Fn(&E) -> Release + Clone + Send + Sync + 'static,
{
    fn classify(&self, error: &E) -> Release {
        self(error)
    }
}

impl<S, C: Clone> Layer<S> for IdempotencyLayer<C> {
    type Service = Idempotent<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        if !self.settings.warned.swap(true, Ordering::Relaxed) {
            for warning in self.warnings() {
                tracing::warn!(target: "onlyonce", "{warning}");
            }
        }
        let mut settings = self.settings.clone();
        if settings.reconciler.is_some() && settings.policy.on_lapse != OnLapse::Hold {
            // An answer that is not stored leaves doubt as under `hold`, and the doubt is looked into.
            Arc::make_mut(&mut settings.policy).on_lapse = OnLapse::Hold;
        }
        Idempotent::new(inner, Arc::new(settings), self.classify.clone())
    }
}
