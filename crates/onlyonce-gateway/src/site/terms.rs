//! From settings to rules: what a route is told, as a policy, a scope and a layer.

use std::sync::Arc;

use onlyonce_core::{Engine, Policy};
use onlyonce_tower::scope::JwtVerifier;
use onlyonce_tower::{Allowance, IdempotencyLayer, Linger};
use tower_layer::Layer;

use super::{Classify, Handling};
use crate::auth_check::AuthCheck;
use crate::config::{Ask, ConfigError, Match, Operation};
use crate::failure::Failure;
use crate::upstream::Upstream;

/// What all routes share.
pub(super) struct Common<'a> {
    pub(super) engine: &'a Engine,
    pub(super) allowance: &'a Allowance,
    pub(super) verifier: Option<JwtVerifier>,
}

/// What a route is told.
pub(super) struct Terms<'a> {
    pub(super) policy: Policy,
    pub(super) matches: Option<&'a Match>,
    pub(super) operation: Option<&'a Operation>,
}

impl Terms<'_> {
    pub(super) fn handling(
        &self,
        common: &Common<'_>,
        upstream: Upstream,
        check: Option<&Ask>,
    ) -> Result<Handling, ConfigError> {
        let check = check.map(|ask| Arc::new(AuthCheck::new(ask, upstream.clone())));
        Ok(Handling::Once(self.layer(common)?.layer(upstream), check))
    }

    fn layer(&self, common: &Common<'_>) -> Result<IdempotencyLayer<Classify>, ConfigError> {
        let classify: Classify = Failure::release;
        let mut layer = IdempotencyLayer::new(common.engine.clone())
            .policy(self.policy.clone())
            .allowance(common.allowance.clone())
            // `ClientBody` reads on by itself when it is dropped.
            .linger(Linger::NONE)
            .classify_errors(classify);
        if let Some(verifier) = &common.verifier {
            layer = layer.tokens(verifier.clone());
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
