//! The routes whose lapsed operations are settled in the background: how each asks, over connections of
//! its own.

use std::sync::Arc;

use onlyonce_core::Engine;
use onlyonce_core::engine::settler::Settler;

use super::policy;
use super::upstreams::{Upstreams, patience};
use crate::config::{Config, ConfigError, Protocol, Route, Span};
use crate::identify::Names;
use crate::lookup::Asking;
use crate::settling::Chore;
use crate::upstream::{Healths, Upstream};

/// What `config` wants settled in the background.
pub(crate) fn chores(
    config: &Config,
    engine: &Engine,
    healths: &Healths,
) -> Result<Vec<Chore>, ConfigError> {
    let mut upstreams = Upstreams::default();
    let mut chores = Vec::new();
    for route in &config.route {
        let address = route.upstream.as_ref().or(config.upstream.as_ref());
        let is_kept = match route.protocol {
            Protocol::Http => !route.pass && !config.is_observed(Some(route)),
            Protocol::Mcp => false,
        };
        let Some(address) = address.filter(|_| is_kept) else {
            continue;
        };
        let upstream = upstreams.named(address, patience(config), healths)?;
        chores.extend(chore(config, route, engine, upstream)?);
    }
    if !chores.is_empty() && engine.former().is_some() {
        tracing::warn!(
            target: "onlyonce",
            "nothing is settled in the background while the slot secret is rotated: retries are asked about \
             as ever"
        );
    }
    Ok(chores)
}

fn chore(
    config: &Config,
    route: &Route,
    engine: &Engine,
    upstream: Upstream,
) -> Result<Option<Chore>, ConfigError> {
    let Some(lookup) = &route.reconcile else {
        return Ok(None);
    };
    let table = lookup.table();
    let Some(every) = table.background.map(Span::get) else {
        return Ok(None);
    };
    let policy = Arc::new(policy(config, Some(route))?);
    let asking = Arc::new(Asking::new(
        lookup,
        Names::of(&config.identity),
        policy.http.key_header.clone(),
        policy.limits.response_bytes_max,
    )?);
    let name = match &route.operation {
        Some(operation) => Arc::clone(operation.name()),
        None => route.matches.path.as_str().into(),
    };
    let rules = Arc::clone(&policy);
    let settler = Settler::new(engine, name, &policy, every, move |unsettled| {
        let (asking, rules, upstream) = (Arc::clone(&asking), Arc::clone(&rules), upstream.clone());
        async move { asking.ask_alone(upstream, unsettled, &rules).await }
    });
    let settler = match table.timeout.map(Span::get) {
        Some(timeout) => settler.within(timeout),
        None => settler,
    };
    Ok(Some(Chore {
        route: route.matches.to_string(),
        every,
        settler,
    }))
}
