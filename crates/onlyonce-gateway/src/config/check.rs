//! What one value cannot tell: settings that do not fit together, routes that are never reached,
//! files that are not there.

use http::HeaderName;
use onlyonce_core::Profile;
use onlyonce_core::policy::StoreDown;
use onlyonce_core::profile::Lapse;

use super::error::{ConfigError, Problem};
use super::{Config, Jwt, Match, Piece, REST, Route, Rules, ScopePart, Variable};

mod mcp;
mod paths;
mod transactional;

use self::mcp::endpoints;
use self::paths::is_shadowed;
use self::transactional::transactional;
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
    findings.extend(buffered(config));
    findings.extend(contracts(config));
    findings.extend(unreachable(config));
    findings.extend(modes(config));
    findings.extend(upstream_keys(config));
    findings.extend(transactional(config));
    findings.extend(lookups(config));
    findings.extend(endpoints(config));
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

/// Looks that a route cannot make.
fn lookups(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, route) in config.route.iter().enumerate() {
        let Some(lookup) = &route.reconcile else {
            continue;
        };
        let mut note = |why: String| {
            let at = format!("route.{number}.reconcile");
            findings.extend(Finding::new(at, &[], format!("reconcile: {why}")));
        };
        if route.pass {
            note("the route passes everything through, without keys: remove `pass`".to_owned());
        }
        let is_named = lookup.table().ask.pieces.iter().any(|piece| match piece {
            Piece::Value { of, .. } => *of == Variable::Operation,
            Piece::Text(_) => false,
        });
        if lookup.table().authorization_file.is_some() && !is_named {
            note(
                "with `authorization_file` it is not the caller who asks, and every other value may \
                 name another caller's operation: name {operation} in `ask`"
                    .to_owned(),
            );
        }
        if lookup.table().echo && config.identity.headers == Some(false) {
            note(
                "with `echo` an answer names the operation in a header, which `identity` does not send: \
                 remove `headers = false` there, or `echo`"
                    .to_owned(),
            );
        }
        let asks_by_itself = lookup.table().background.is_some();
        if let Some(value) = lookup
            .table()
            .ask
            .of_the_request()
            .next()
            .filter(|_| asks_by_itself)
        {
            note(format!(
                "`background` asks without a request, and a record keeps no `{value}`: name the \
                 operation by {{operation}} alone, or remove `background`"
            ));
        }
        for piece in &lookup.table().ask.pieces {
            if let Piece::Value {
                of: Variable::Param(name),
                ..
            } = piece
                && !has_parameter(&route.matches, name)
            {
                note(format!(
                    "`{{{name}}}` needs {{{name}}} in the route's match; there are {{operation}}, \
                     {{key}} and {{body:MEMBER}} besides"
                ));
            }
        }
    }
    findings
}

/// What is said of an upstream's keys where it cannot hold.
fn upstream_keys(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, route) in config.route.iter().enumerate() {
        let mut note = |setting: &str, why: &str| {
            let at = format!("route.{number}.{setting}");
            findings.extend(Finding::new(at, &[], format!("{setting}: {why}")));
        };
        let passes =
            "the route passes everything through, without an operation's id: remove `pass`";
        if route.pass && route.upstream_key_in.is_some() {
            note("upstream_key_in", passes);
        }
        if route.pass && route.upstream_keys {
            note("upstream_keys", passes);
        }
        if route.upstream_keys && route.rules.on_lapse == Some(Lapse::Hold) {
            let why = "an upstream that takes keys is asked again, and `on_lapse = \"hold\"` asks it \
                       never: remove one of the two";
            note("upstream_keys", why);
        }
        let is_told = config.identity.headers.unwrap_or(true) || route.upstream_key_in.is_some();
        if route.upstream_keys && !is_told {
            let why = "the upstream does not get the id: give `upstream_key_in`, as in \
                       upstream_key_in = \"header:idempotency-key\", or remove `headers = false` \
                       from [identity]";
            note("upstream_keys", why);
        }
    }
    findings
}

/// A body that never has room would be refused for ever.
fn buffered(config: &Config) -> Option<Finding> {
    let room = config.buffered_bytes();
    let largest = config.request_bytes_max();
    if largest <= room {
        return None;
    }
    let why = format!(
        "buffered_bytes: {room} bytes have no room for a request of {largest} bytes, which \
         request_bytes_max allows; for example buffered_bytes = {}",
        largest.saturating_mul(16)
    );
    let about = &["limits", "rules", "route"];
    Finding::new("limits.buffered_bytes", about, why)
}

/// Modes of routes that have no contract.
fn modes(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, route) in config.route.iter().enumerate() {
        if route.pass && route.mode.is_some() {
            let why = "mode: the route passes everything through, and has no contract that could hold \
                       or be observed: remove `pass` or `mode`";
            findings.extend(Finding::new(format!("route.{number}.mode"), &[], why));
        }
    }
    findings
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
    for (number, route) in config.route.iter().enumerate() {
        if let Some(lookup) = &route.reconcile {
            let at = format!("route.{number}.reconcile");
            note(&at, crate::lookup::authorization(lookup).map(drop));
        }
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

/// Something that an operator should know of the settings, and the setting that ends it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Warning {
    /// The setting that ends it.
    pub setting: &'static str,
    /// What there is to know.
    pub text: String,
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (set `{}`)", self.text, self.setting)
    }
}

/// What an operator should know before these settings meet callers.
pub fn warnings(config: &Config) -> Vec<Warning> {
    let mut warnings: Vec<Warning> = vague_callers(config).into_iter().collect();
    if onlyonce_stores::backend(config.store_url()) == "memory" {
        warnings.push(Warning {
            setting: "store",
            text: "answers are kept in memory: a restart forgets them, and each retry after it \
                   runs again"
                .to_owned(),
        });
    }
    let observed = config.observed();
    if !observed.is_empty() {
        let is_rest = |name: &String| name == REST;
        let named = observed.iter().map(|name| match is_rest(name) {
            true => "requests that no route matches".to_owned(),
            false => format!("route {name}"),
        });
        let named: Vec<_> = named.collect();
        warnings.push(Warning {
            setting: "mode",
            text: format!(
                "nothing is protected here, only observed: {}; `onlyonce observe report` says what \
                 enforcing would do",
                named.join(", ")
            ),
        });
    }
    let unguarded = unguarded(config);
    if !unguarded.is_empty() {
        warnings.push(Warning {
            setting: "rules.store_down",
            text: format!(
                "while the store cannot be reached, requests run without protection: {}",
                unguarded.join(", ")
            ),
        });
    }
    warnings
}

/// Routes, and the rest, whose requests run when the store is down.
fn unguarded(config: &Config) -> Vec<String> {
    let is_open = |route: Option<&Route>| {
        let policy = config.policy(route);
        let is_open = policy.is_ok_and(|policy| policy.store_down == StoreDown::Open);
        is_open && !config.is_observed(route)
    };
    let routes = config.route.iter().filter(|route| !route.pass);
    let open = routes.filter(|route| is_open(Some(route)));
    let mut names: Vec<_> = open.map(|it| format!("route {}", it.matches)).collect();
    if config.upstream.is_some() && is_open(None) {
        names.push("requests that no route matches".to_owned());
    }
    names
}

/// Callers that are known only by what they say of themselves.
fn vague_callers(config: &Config) -> Option<Warning> {
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
        return None;
    }
    let text = format!(
        "callers are told apart only by their Authorization header, which is not verified here: \
         anonymous callers share one scope, a refreshed opaque token counts as another caller, and \
         credentials that differ with every request (SigV4, DPoP, Digest) are refused; add [jwt] \
         and `jwt:CLAIM`, `trusted-header:NAME` or `cookie:NAME` to the scope of: {}",
        vague.join(", ")
    );
    Some(Warning {
        setting: "scope",
        text,
    })
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
