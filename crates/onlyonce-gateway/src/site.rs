//! The routes of a gateway, made from its settings once: which requests are protected how, and
//! where they go. A reload makes a new site; requests under way keep the old one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Method, Request, Response};
use hyper::body::Incoming;
use onlyonce_core::{Engine, OnLapse, Policy, Release};
use onlyonce_observe::traces::{RequestSpan, Traces};
use onlyonce_tower::{
    BrokenOff, ClientAddress, Idempotent, KnownHosts, Linger, Replayed, RequestBody,
};
use tower_service::Service;

use crate::auth_check::AuthCheck;
use crate::body::{self, BodyPatience, ClientBody, GatewayBody};
use crate::config::{self, Config, ConfigError, Protocol, REST, Span, Timeout};
use crate::failure::Failure;
use crate::forward::{self, Peer};
use crate::gateway::{LISTEN, fixed};
use crate::identify::{Identified, Names};
use crate::mcp::Endpoint;
use crate::path;
use crate::proxied::ProxyHint;
use crate::target::{self, BadHead};
use crate::traces;
use crate::upstream::{Healths, Upstream, UpstreamError};

pub(crate) use self::background::chores;
pub(crate) use self::per_worker::{PerWorker, Sites};
pub(crate) use self::terms::Bounds;
use self::terms::{Common, Terms};
use self::upstreams::Upstreams;
pub(crate) use self::upstreams::patience as upstream_patience;

mod asking;
mod background;
mod per_worker;
mod terms;
mod upstreams;

const BODY_MAX: Duration = Duration::from_secs(30);
const BODY_WHOLE_MAX: Duration = Duration::from_secs(300);
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(75);
const TOOL_MAX: Duration = Duration::from_secs(60 * 60);
pub(crate) const WEB_SOCKET_IDLE_MAX: Duration = Duration::from_secs(3600);

type Classify = fn(&Failure) -> Release;
type Once = Idempotent<Identified, Classify>;

/// Everything a request can meet.
pub(crate) struct Site {
    routes: Vec<Route>,
    /// For what no route matches; without an upstream of its own, such a request is not found.
    rest: Option<Handling>,
    /// Where something in front of us says whose request it is.
    address_header: Option<HeaderName>,
    /// Headers that the settings give a meaning: no client can have them removed.
    read_headers: Arc<[HeaderName]>,
    /// What no client can say to an upstream.
    own_names: Names,
    proxy_hint: ProxyHint,
    body_patience: BodyPatience,
    web_socket_idle_max: Duration,
    traces: Option<Traces>,
}

struct Route {
    method: Option<Method>,
    matcher: Arc<matchit::Router<()>>,
    handling: Handling,
}

#[derive(Clone)]
enum Handling {
    Pass(Upstream),
    Once(Once, Option<Arc<AuthCheck>>),
    /// Passes too, and is looked at on its way.
    Observe(Idempotent<Upstream, Classify>),
    Mcp(Endpoint),
}

impl Handling {
    /// The same over other connections.
    fn over(&self, upstreams: &mut Upstreams) -> Self {
        match self {
            Self::Pass(upstream) => Self::Pass(upstreams.like(upstream)),
            Self::Once(service, check) => {
                let upstream = upstreams.like(&service.inner().upstream);
                let check = check
                    .as_deref()
                    .map(|check| Arc::new(check.over(&upstream)));
                Self::Once(service.around(service.inner().over(upstream)), check)
            }
            Self::Observe(service) => {
                Self::Observe(service.around(upstreams.like(service.inner())))
            }
            Self::Mcp(endpoint) => Self::Mcp(endpoint.over(&upstreams.like(endpoint.upstream()))),
        }
    }

    /// Whether a contract holds for its requests.
    fn enforces(&self) -> bool {
        match self {
            Self::Once(..) | Self::Mcp(_) => true,
            Self::Pass(_) | Self::Observe(_) => false,
        }
    }

    /// Whether its requests are looked at.
    fn observes(&self) -> bool {
        match self {
            Self::Observe(_) => true,
            Self::Pass(_) | Self::Once(..) | Self::Mcp(_) => false,
        }
    }
}

impl Site {
    /// The site that `config` describes, on `engine`.
    pub(crate) fn new(
        config: &Config,
        engine: &Engine,
        bounds: &Bounds,
        traces: Option<&Traces>,
        healths: &Healths,
    ) -> Result<Self, ConfigError> {
        let common = Common {
            engine,
            bounds,
            verifier: crate::identity::verifier(config)?,
            names: Names::of(&config.identity),
            hosts: hosts(config),
        };
        let patience = upstream_patience(config);
        let mut upstreams = Upstreams::default();
        let mut routes = Vec::with_capacity(config.route.len());
        for route in &config.route {
            let address = route.upstream.as_ref().or(config.upstream.as_ref());
            let Some(address) = address else { continue };
            let upstream = upstreams.named(address, patience, healths)?;
            let handling = if route.pass {
                Handling::Pass(upstream)
            } else {
                let terms = Terms {
                    policy: match route.protocol {
                        Protocol::Http => policy(config, Some(route))?,
                        Protocol::Mcp => tool_policy(config, route)?,
                    },
                    matches: Some(&route.matches),
                    operation: route.operation.as_ref(),
                    key_place: route.upstream_key_in.as_ref(),
                    transactional: route.transactional,
                    lookup: route.reconcile.as_ref(),
                    observed: config
                        .is_observed(Some(route))
                        .then(|| bounds.observing.route(&route.matches.to_string())),
                };
                let check = route.auth_check.as_ref().or(config.auth_check.as_ref());
                match route.protocol {
                    Protocol::Http => terms.handling(&common, upstream, check)?,
                    Protocol::Mcp => terms.endpoint(&common, upstream, check, &route.mcp)?,
                }
            };
            routes.push(Route {
                method: route.matches.method.clone(),
                matcher: Arc::new(route.matches.matcher()?),
                handling,
            });
        }
        let rest = match &config.upstream {
            Some(address) => {
                let terms = Terms {
                    policy: policy(config, None)?,
                    matches: None,
                    operation: None,
                    key_place: None,
                    transactional: false,
                    lookup: None,
                    observed: config
                        .is_observed(None)
                        .then(|| bounds.observing.route(REST)),
                };
                let check = config.auth_check.as_ref();
                Some(terms.handling(
                    &common,
                    upstreams.named(address, patience, healths)?,
                    check,
                )?)
            }
            None => None,
        };
        let address_header = config.limits.address_header.as_ref();
        Ok(Self {
            routes,
            rest,
            address_header: address_header.and_then(|name| name.parse().ok()),
            read_headers: read_headers(config)?,
            own_names: common.names,
            proxy_hint: ProxyHint::default(),
            body_patience: body_patience(config),
            web_socket_idle_max: config
                .timeouts
                .websocket
                .map_or(WEB_SOCKET_IDLE_MAX, Span::get),
            traces: traces.cloned(),
        })
    }

    /// The same with connections of its own to the upstreams.
    fn again(&self) -> Self {
        let mut upstreams = Upstreams::default();
        let routes = self.routes.iter().map(|route| Route {
            method: route.method.clone(),
            matcher: Arc::clone(&route.matcher),
            handling: route.handling.over(&mut upstreams),
        });
        Self {
            routes: routes.collect(),
            rest: self.rest.as_ref().map(|rest| rest.over(&mut upstreams)),
            address_header: self.address_header.clone(),
            read_headers: Arc::clone(&self.read_headers),
            own_names: self.own_names.clone(),
            proxy_hint: self.proxy_hint.clone(),
            body_patience: self.body_patience,
            web_socket_idle_max: self.web_socket_idle_max,
            traces: self.traces.clone(),
        }
    }

    /// Answers one request.
    ///
    /// What few requests need is in a box of its own: a connection copies this future with each request,
    /// and has room for it for as long as it is open.
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Response<GatewayBody> {
        let mut request = match self.received(request) {
            Ok(request) => request,
            Err(bad) => return bad.answer(),
        };
        let asked = self.asked_for_status(request.method(), request.uri().path());
        if !asked.is_empty() {
            return asking::ask(asked, request).await;
        }
        let handling = match self.handling(&request) {
            Ok(handling) => handling,
            Err(bad) => return bad.answer(),
        };
        match handling {
            Some(Handling::Once(mut service, check)) => {
                if service.is_keyed(&request) {
                    request.body_mut().bound_as_a_whole();
                }
                if let Some(via) = service.inner().via() {
                    request.extensions_mut().insert(via);
                }
                let span = self.span(&service, &mut request);
                let asked = check.map(|check| (check.request(&request), check));
                let response = match service.call(request).await {
                    Ok(response) => match response.extensions().get::<BrokenOff>() {
                        Some(broken) => {
                            let health = service.inner().upstream.health();
                            health.failed(&UpstreamError::BrokenOff);
                            body::upstream_failed(&Failure::broken_off(*broken))
                        }
                        None => response.map(body::answered),
                    },
                    Err(failure) => body::upstream_failed(&failure),
                };
                if let Some(span) = span {
                    traces::end(span, &response);
                }
                match asked {
                    Some((asked, check)) if response.extensions().get::<Replayed>().is_some() => {
                        Box::pin(check.pass(asked, response)).await
                    }
                    Some(_) | None => response,
                }
            }
            Some(Handling::Observe(mut service)) => match service.call(request).await {
                Ok(response) => response.map(body::answered),
                Err(failure) => body::upstream_failed(&failure),
            },
            Some(Handling::Pass(mut upstream)) => {
                match upstream.call(request.map(RequestBody::from)).await {
                    Ok(response) => response.map(body::passed),
                    Err(failure) => body::upstream_failed(&failure),
                }
            }
            Some(Handling::Mcp(endpoint)) => Box::pin(endpoint.answer(request)).await,
            None => body::not_found(),
        }
    }

    /// The span of a keyed request, where there are traces.
    fn span(&self, service: &Once, request: &mut Request<ClientBody>) -> Option<RequestSpan> {
        let traces = self.traces.as_ref()?;
        let route = service.keyed_route(request)?;
        let method = request.method().clone();
        Some(traces.begin(&method, &route, request.headers_mut()))
    }

    /// How long nothing may move on a WebSocket.
    pub(crate) fn web_socket_idle_max(&self) -> Duration {
        self.web_socket_idle_max
    }

    /// Reads what is left of a request that is refused by its head, so that its client hears that.
    pub(crate) fn discard(&self, request: Request<Incoming>) {
        drop(self.received(request));
    }

    /// A request as everything behind this sees it: one host and one path, without what belongs
    /// to the client's hop, with what is known of where it came from, and with a body that does
    /// not wait for ever.
    fn received(&self, request: Request<Incoming>) -> Result<Request<ClientBody>, BadHead> {
        let (mut parts, body) = request.into_parts();
        // First: what is left of it is read even if the request is refused.
        let waits_for_leave = onlyonce_tower::waits_for_leave(&parts.headers);
        let body = ClientBody::new(body, self.body_patience, waits_for_leave);
        target::settle(&mut parts)?;
        forward::end_hop(&mut parts.headers, &self.read_headers);
        self.own_names.remove_from(&mut parts.headers);
        let named = self.address_header.as_ref();
        let named = named.and_then(|name| forward::client_of(&parts.headers, name));
        let peer = parts.extensions.get::<Peer>().map(Peer::ip);
        if self.address_header.is_none() {
            self.proxy_hint.look(&parts.headers, peer);
        }
        if let Some(address) = named.or(peer) {
            parts.extensions.insert(ClientAddress(address));
        }
        Ok(Request::from_parts(parts, body))
    }

    /// How a request is handled, if it has somewhere to go.
    fn handling<B>(&self, request: &Request<B>) -> Result<Option<Handling>, BadHead> {
        let (method, path) = (request.method(), request.uri().path());
        let found = self.route_of(method, path);
        // Without routes there is nothing that two readings could differ in.
        if !self.routes.is_empty() && self.is_ambiguous(method, path, found) {
            return Err(BadHead::Ambiguous);
        }
        Ok(self.handling_of(found).cloned())
    }

    fn handling_of(&self, route: Option<usize>) -> Option<&Handling> {
        match route {
            Some(number) => Some(&self.routes[number].handling),
            None => self.rest.as_ref(),
        }
    }

    /// Whether another reading of a path would be handled differently. Where nothing is enforced and
    /// something observed, either way is right: nothing is refused there.
    fn is_ambiguous(&self, method: &Method, path: &str, found: Option<usize>) -> bool {
        let others = path::other_readings(path).map(|other| self.route_of(method, &other));
        let others: Vec<_> = others.filter(|other| *other != found).collect();
        if others.is_empty() {
            return false;
        }
        let all = || others.iter().chain([&found]);
        let handled = || all().filter_map(|route| self.handling_of(*route));
        handled().any(Handling::enforces) || !handled().any(Handling::observes)
    }

    /// The number of the first route that matches.
    fn route_of(&self, method: &Method, path: &str) -> Option<usize> {
        self.routes
            .iter()
            .position(|route| route.admits(method, path))
    }
}

impl Route {
    fn admits(&self, method: &Method, path: &str) -> bool {
        self.method.as_ref().is_none_or(|own| own == method) && self.matcher.at(path).is_ok()
    }
}

fn policy(config: &Config, route: Option<&config::Route>) -> Result<Policy, ConfigError> {
    let policy = config.policy(route);
    policy.map_err(|(at, why)| ConfigError::new(at, why))
}

/// The policy of tool calls: where nothing is said of it, what may have run is not run again, and a tool may
/// take its time.
fn tool_policy(config: &Config, route: &config::Route) -> Result<Policy, ConfigError> {
    let mut policy = policy(config, Some(route))?;
    let is_named = config.profile.is_some() || route.profile.is_some();
    let rules = [&config.rules, &route.rules];
    if !is_named && rules.iter().all(|rules| rules.on_lapse.is_none()) {
        policy.on_lapse = OnLapse::Hold;
    }
    if !is_named && rules.iter().all(|rules| rules.execution_max.is_none()) {
        policy.execution_max = TOOL_MAX;
    }
    Ok(policy)
}

/// What the gateway is asked for by, if only this machine reaches it and nothing is said to be in front of
/// it. Any other may have any name.
fn hosts(config: &Config) -> Option<KnownHosts> {
    let listen = config.listen.unwrap_or_else(|| fixed(LISTEN));
    let is_local = listen.ip().is_loopback() && config.limits.address_header.is_none();
    is_local.then(|| KnownHosts::of(listen))
}

/// The headers that contracts and `address_header` name.
fn read_headers(config: &Config) -> Result<Arc<[HeaderName]>, ConfigError> {
    let mut names: BTreeSet<String> = BTreeSet::new();
    let routes = config.route.iter().filter(|route| !route.pass).map(Some);
    for route in routes.chain([None]) {
        let heard = policy(config, route)?.request_headers();
        names.extend(heard.iter().map(ToString::to_string));
    }
    names.extend(config.limits.address_header.clone());
    Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
}

pub(crate) fn body_patience(config: &Config) -> BodyPatience {
    let or = |timeout: Option<Timeout>, usual| timeout.map_or(usual, Span::get);
    let linger = Linger::default();
    BodyPatience {
        pause_max: or(config.timeouts.body, BODY_MAX),
        whole_max: or(config.timeouts.body_whole, BODY_WHOLE_MAX),
        linger: Linger {
            time_max: config.timeouts.linger.map_or(linger.time_max, Span::get),
            ..linger
        },
    }
}
