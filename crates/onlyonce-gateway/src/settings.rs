//! Checked settings, and the only way to a gateway: a [`Config`] is what somebody wrote, [`Settings`] are what
//! holds. Nothing behind this reads a file of the settings again, or knows a default.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use self::contracts::Contracts;
pub(crate) use self::credentials::AdminToken;
use self::credentials::Credentials;
pub(crate) use self::finding::Findings;
pub(crate) use self::routes::{McpSettings, RouteSettings, Routes, Treatment};
pub(crate) use self::table::{Found, RouteTable};
pub(crate) use self::values::{Limits, Log, Operators, Storage, Timeouts};
pub use self::warnings::Warning;
use crate::config::{self, Config, ConfigError, Span};
use crate::identify::Names;

mod check;
mod contracts;
mod credentials;
pub(crate) mod defaults;
mod finding;
mod routes;
mod table;
#[cfg(test)]
mod tests;
mod values;
mod warnings;

/// The settings of a gateway, checked: they fit together, and the files that they name could be used.
///
/// ```
/// use onlyonce_gateway::{Config, Settings};
///
/// let mut config = Config {
///     upstream: Some("http://127.0.0.1:3000".to_owned()),
///     ..Config::default()
/// };
/// assert!(Settings::resolve(&config).is_ok());
///
/// // Operators would need a token.
/// config.admin = Some("0.0.0.0:9090".parse().unwrap());
/// let refused = Settings::resolve(&config).unwrap_err();
/// assert!(refused.to_string().contains("give `admin_token_file`"));
/// ```
#[derive(Clone)]
pub struct Settings {
    /// What they were made from; nobody else can make any.
    given: Config,
    pub(crate) listen: SocketAddr,
    /// How long an end waits for what runs.
    pub(crate) drain: Duration,
    pub(crate) operators: Operators,
    pub(crate) storage: Storage,
    pub(crate) limits: Limits,
    pub(crate) timeouts: Timeouts,
    /// By which names an upstream hears of an operation.
    pub(crate) names: Names,
    pub(crate) log: Log,
    pub(crate) routes: Routes,
    pub(crate) credentials: Credentials,
}

impl Settings {
    /// The settings that `config` describes, or everything that is wrong with it. The files that it names are
    /// read here, and only here: tokens, secrets, certificates, keys. Nothing is opened, created or connected
    /// to.
    pub fn resolve(config: &Config) -> Result<Self, ConfigError> {
        resolve(config).map_err(Findings::into_error)
    }

    /// Reads `file` if there is one, then the `ONLYONCE_…` among `variables`, then `flags` by their names in
    /// the schema, and [resolves](Self::resolve) what comes of it. Everything that is wrong is reported at
    /// once, each with its place.
    pub fn load(
        file: Option<&Path>,
        variables: impl IntoIterator<Item = (String, String)>,
        flags: &[(&'static str, String)],
    ) -> Result<Self, ConfigError> {
        config::resolved(file, variables, flags)
    }

    /// What they were made from.
    pub fn config(&self) -> &Config {
        &self.given
    }

    /// The names of what is only observed: each route's `match`, and `*` for what no route matches.
    pub fn observed(&self) -> Vec<String> {
        let observed = self.routes.each().filter(|route| route.is_observed());
        observed.map(RouteSettings::name).collect()
    }

    /// Whether some request meets a contract that holds.
    pub(crate) fn enforces(&self) -> bool {
        self.routes.each().any(RouteSettings::enforces)
    }

    /// The first setting in which these differ and that only a start can change.
    pub(crate) fn only_at_start(&self, new: &Self) -> Option<&'static str> {
        let (old, limits) = (&self.given, &self.given.limits);
        let (timeouts, new_timeouts) = (&old.timeouts, &new.given.timeouts);
        let (buffered, new_limits) = (self.limits.buffered_bytes, &new.given.limits);
        macro_rules! differing {
            ($($field:ident)+) => {
                [$((stringify!($field), old.$field != new.given.$field)),+]
            };
        }
        let fields = differing!(listen admin admin_token_file admin_hosts ready_upstreams store namespace instance secret_file former_secret_file drain breaker log audit);
        let of_clients = [
            ("tls", old.tls.is_some() != new.given.tls.is_some()),
            (
                "limits.connections",
                limits.connections != new_limits.connections,
            ),
            (
                "limits.header_bytes",
                limits.header_bytes != new_limits.header_bytes,
            ),
            ("limits.streams", limits.streams != new_limits.streams),
            ("limits.running", limits.running != new_limits.running),
            (
                "limits.buffered_bytes",
                buffered != new.limits.buffered_bytes,
            ),
            ("timeouts.headers", timeouts.headers != new_timeouts.headers),
            ("timeouts.write", timeouts.write != new_timeouts.write),
        ];
        let mut all = fields.into_iter().chain(of_clients);
        all.find_map(|(name, differs)| differs.then_some(name))
    }
}

/// By name and value as operators see them: nothing secret is among them.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = crate::admin::resolved(self);
        f.debug_map()
            .entries(shown.iter().map(|it| (&it.name, &it.value)))
            .finish()
    }
}

/// The settings, or all that is wrong.
pub(crate) fn resolve(config: &Config) -> Result<Settings, Findings> {
    let mut findings = Findings::default();
    let drafted = draft(config, &mut findings);
    let credentials = Credentials::read(config, &mut findings);
    match drafted {
        Some(settings) if findings.is_empty() => Ok(Settings {
            credentials,
            ..settings
        }),
        Some(_) | None => Err(findings),
    }
}

/// All that is wrong, as far as it can be told without the files that the settings name.
pub(crate) fn fit(config: &Config) -> Findings {
    let mut findings = Findings::default();
    drop(draft(config, &mut findings));
    findings
}

/// The settings but for what is in files. Where it gives none, it has noted why.
fn draft(config: &Config, findings: &mut Findings) -> Option<Settings> {
    let contracts = Contracts::of(config);
    check::fit(config, &contracts, findings);
    // Each of them, for what is to be told of it.
    let operators = Operators::of(config, findings);
    let storage = Storage::of(config, findings);
    let limits = Limits::of(config, &contracts, findings);
    let routes = Routes::of(config, &contracts, findings);
    Some(Settings {
        given: config.clone(),
        listen: config.listen.unwrap_or(defaults::LISTEN),
        drain: config.drain.map_or(defaults::DRAIN, Span::get),
        operators,
        storage,
        limits,
        timeouts: Timeouts::of(&config.timeouts),
        names: Names::of(&config.identity),
        log: Log::of(&config.log),
        routes: routes?,
        credentials: Credentials::default(),
    })
}
