//! The routes whose lapsed operations are settled in the background: how each asks, over connections of
//! its own.

use std::sync::Arc;

use http::HeaderValue;
use onlyonce_core::Engine;
use onlyonce_core::engine::settler::Settler;

use super::upstreams::Upstreams;
use crate::config::Span;
use crate::lookup::Asking;
use crate::settings::{RouteSettings, Settings, Treatment};
use crate::settling::Chore;
use crate::upstream::{Healths, Upstream};

/// What the settings want settled in the background.
pub(crate) fn chores(settings: &Settings, engine: &Engine, healths: &Healths) -> Vec<Chore> {
    let mut upstreams = Upstreams::default();
    let routes = settings.routes.all.iter();
    let chores = routes.zip(&settings.credentials.lookups);
    let chores = chores.filter_map(|(route, authorization)| match route.treatment {
        Treatment::Once => {
            let patience = settings.timeouts.upstream;
            let upstream = upstreams.named(&route.upstream, patience, healths);
            chore(settings, route, authorization.as_ref(), engine, upstream)
        }
        Treatment::Pass | Treatment::Observe | Treatment::Mcp(_) => None,
    });
    let chores: Vec<Chore> = chores.collect();
    if !chores.is_empty() && engine.former().is_some() {
        tracing::warn!(
            target: "onlyonce",
            "nothing is settled in the background while the slot secret is rotated: retries are asked about \
             as ever"
        );
    }
    chores
}

fn chore(
    settings: &Settings,
    route: &RouteSettings,
    authorization: Option<&HeaderValue>,
    engine: &Engine,
    upstream: Upstream,
) -> Option<Chore> {
    let (lookup, matches) = (route.lookup.as_ref()?, route.matches.as_ref()?);
    let every = lookup.table().background.map(Span::get)?;
    let policy = Arc::new(route.policy.clone());
    let authorization = authorization.cloned();
    let asking = Asking::new(lookup, authorization, settings.names.clone(), &policy);
    let asking = Arc::new(asking);
    let name = match &route.operation {
        Some(operation) => Arc::clone(operation.name()),
        None => matches.path.as_str().into(),
    };
    let rules = Arc::clone(&policy);
    let settler = Settler::new(engine, name, &policy, every, move |unsettled| {
        let (asking, rules, upstream) = (Arc::clone(&asking), Arc::clone(&rules), upstream.clone());
        async move { asking.ask_alone(upstream, unsettled, &rules).await }
    });
    let settler = match lookup.table().timeout.map(Span::get) {
        Some(timeout) => settler.within(timeout),
        None => settler,
    };
    Some(Chore {
        route: matches.to_string(),
        every,
        settler,
    })
}
