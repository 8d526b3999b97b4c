//! From settings to services: what each route's requests meet.

use std::sync::Arc;

use http::HeaderValue;
use onlyonce_core::{Engine, OnLapse};
use onlyonce_tower::observe::Observing;
use onlyonce_tower::{Allowance, BufferLimit, IdempotencyLayer, KnownHosts, Linger};
use tower_layer::Layer;

use super::{Classify, Handling};
use crate::auth_check::AuthCheck;
use crate::failure::Failure;
use crate::forward::LEASE;
use crate::identify::{Identified, Naming};
use crate::lookup::Asking;
use crate::mcp::{Endpoint, Inner};
use crate::settings::{McpSettings, RouteSettings, Settings, Treatment};
use crate::upstream::Upstream;

/// What all requests share, also those of a site that was replaced.
#[derive(Clone)]
pub(crate) struct Bounds {
    pub(crate) allowance: Allowance,
    pub(crate) buffers: BufferLimit,
    /// What is seen where nothing is enforced.
    pub(crate) observing: Observing,
}

/// What all routes share.
pub(super) struct Common<'a> {
    pub(super) engine: &'a Engine,
    pub(super) bounds: &'a Bounds,
    pub(super) settings: &'a Settings,
    /// What the gateway is asked for by, where that is known.
    pub(super) hosts: Option<KnownHosts>,
}

impl Common<'_> {
    /// What a route's requests meet; `authorization` is what its lookup asks with.
    pub(super) fn handling(
        &self,
        route: &RouteSettings,
        authorization: Option<&HeaderValue>,
        upstream: Upstream,
    ) -> Handling {
        match &route.treatment {
            Treatment::Pass => Handling::Pass(upstream),
            Treatment::Observe => {
                let observed = self.bounds.observing.route(&route.name());
                let layer = self.layer(route).observe(&observed);
                let layer = layer.buffers(self.bounds.buffers.clone());
                Handling::Observe(layer.layer(upstream))
            }
            Treatment::Once => self.once(route, authorization, upstream),
            Treatment::Mcp(mcp) => self.endpoint(route, mcp, upstream),
        }
    }

    fn once(
        &self,
        route: &RouteSettings,
        authorization: Option<&HeaderValue>,
        upstream: Upstream,
    ) -> Handling {
        let names = &self.settings.names;
        let asking = route.lookup.as_ref().map(|lookup| {
            let authorization = authorization.cloned();
            Arc::new(Asking::new(
                lookup,
                authorization,
                names.clone(),
                &route.policy,
            ))
        });
        let layer = self.layer(route).buffers(self.bounds.buffers.clone());
        let layer = match &asking {
            Some(asking) => layer.reconcile(asking.reconciler()),
            None => layer,
        };
        let check = auth_check(route, &upstream);
        let upstream = Identified {
            upstream,
            naming: Arc::new(Naming {
                names: names.clone(),
                place: route.key_place.clone(),
                asking,
            }),
        };
        Handling::Once(layer.layer(upstream), check)
    }

    fn endpoint(&self, route: &RouteSettings, mcp: &McpSettings, upstream: Upstream) -> Handling {
        let terms = Arc::new(crate::mcp::Terms::new(
            mcp.rules.clone(),
            mcp.origins.clone(),
            self.hosts.clone(),
            &route.policy,
            self.bounds.buffers.clone(),
        ));
        let layer = self.layer(route);
        let layer = match crate::mcp::reconciler(&terms) {
            Some(reconciler) => layer.reconcile(reconciler),
            None => layer,
        };
        let check = auth_check(route, &upstream);
        let server = Identified {
            upstream,
            naming: Arc::new(Naming {
                names: self.settings.names.clone(),
                place: None,
                asking: None,
            }),
        };
        Handling::Mcp(Endpoint {
            terms,
            service: layer.layer(Inner(server)),
            check,
        })
    }

    fn layer(&self, route: &RouteSettings) -> IdempotencyLayer<Classify> {
        let classify: Classify = Failure::release;
        let mut policy = route.policy.clone();
        if route.lookup.is_some() {
            // What is in doubt is looked up rather than run again.
            policy.on_lapse = OnLapse::Hold;
        }
        let mut layer = IdempotencyLayer::new(self.engine.clone())
            .policy(policy)
            .allowance(self.bounds.allowance.clone())
            // `Settings::warnings` says it once for all routes.
            .quiet()
            // `ClientBody` reads on by itself when it is dropped.
            .linger(Linger::NONE)
            .classify_errors(classify);
        if let Some(verifier) = &self.settings.credentials.verifier {
            layer = layer.tokens(verifier.clone());
        }
        if route.transactional {
            layer = layer.lease_header(LEASE);
        }
        if let Some(matches) = &route.matches {
            // By the table of routes, before a request gets here.
            layer = layer.matched_route(&*matches.path);
        }
        match &route.operation {
            Some(operation) => layer.operation(Arc::clone(operation.name())),
            None => layer,
        }
    }
}

fn auth_check(route: &RouteSettings, upstream: &Upstream) -> Option<Arc<AuthCheck>> {
    let ask = route.auth_check.as_ref()?;
    let key_header = &route.policy.http.key_header;
    Some(Arc::new(AuthCheck::new(ask, key_header, upstream.clone())))
}
