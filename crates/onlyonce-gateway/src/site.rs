//! The routes of a gateway, made from its settings once: which requests are protected how, and
//! where they go. A reload makes a new site; requests under way keep the old one.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, Request, Response};
use hyper::body::Incoming;
use onlyonce_core::{Engine, Release};
use onlyonce_observe::traces::{RequestSpan, Traces};
use onlyonce_tower::{
    BrokenOff, ClientAddress, Idempotent, KnownHosts, PathParams, Replayed, RequestBody,
};
use tower_service::Service;

use crate::auth_check::AuthCheck;
use crate::body::{self, BodyPatience, ClientBody, GatewayBody};
use crate::failure::Failure;
use crate::forward::{self, Peer};
use crate::identify::{Identified, Names};
use crate::mcp::Endpoint;
use crate::path;
use crate::proxied::ProxyHint;
use crate::settings::{Found, RouteSettings, RouteTable, Settings};
use crate::target::{self, BadHead};
use crate::traces;
use crate::upstream::{Healths, Upstream, UpstreamError};

pub(crate) use self::background::chores;
pub(crate) use self::per_worker::{PerWorker, Sites};
pub(crate) use self::terms::Bounds;
use self::terms::Common;
use self::upstreams::Upstreams;

mod asking;
mod background;
mod per_worker;
mod terms;
mod upstreams;

type Classify = fn(&Failure) -> Release;
type Once = Idempotent<Identified, Classify>;

/// Everything a request can meet.
pub(crate) struct Site {
    /// Which requests go by which of the routes.
    table: Arc<RouteTable>,
    routes: Vec<Handling>,
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

    /// The path of the operation that a request asks the status of, if it does.
    fn status_target<'p>(&self, method: &Method, path: &'p str) -> Option<&'p str> {
        match self {
            Self::Once(service, _) => service.status_target(method, path),
            Self::Observe(service) => service.status_target(method, path),
            Self::Pass(_) | Self::Mcp(_) => None,
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
    /// The site that the settings describe, on `engine`.
    pub(crate) fn new(
        settings: &Settings,
        engine: &Engine,
        bounds: &Bounds,
        traces: Option<&Traces>,
        healths: &Healths,
    ) -> Self {
        let common = Common {
            engine,
            bounds,
            settings,
            hosts: hosts(settings),
        };
        let mut upstreams = Upstreams::default();
        let timeouts = &settings.timeouts;
        let mut handling = |route: &RouteSettings, lookup: Option<&HeaderValue>| {
            let upstream = upstreams.named(&route.upstream, timeouts.upstream, healths);
            common.handling(route, lookup, upstream)
        };
        let routes = settings.routes.all.iter();
        let routes = routes.zip(&settings.credentials.lookups);
        Self {
            table: Arc::clone(&settings.routes.table),
            routes: routes
                .map(|(route, lookup)| handling(route, lookup.as_ref()))
                .collect(),
            rest: settings.routes.rest.as_ref().map(|it| handling(it, None)),
            address_header: settings.limits.address_header.clone(),
            read_headers: Arc::clone(&settings.routes.read_headers),
            own_names: settings.names.clone(),
            proxy_hint: ProxyHint::default(),
            body_patience: timeouts.bodies,
            web_socket_idle_max: timeouts.websocket,
            traces: traces.cloned(),
        }
    }

    /// The same with connections of its own to the upstreams.
    fn again(&self) -> Self {
        let mut upstreams = Upstreams::default();
        let routes = self.routes.iter().map(|it| it.over(&mut upstreams));
        Self {
            table: Arc::clone(&self.table),
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
        let handling = match self.handling(&mut request) {
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

    /// How a request is handled, if it has somewhere to go; with the parameters of its route in its extensions.
    fn handling<B>(&self, request: &mut Request<B>) -> Result<Option<Handling>, BadHead> {
        let (method, path) = (request.method(), request.uri().path());
        let found = self.table.find(method, path);
        let number = found.as_ref().map(|found| found.number);
        // Without routes there is nothing that two readings could differ in.
        if !self.table.is_empty() && self.is_ambiguous(method, path, number) {
            return Err(BadHead::Ambiguous);
        }
        let handling = self.handling_of(number);
        if let (Some(Found { number, params }), Some(handling)) = (found, handling) {
            let asked = handling.status_target(method, path);
            let asked = asked.and_then(|of| self.table.params(number, of));
            let params = asked.map_or(params, PathParams::of_operation);
            request.extensions_mut().insert(params);
        }
        Ok(handling.cloned())
    }

    fn handling_of(&self, route: Option<usize>) -> Option<&Handling> {
        match route {
            Some(number) => Some(&self.routes[number]),
            None => self.rest.as_ref(),
        }
    }

    /// Whether another reading of a path would be handled differently. Where nothing is enforced and
    /// something observed, either way is right: nothing is refused there.
    fn is_ambiguous(&self, method: &Method, path: &str, found: Option<usize>) -> bool {
        let others = path::other_readings(path).map(|other| self.table.number_of(method, &other));
        let others: Vec<_> = others.filter(|other| *other != found).collect();
        if others.is_empty() {
            return false;
        }
        let all = || others.iter().chain([&found]);
        let handled = || all().filter_map(|route| self.handling_of(*route));
        handled().any(Handling::enforces) || !handled().any(Handling::observes)
    }
}

/// What the gateway is asked for by, if only this machine reaches it and nothing is said to be in front of
/// it. Any other may have any name.
fn hosts(settings: &Settings) -> Option<KnownHosts> {
    let listen = settings.listen;
    let is_local = listen.ip().is_loopback() && settings.limits.address_header.is_none();
    is_local.then(|| KnownHosts::of(listen))
}
