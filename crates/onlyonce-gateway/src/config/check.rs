//! What one value cannot tell: settings that do not fit together, routes that are never reached,
//! files that are not there.

use http::HeaderName;
use onlyonce_core::Profile;

use super::error::{ConfigError, Problem};
use super::{Config, Jwt, Match, Route, Rules, ScopePart};

mod paths;

use self::paths::is_shadowed;
use crate::target::BASE_BYTES_MAX;
use crate::{gateway, identity, tls};

/// Something that does not hold.
pub(super) struct Finding {
    /// The path of the setting, as in `route.0.scope`.
    pub(super) at: String,
    /// The settings that it is said of: nothing is said if one of them could not be read.
    pub(super) about: &'static [&'static str],
    /// What is wrong, and what would be right.
    pub(super) why: String,
}

impl Finding {
    fn new(
        at: impl Into<String>,
        about: &'static [&'static str],
        why: impl Into<String>,
    ) -> Option<Self> {
        Some(Self {
            at: at.into(),
            about,
            why: why.into(),
        })
    }
}

/// Whether the settings hold together; for settings that no file gave.
pub(crate) fn holds(config: &Config) -> Result<(), ConfigError> {
    let problems = fit(config).into_iter();
    ConfigError::of(problems.map(|it| Problem::new(it.at, it.why)).collect())
}

/// What in the settings does not fit together.
pub(super) fn fit(config: &Config) -> Vec<Finding> {
    let mut findings = upstreams(config);
    findings.extend(operators(config));
    findings.extend(store(config));
    findings.extend(tokens(config));
    findings.extend(address_header(config));
    findings.extend(contracts(config));
    findings.extend(unreachable(config));
    findings
}

fn upstreams(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    if config.upstream.is_none() && (config.route.is_empty() || leaves_gaps(config)) {
        findings.extend(Finding::new(
            "upstream",
            &["upstream", "route"],
            "there is no upstream: give `upstream`, as in upstream = \"http://127.0.0.1:3000\", \
             ONLYONCE_UPSTREAM or --upstream",
        ));
    }
    let own = config.upstream.iter().map(|it| ("upstream".to_owned(), it));
    let of_routes = config.route.iter().enumerate().filter_map(|(number, it)| {
        let upstream = it.upstream.as_ref()?;
        Some((format!("route.{number}.upstream"), upstream))
    });
    for (at, upstream) in own.chain(of_routes) {
        if let Err(why) = is_upstream(upstream) {
            findings.extend(Finding::new(at, &[], why));
        }
    }
    findings
}

fn operators(config: &Config) -> Option<Finding> {
    let admin = config.admin.filter(|it| !it.ip().is_loopback())?;
    if config.admin_token_file.is_some() {
        return None;
    }
    let why = format!(
        "admin = \"{admin}\" can be reached from other machines: give `admin_token_file`, or use a \
         loopback address, as in admin = \"127.0.0.1:9090\""
    );
    Finding::new("admin", &["admin_token_file"], why)
}

fn store(config: &Config) -> Option<Finding> {
    let url = config.store.as_deref()?;
    let error = onlyonce_stores::check_url(url).err()?;
    Finding::new(
        "store",
        &[],
        format!("store: {error}; for example store = \"file:./onlyonce-data\""),
    )
}

fn tokens(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    if config.former_secret_file.is_some() && config.secret_file.is_none() {
        findings.extend(Finding::new(
            "former_secret_file",
            &["secret_file"],
            "former_secret_file needs `secret_file`, the secret that follows it",
        ));
    }
    if let Some(jwt) = &config.jwt
        && jwt.algorithm.is_none()
        && !jwt.is_key_set()
    {
        findings.extend(Finding::new(
            "jwt",
            &["jwt"],
            "[jwt] needs `algorithm` (HS256, RS256 or ES256), unless `key_file` is a JWKS file \
             that ends with .json",
        ));
    }
    findings
}

fn address_header(config: &Config) -> Option<Finding> {
    let name = config.limits.address_header.as_ref()?;
    if HeaderName::from_bytes(name.as_bytes()).is_ok() {
        return None;
    }
    let why =
        format!("address_header: `{name}` is not a header name: write one like \"x-real-ip\"");
    Finding::new("limits.address_header", &[], why)
}

/// Routes that an earlier one leaves nothing for.
fn unreachable(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
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
            findings.extend(Finding::new(format!("route.{number}.match"), &[], why));
        }
    }
    findings
}

/// What in the files that the settings name cannot be used.
pub(super) fn files(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut note = |at: &str, checked: Result<(), ConfigError>| {
        if let Err(error) = checked {
            findings.extend(Finding::new(at, &[], format!("{at}: {error}")));
        }
    };
    note("admin_token_file", gateway::admin_token(config).map(drop));
    note("secret_file", gateway::own_secret(config).map(drop));
    note(
        "former_secret_file",
        gateway::former_secret(config).map(drop),
    );
    if let Some(files) = &config.tls {
        note("tls.cert", tls::certificates(files).map(drop));
        note("tls.key", tls::private_key(files).map(drop));
        if tls::certificates(files).is_ok() && tls::private_key(files).is_ok() {
            note("tls.cert", tls::Acceptor::new(files).map(drop));
        }
    }
    // Without an algorithm the file cannot be read, and that is said already.
    if config
        .jwt
        .as_ref()
        .is_some_and(|jwt| jwt.algorithm.is_some() || jwt.is_key_set())
    {
        note("jwt.key_file", identity::verifier(config).map(drop));
    }
    if let Some(audit) = &config.audit
        && audit.path.is_dir()
    {
        let why = "is a folder: name a file, as in path = \"audit.jsonl\"";
        note(
            "audit.path",
            Err(ConfigError::new(audit.path.display(), why)),
        );
    }
    findings
}

/// What an operator should know before these settings meet callers.
pub fn warnings(config: &Config) -> Vec<String> {
    let mut vague: Vec<String> = Vec::new();
    for route in config.route.iter().filter(|route| !route.pass) {
        if !tells_callers_apart(&scope_of(config, Some(route))) {
            vague.push(format!("route {}", route.matches));
        }
    }
    if config.upstream.is_some() && !tells_callers_apart(&scope_of(config, None)) {
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

/// The scope of a route, or of what no route matches; none where its contract does not hold.
fn scope_of(config: &Config, route: Option<&Route>) -> Vec<ScopePart> {
    let policy = config.policy(route);
    policy.map(|policy| policy.http.scope).unwrap_or_default()
}

/// Whether a scope knows callers by more than what they say of themselves.
fn tells_callers_apart(scope: &[ScopePart]) -> bool {
    let known = |part: &ScopePart| match part {
        ScopePart::Jwt(_) | ScopePart::Cookie(_) => true,
        ScopePart::Header { trusted, .. } => *trusted,
        ScopePart::UserHeader(_) => true,
        ScopePart::Route
        | ScopePart::Caller
        | ScopePart::Path(_)
        | ScopePart::PathAfter(_)
        | ScopePart::Body(_) => false,
    };
    scope.iter().any(known)
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

/// Contracts that do not hold, or that ask for what the settings do not give.
fn contracts(config: &Config) -> Vec<Finding> {
    let mut findings: Vec<Option<Finding>> = base_and_about(config);
    let own = |route: &&Route| {
        !route.pass
            && (route.scope.is_some() || route.profile.is_some() || route.rules != Rules::default())
    };
    let routes = config.route.iter().filter(own).map(Some);
    for route in std::iter::once(None).chain(routes) {
        match config.policy(route) {
            Ok(policy) => findings.extend(scope(config, &policy.http.scope, route)),
            Err((at, why)) => {
                findings.push(Finding::new(at, &["profiles", "profile"], why));
            }
        }
    }
    for name in config.profiles.keys() {
        let shadows = name.parse::<Profile>().is_ok();
        let why = format!("profiles.{name}: there is a preset of this name: choose another one");
        if shadows {
            findings.push(Finding::new(format!("profiles.{name}"), &[], why));
        }
    }
    findings.into_iter().flatten().collect()
}

/// `base` and `about` are for profiles.
fn base_and_about(config: &Config) -> Vec<Option<Finding>> {
    let routes = config.route.iter().enumerate();
    let routes = routes.map(|(number, route)| (format!("route.{number}.rules"), &route.rules));
    let all = std::iter::once(("rules".to_owned(), &config.rules)).chain(routes);
    all.filter(|(_, rules)| rules.base.is_some() || rules.about.is_some())
        .map(|(at, _)| {
            let why = "rules: `base` and `about` are for a profile: choose the base with `profile`, \
                       or move these rules to [profiles.NAME]";
            Finding::new(at, &[], why)
        })
        .collect()
}

fn scope(config: &Config, parts: &[ScopePart], route: Option<&Route>) -> Vec<Option<Finding>> {
    let number = |route: &Route| config.route.iter().position(|it| std::ptr::eq(it, route));
    let number = route.and_then(number);
    let at = number.map_or_else(|| "scope".to_owned(), |it| format!("route.{it}.scope"));
    let of = route.map(|it| format!("route {}: ", it.matches));
    let of = of.unwrap_or_default();
    let mut findings = Vec::new();
    for part in parts {
        match part {
            ScopePart::Jwt(claim) if config.jwt.is_none() => findings.push(Finding::new(
                &*at,
                &["jwt"],
                format!(
                    "{of}scope part `jwt:{claim}` needs to know how tokens are verified: add [jwt]"
                ),
            )),
            ScopePart::Path(name) if !route.is_some_and(|it| has_parameter(&it.matches, name)) => {
                findings.push(Finding::new(
                    &*at,
                    &[],
                    format!("{of}scope part `path:{name}` needs {{{name}}} in the route's match"),
                ));
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
    findings
}

fn has_parameter(matches: &Match, name: &str) -> bool {
    let path = &matches.path;
    path.contains(&format!("{{{name}}}")) || path.contains(&format!("{{*{name}}}"))
}
