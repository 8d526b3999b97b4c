//! What one value cannot tell: settings that do not fit together, routes that are never reached.

use onlyonce_core::Profile;
use onlyonce_core::policy::ScopePart;
use onlyonce_core::profile::Rules;

use self::lookups::lookups;
use self::mcp::endpoints;
use self::paths::is_shadowed;
use self::transactional::transactional;
use self::upstream_keys::upstream_keys;
use super::contracts::Contracts;
use super::finding::Findings;
use crate::config::{Config, Match, Route};
use crate::target::BASE_BYTES_MAX;

mod lookups;
mod mcp;
mod paths;
mod transactional;
mod upstream_keys;

/// Notes what in the settings does not fit together.
pub(super) fn fit(config: &Config, contracts: &Contracts, findings: &mut Findings) {
    upstreams(config, findings);
    tokens(config, findings);
    contracts_hold(config, contracts, findings);
    unreachable(config, findings);
    modes(config, findings);
    upstream_keys(config, findings);
    transactional(config, contracts, findings);
    lookups(config, findings);
    endpoints(config, contracts, findings);
}

fn upstreams(config: &Config, findings: &mut Findings) {
    let leaves_gaps = config.route.iter().any(|route| route.upstream.is_none());
    if config.upstream.is_none() && (config.route.is_empty() || leaves_gaps) {
        findings.note_about(
            &["upstream", "route"],
            "upstream",
            "there is no upstream: give `upstream`, as in upstream = \"http://127.0.0.1:3000\", \
             ONLYONCE_UPSTREAM or --upstream",
        );
    }
}

fn tokens(config: &Config, findings: &mut Findings) {
    if config.former_secret_file.is_some() && config.secret_file.is_none() {
        findings.note_about(
            &["secret_file"],
            "former_secret_file",
            "former_secret_file needs `secret_file`, the secret that follows it",
        );
    }
    if let Some(jwt) = &config.jwt
        && jwt.algorithm.is_none()
        && !jwt.is_key_set()
    {
        findings.note_about(
            &["jwt"],
            "jwt",
            "[jwt] needs `algorithm` (HS256, RS256 or ES256), unless `key_file` is a JWKS file \
             that ends with .json",
        );
    }
}

/// Modes of routes that have no contract.
fn modes(config: &Config, findings: &mut Findings) {
    for (number, route) in config.route.iter().enumerate() {
        if route.pass && route.mode.is_some() {
            let why = "mode: the route passes everything through, and has no contract that could hold \
                       or be observed: remove `pass` or `mode`";
            findings.note(format!("route.{number}.mode"), why);
        }
    }
}

/// Routes that an earlier one leaves nothing for.
fn unreachable(config: &Config, findings: &mut Findings) {
    for (number, route) in config.route.iter().enumerate() {
        let before = config.route[..number]
            .iter()
            .position(|earlier| is_shadowed(&route.matches, &earlier.matches));
        if let Some(earlier) = before {
            let (own, first) = (&route.matches, &config.route[earlier].matches);
            let why = format!(
                "match: `{own}` is never reached: route {}, `{first}`, comes before it and takes \
                 all of its requests; remove one of the two, or put this one first",
                earlier + 1
            );
            findings.note(format!("route.{number}.match"), why);
        }
    }
}

/// Whether this is a server's address.
pub(super) fn is_upstream(text: &str) -> Result<http::Uri, String> {
    let wrong = || {
        format!(
            "upstream {} is not a server: write it like http://127.0.0.1:3000",
            shown(text)
        )
    };
    let uri: http::Uri = text.parse().map_err(|_| wrong())?;
    let fits = matches!(uri.scheme_str(), Some("http" | "https" | "h2c"))
        && uri.authority().is_some_and(|it| !it.as_str().contains('@'))
        && uri.query().is_none()
        && uri.path().len() <= BASE_BYTES_MAX;
    if fits { Ok(uri) } else { Err(wrong()) }
}

/// What can be shown of an address: before an `@` there may be a password.
fn shown(address: &str) -> String {
    match address.rsplit_once('@') {
        Some((_, host)) => format!("`…@{host}`"),
        None => format!("`{address}`"),
    }
}

/// Contracts that do not hold, or that ask for what the settings do not give.
fn contracts_hold(config: &Config, contracts: &Contracts, findings: &mut Findings) {
    base_and_about(config, findings);
    let general_holds = contracts.of_route(None).is_ok();
    let numbers = (0..config.route.len()).filter(|number| !config.route[*number].pass);
    for number in std::iter::once(None).chain(numbers.map(Some)) {
        let route = number.map(|number| &config.route[number]);
        match contracts.of_route(number) {
            Ok(policy) if is_own(route) => scope(config, &policy.http.scope, number, findings),
            Ok(_) => {}
            // What is wrong with the general contract is told once.
            Err((at, why)) if is_own(route) || general_holds => {
                findings.note_about(&["profiles", "profile"], at, why);
            }
            Err(_) => {}
        }
    }
    for name in config.profiles.keys() {
        if name.parse::<Profile>().is_ok() {
            let why =
                format!("profiles.{name}: there is a preset of this name: choose another one");
            findings.note(format!("profiles.{name}"), why);
        }
    }
}

/// Whether a route has a contract of its own; what no route matches has the general one.
fn is_own(route: Option<&Route>) -> bool {
    route.is_none_or(|route| {
        route.scope.is_some() || route.profile.is_some() || route.rules != Rules::default()
    })
}

/// `base` and `about` are for profiles.
fn base_and_about(config: &Config, findings: &mut Findings) {
    let routes = config.route.iter().enumerate();
    let routes = routes.map(|(number, route)| (format!("route.{number}.rules"), &route.rules));
    for (at, rules) in std::iter::once(("rules".to_owned(), &config.rules)).chain(routes) {
        if rules.base.is_some() || rules.about.is_some() {
            let why = "rules: `base` and `about` are for a profile: choose the base with `profile`, \
                       or move these rules to [profiles.NAME]";
            findings.note(at, why);
        }
    }
}

fn scope(config: &Config, parts: &[ScopePart], number: Option<usize>, findings: &mut Findings) {
    let route = number.map(|number| &config.route[number]);
    let at = number.map_or_else(|| "scope".to_owned(), |it| format!("route.{it}.scope"));
    let of = route.map(|it| format!("route {}: ", it.matches));
    let of = of.unwrap_or_default();
    for part in parts {
        match part {
            ScopePart::Jwt(claim) if config.jwt.is_none() => {
                let why = format!(
                    "{of}scope part `jwt:{claim}` needs to know how tokens are verified: add [jwt]"
                );
                findings.note_about(&["jwt"], &*at, why);
            }
            ScopePart::Path(name) if !route.is_some_and(|it| has_parameter(&it.matches, name)) => {
                let why =
                    format!("{of}scope part `path:{name}` needs {{{name}}} in the route's match");
                findings.note(&*at, why);
            }
            ScopePart::Path(_)
            | ScopePart::PathAfter(_)
            | ScopePart::Jwt(_)
            | ScopePart::Route
            | ScopePart::Caller
            | ScopePart::Header { .. }
            | ScopePart::UserHeader(_)
            | ScopePart::Cookie(_)
            | ScopePart::Body(_) => {}
        }
    }
}

fn has_parameter(matches: &Match, name: &str) -> bool {
    let path = &matches.path;
    path.contains(&format!("{{{name}}}")) || path.contains(&format!("{{*{name}}}"))
}
