//! From settings to rules: what a route is told, as a policy, a scope and a layer.

use std::sync::Arc;

use onlyonce_core::policy::{Duplicate, KeyNeed, StoreDown};
use onlyonce_core::{Engine, OnLapse, Policy, Profile};
use onlyonce_tower::scope::JwtVerifier;
use onlyonce_tower::{Allowance, IdempotencyLayer, Linger, ScopePart};
use tower_layer::Layer;

use super::{Classify, Handling};
use crate::auth_check::AuthCheck;
use crate::config::{
    Ask, ConfigError, Count, Down, Lapse, Match, Need, Operation, Part, Retention, Rules, Span,
};
use crate::failure::Failure;
use crate::upstream::Upstream;

/// What all routes share.
pub(super) struct Common<'a> {
    pub(super) engine: &'a Engine,
    pub(super) allowance: &'a Allowance,
    pub(super) verifier: Option<JwtVerifier>,
}

/// What a route is told, before it is a policy.
pub(super) struct Terms<'a> {
    pub(super) profile: Option<Profile>,
    pub(super) scope: Option<&'a Vec<Part>>,
    pub(super) ttl: Option<Retention>,
    /// General rules, then the route's own.
    pub(super) rules: [&'a Rules; 2],
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
        let verifier = common.verifier.as_ref();
        let mut layer = IdempotencyLayer::new(common.engine.clone())
            .policy(self.policy())
            .allowance(common.allowance.clone())
            // `ClientBody` reads on by itself when it is dropped.
            .linger(Linger::NONE)
            .classify_errors(classify);
        if let Some(scope) = self.scope {
            layer = layer.scope(scope.iter().filter_map(|part| scope_part(part, verifier)));
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

    fn policy(&self) -> Policy {
        let mut policy = self
            .profile
            .map_or_else(Policy::default, |profile| profile.policy());
        if let Some(ttl) = self.ttl {
            policy.keep_for = ttl.get();
        }
        for rules in self.rules {
            apply(rules, &mut policy);
        }
        policy
    }
}

/// Puts what `rules` says differently into `policy`.
fn apply(rules: &Rules, policy: &mut Policy) {
    fn put<T>(place: &mut T, value: Option<T>) {
        if let Some(value) = value {
            *place = value;
        }
    }
    put(&mut policy.lease_for, rules.lease.map(Span::get));
    put(
        &mut policy.execution_max,
        rules.execution_max.map(Span::get),
    );
    put(
        &mut policy.waiters_max,
        rules.waiters_max.map(Count::as_usize),
    );
    put(
        &mut policy.local_waiters_max,
        rules.local_waiters_max.map(Count::as_usize),
    );
    put(
        &mut policy.limits.request_bytes_max,
        rules.request_bytes_max.map(Count::as_usize),
    );
    put(
        &mut policy.limits.response_bytes_max,
        rules.response_bytes_max.map(Count::as_usize),
    );
    let duplicate = rules.wait.map(Span::get).map(|span| {
        if span.is_zero() {
            Duplicate::Refuse
        } else {
            Duplicate::Wait(span)
        }
    });
    put(&mut policy.duplicate, duplicate);
    let on_lapse = rules.on_lapse.map(|lapse| match lapse {
        Lapse::Rerun => OnLapse::Rerun,
        Lapse::Hold => OnLapse::Hold,
    });
    put(&mut policy.on_lapse, on_lapse);
    let store_down = rules.store_down.map(|down| match down {
        Down::Closed => StoreDown::Closed,
        Down::Open => StoreDown::Open,
    });
    put(&mut policy.store_down, store_down);
    if let Some(need) = rules.key {
        let need = match need {
            Need::Optional => KeyNeed::Optional,
            Need::Required => KeyNeed::Required,
        };
        policy.http.methods = policy.http.methods.clone().all_need(need);
    }
}

fn scope_part(part: &Part, verifier: Option<&JwtVerifier>) -> Option<ScopePart> {
    Some(match part {
        Part::Route => ScopePart::Route,
        Part::Caller => ScopePart::Caller,
        Part::Path(name) => ScopePart::Path(name.clone()),
        Part::Header { name, trusted } => ScopePart::Header {
            name: name.clone(),
            trusted: *trusted,
        },
        Part::Cookie(name) => ScopePart::Cookie(name.clone()),
        Part::Body(member) => ScopePart::Body(member.clone()),
        Part::Jwt(claim) => ScopePart::Jwt(verifier?.clone().claim(claim)),
    })
}
