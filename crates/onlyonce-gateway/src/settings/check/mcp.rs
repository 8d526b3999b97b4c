//! Routes that are MCP endpoints: whether what else they say fits to that.

use http::{Method, Uri};

use super::{Contracts, Findings};
use crate::config::{Config, Protocol, Route};

pub(super) fn endpoints(config: &Config, contracts: &Contracts, findings: &mut Findings) {
    for (number, route) in config.route.iter().enumerate() {
        let why = match route.protocol {
            Protocol::Http => has_settings(route)
                .then(|| "these settings are for an MCP endpoint: add protocol = \"mcp\"".into()),
            Protocol::Mcp => unfit(config, contracts, number, route),
        };
        if let Some(why) = why {
            let why = format!("route {}: {why}", route.matches);
            let about = &["profile", "profiles", "rules"];
            findings.note_about(about, format!("route.{number}.protocol"), why);
        }
    }
}

fn has_settings(route: &Route) -> bool {
    let mcp = &route.mcp;
    let texts = [&mcp.origins, &mcp.tools, &mcp.except, &mcp.call_ids];
    !mcp.reconcile.is_empty() || texts.iter().any(|texts| !texts.is_empty())
}

fn unfit(config: &Config, contracts: &Contracts, number: usize, route: &Route) -> Option<String> {
    if route.matches.method.is_some() {
        return Some(
            "an MCP endpoint takes POST, GET and DELETE: write match = \"* /mcp\"".to_owned(),
        );
    }
    let others = [
        ("pass", route.pass),
        ("transactional", route.transactional),
        ("upstream_keys", route.upstream_keys),
        ("upstream_key_in", route.upstream_key_in.is_some()),
        ("reconcile", route.reconcile.is_some()),
    ];
    if let Some((name, _)) = others.iter().find(|(_, is_set)| *is_set) {
        return Some(format!(
            "`{name}` is for plain requests: remove it, or protocol = \"mcp\""
        ));
    }
    if config.is_observed(Some(route)) {
        return Some(
            "an MCP endpoint cannot be observed: give the route mode = \"enforce\", or pass = true \
             without the protocol"
                .to_owned(),
        );
    }
    let is_origin = |origin: &&String| {
        let uri = origin.trim_end_matches('/').parse::<Uri>();
        uri.is_ok_and(|uri| uri.scheme().is_some() && uri.host().is_some())
    };
    if let Some(origin) = route.mcp.origins.iter().find(|it| !is_origin(it)) {
        return Some(format!(
            "`{origin}` is no origin: write one like \"https://app.example.org\""
        ));
    }
    let policy = contracts.of_route(Some(number)).as_ref().ok()?;
    if policy.http.methods.need(&Method::POST).is_none() {
        return Some("its contract does not cover POST: add \"POST\" to rules.methods".to_owned());
    }
    None
}
