//! From settings to rules: what a route is told, as a policy, a scope and a layer.

use std::sync::Arc;

use onlyonce_core::{Engine, OnLapse, Policy};
use onlyonce_mcp::{PatternError, Rules, Tools};
use onlyonce_tower::observe::{ObservedRoute, Observing};
use onlyonce_tower::scope::JwtVerifier;
use onlyonce_tower::{Allowance, BufferLimit, IdempotencyLayer, KnownHosts, Linger};
use tower_layer::Layer;

use super::{Classify, Handling};
use crate::auth_check::AuthCheck;
use crate::config::{Ask, ConfigError, KeyPlace, Lookup, Match, Mcp, Operation};
use crate::failure::Failure;
use crate::forward::LEASE;
use crate::identify::{Identified, Names, Naming};
use crate::lookup::Asking;
use crate::mcp::{Endpoint, Inner};
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
    pub(super) verifier: Option<JwtVerifier>,
    pub(super) names: Names,
    /// What the gateway is asked for by, where that is known.
    pub(super) hosts: Option<KnownHosts>,
}

/// What a route is told.
pub(super) struct Terms<'a> {
    pub(super) policy: Policy,
    pub(super) matches: Option<&'a Match>,
    pub(super) operation: Option<&'a Operation>,
    pub(super) key_place: Option<&'a KeyPlace>,
    /// Whether the upstream completes records in its own transactions.
    pub(super) transactional: bool,
    pub(super) lookup: Option<&'a Lookup>,
    /// Where it is counted what enforcing would do, if that is all.
    pub(super) observed: Option<ObservedRoute>,
}

impl Terms<'_> {
    pub(super) fn handling(
        &self,
        common: &Common<'_>,
        upstream: Upstream,
        check: Option<&Ask>,
    ) -> Result<Handling, ConfigError> {
        if let Some(route) = &self.observed {
            let layer = self.layer(common)?.observe(route);
            let layer = layer.buffers(common.bounds.buffers.clone());
            return Ok(Handling::Observe(layer.layer(upstream)));
        }
        let check = check.map(|ask| {
            Arc::new(AuthCheck::new(
                ask,
                &self.policy.http.key_header,
                upstream.clone(),
            ))
        });
        let asking = self.asking(common)?;
        let layer = self.layer(common)?.buffers(common.bounds.buffers.clone());
        let layer = match &asking {
            Some(asking) => layer.reconcile(asking.reconciler()),
            None => layer,
        };
        let matcher = self.matches.map(|it| it.matcher()).transpose()?;
        let upstream = Identified {
            upstream,
            naming: Arc::new(Naming {
                names: common.names.clone(),
                place: self.key_place.cloned(),
                asking,
                matcher: matcher.map(Arc::new),
            }),
        };
        Ok(Handling::Once(layer.layer(upstream), check))
    }

    /// The same for an MCP endpoint.
    pub(super) fn endpoint(
        &self,
        common: &Common<'_>,
        upstream: Upstream,
        check: Option<&Ask>,
        settings: &Mcp,
    ) -> Result<Handling, ConfigError> {
        let bad = |error: PatternError| ConfigError::new("route.mcp.tools", error.to_string());
        let usual = Rules::new("");
        let verifications = settings.reconcile.iter();
        let rules = Rules {
            tools: Tools::new(&settings.tools, &settings.except).map_err(bad)?,
            call_ids: [usual.call_ids, settings.call_ids.clone()].concat(),
            reconcile: verifications.map(|it| it.0.clone()).collect(),
            ..Rules::new("")
        };
        let terms = Arc::new(crate::mcp::Terms::new(
            rules,
            settings.origins.clone(),
            common.hosts.clone(),
            &self.policy,
            common.bounds.buffers.clone(),
        ));
        let layer = self.layer(common)?;
        let layer = match crate::mcp::reconciler(&terms) {
            Some(reconciler) => layer.reconcile(reconciler),
            None => layer,
        };
        let key_header = &self.policy.http.key_header;
        let check = check.map(|ask| Arc::new(AuthCheck::new(ask, key_header, upstream.clone())));
        let server = Identified {
            upstream,
            naming: Arc::new(Naming {
                names: common.names.clone(),
                place: None,
                asking: None,
                matcher: None,
            }),
        };
        Ok(Handling::Mcp(Endpoint {
            terms,
            service: layer.layer(Inner(server)),
            check,
        }))
    }

    /// How its operations are looked up, where they are.
    fn asking(&self, common: &Common<'_>) -> Result<Option<Arc<Asking>>, ConfigError> {
        let Some(lookup) = self.lookup else {
            return Ok(None);
        };
        let asking = Asking::new(
            lookup,
            common.names.clone(),
            self.policy.http.key_header.clone(),
            self.policy.limits.response_bytes_max,
        )?;
        Ok(Some(Arc::new(asking)))
    }

    fn layer(&self, common: &Common<'_>) -> Result<IdempotencyLayer<Classify>, ConfigError> {
        let classify: Classify = Failure::release;
        let mut policy = self.policy.clone();
        if self.lookup.is_some() {
            // What is in doubt is looked up rather than run again.
            policy.on_lapse = OnLapse::Hold;
        }
        let mut layer = IdempotencyLayer::new(common.engine.clone())
            .policy(policy)
            .allowance(common.bounds.allowance.clone())
            // `config::warnings` says it once for all routes.
            .quiet()
            // `ClientBody` reads on by itself when it is dropped.
            .linger(Linger::NONE)
            .classify_errors(classify);
        if let Some(verifier) = &common.verifier {
            layer = layer.tokens(verifier.clone());
        }
        if self.transactional {
            layer = layer.lease_header(LEASE);
        }
        if let Some(matches) = self.matches {
            layer = layer
                .route(&matches.path)
                .map_err(|error| ConfigError::new(format!("route {matches}"), error.to_string()))?;
        }
        Ok(match self.operation {
            Some(operation) => layer.operation(Arc::clone(operation.name())),
            None => layer,
        })
    }
}
