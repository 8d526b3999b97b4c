//! What one value cannot tell: settings that do not fit together.

use super::load::ConfigError;
use super::{Config, Jwt, Part, Route};
use crate::target::BASE_BYTES_MAX;

/// Whether the settings can hold together.
pub(super) fn check(config: &Config, place: &str) -> Result<(), ConfigError> {
    let wrong = |why: String| Err(ConfigError::new(place, why));

    if config.upstream.is_none() && (config.route.is_empty() || leaves_gaps(config)) {
        return wrong(
            "there is no upstream: give `upstream`, as in upstream = \"http://127.0.0.1:3000\", \
             ONLYONCE_UPSTREAM or --upstream"
                .to_owned(),
        );
    }
    let upstreams = config
        .route
        .iter()
        .filter_map(|route| route.upstream.as_ref());
    for upstream in config.upstream.iter().chain(upstreams) {
        if let Err(why) = is_upstream(upstream) {
            return wrong(why);
        }
    }
    if let Some(admin) = config.admin
        && !admin.ip().is_loopback()
        && config.admin_token_file.is_none()
    {
        return wrong(format!(
            "admin = \"{admin}\" can be reached from other machines: give `admin_token_file`, or \
             use a loopback address"
        ));
    }
    if config.former_secret_file.is_some() && config.secret_file.is_none() {
        return wrong(
            "former_secret_file needs `secret_file`, the secret that follows it".to_owned(),
        );
    }
    if let Some(name) = &config.limits.address_header
        && http::HeaderName::from_bytes(name.as_bytes()).is_err()
    {
        return wrong(format!("address_header: `{name}` is not a header name"));
    }
    if let Some(why) = config.breaker.problem() {
        return wrong(why);
    }
    if let Some(jwt) = &config.jwt
        && jwt.algorithm.is_none()
        && !jwt.is_key_set()
    {
        return wrong(
            "[jwt] needs `algorithm` (HS256, RS256 or ES256), unless `key_file` is a JWKS file \
             that ends with .json"
                .to_owned(),
        );
    }
    if let Some(why) = scope_problem(config, config.scope.as_deref(), None) {
        return wrong(why);
    }
    for route in &config.route {
        if let Some(why) = scope_problem(config, route.scope.as_deref(), Some(route)) {
            return wrong(format!("route {}: {why}", route.matches));
        }
    }
    Ok(())
}

/// What an operator should know before these settings meet callers.
pub fn warnings(config: &Config) -> Vec<String> {
    let mut vague: Vec<String> = Vec::new();
    for route in config.route.iter().filter(|route| !route.pass) {
        if !tells_callers_apart(route.scope.as_deref().or(config.scope.as_deref())) {
            vague.push(format!("route {}", route.matches));
        }
    }
    if config.upstream.is_some() && !tells_callers_apart(config.scope.as_deref()) {
        vague.push("requests that no route matches".to_owned());
    }
    if vague.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "callers are told apart only by their Authorization header, which is not verified here: \
         anonymous callers share one scope, a refreshed opaque token counts as another caller, and \
         credentials that differ with every request (SigV4, DPoP, Digest) are refused; add [jwt] \
         and `jwt:CLAIM`, `trusted-header:NAME` or `cookie:NAME` to the scope of: {}",
        vague.join(", ")
    )]
}

/// Whether a scope knows callers by more than what they say of themselves.
fn tells_callers_apart(scope: Option<&[Part]>) -> bool {
    let known = |part: &Part| match part {
        Part::Jwt(_) | Part::Cookie(_) => true,
        Part::Header { trusted, .. } => *trusted,
        Part::Route | Part::Caller | Part::Path(_) | Part::Body(_) => false,
    };
    scope.unwrap_or_default().iter().any(known)
}

impl Jwt {
    /// Whether the key file is a JWKS file.
    pub(crate) fn is_key_set(&self) -> bool {
        self.key_file.extension().is_some_and(|it| it == "json")
    }
}

/// Whether some request has nowhere to go.
fn leaves_gaps(config: &Config) -> bool {
    config.route.iter().any(|route| route.upstream.is_none())
}

/// Whether this is a server's address.
pub(crate) fn is_upstream(text: &str) -> Result<http::Uri, String> {
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

fn scope_problem(config: &Config, scope: Option<&[Part]>, route: Option<&Route>) -> Option<String> {
    for part in scope? {
        match part {
            Part::Jwt(claim) if config.jwt.is_none() => {
                return Some(format!(
                    "scope part `jwt:{claim}` needs to know how tokens are verified: add [jwt]"
                ));
            }
            Part::Path(name) => {
                let known = route.is_some_and(|route| {
                    let path = &route.matches.path;
                    path.contains(&format!("{{{name}}}")) || path.contains(&format!("{{*{name}}}"))
                });
                if !known {
                    return Some(format!(
                        "scope part `path:{name}` needs {{{name}}} in the route's match"
                    ));
                }
            }
            Part::Jwt(_)
            | Part::Route
            | Part::Caller
            | Part::Header { .. }
            | Part::Cookie(_)
            | Part::Body(_) => {}
        }
    }
    None
}
