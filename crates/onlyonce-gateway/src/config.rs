//! What a gateway is told: a TOML file, `ONLYONCE_…` variables and flags, one typed schema. A
//! setting that is unknown or cannot hold is an error that says where it is and what would be
//! right. What a gateway works by are [`Settings`](crate::Settings).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::settings::defaults;

pub use onlyonce_core::bounds::{
    Count, DAY, GIBIBYTE, HOUR, KIBIBYTE, MEBIBYTE, MINUTE, SECOND, Span,
};
pub use onlyonce_core::policy::ScopePart;
pub use onlyonce_core::profile::{Retention, Rules, Timeout};

pub use self::contracts::Contract;
pub(crate) use self::contracts::Wrong;
pub use self::docs::markdown;
pub use self::error::{ConfigError, Problem};
pub use self::identity::{Identity, KeyPlace, UpstreamHeader};
pub(crate) use self::load::resolved;
pub use self::load::{load, read};
pub use self::mcp::{Mcp, Protocol, Verification};
pub use self::reconcile::{Lookup, LookupTable, Piece, Pointer, StatusNumber, Template, Variable};
pub use self::units::{Ask, HostName, Match, Operation, ProfileName};

mod contracts;
mod docs;
mod document;
mod error;
mod identity;
mod load;
mod mcp;
mod reconcile;
#[cfg(test)]
mod tests;
mod units;

/// What requests that no route matches are called where they are counted.
pub(crate) const REST: &str = "*";

/// The settings of a gateway.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where the gateway listens. Default `127.0.0.1:8080`.
    pub listen: Option<SocketAddr>,
    /// Where operators reach it: admin API, health, metrics. Default `127.0.0.1:9090`. Any address
    /// but loopback needs `admin_token_file`.
    pub admin: Option<SocketAddr>,
    /// A file with the bearer token that operators must send.
    pub admin_token_file: Option<PathBuf>,
    /// Names by which operators reach it besides `localhost`, loopback addresses and `admin`'s own
    /// address, without ports: `["gateway.internal"]`. Whatever asks for another host is refused, so
    /// that no web page comes in whose name was pointed here. Default: none; with
    /// `admin_token_file`, any.
    pub admin_hosts: Option<Vec<HostName>>,
    /// Whether `/readyz` says no while an upstream cannot be connected to. Default `false`: then it
    /// speaks of the store alone.
    pub ready_upstreams: Option<bool>,
    /// Where requests go that no route sends elsewhere: `http://127.0.0.1:3000`, `https://…` to a
    /// server that the machine trusts, or `h2c://…` for HTTP/2 without TLS (gRPC).
    pub upstream: Option<String>,
    /// The store's URL, with options after a question mark. For every store: `sealed=KEYFILE` (and
    /// `plain=true` while it has records from before), `cache=64MiB`; for PostgreSQL and MariaDB
    /// `tier=redis://…`. docs/stores.md has them all. Default `file:./onlyonce-data`.
    pub store: Option<String>,
    /// The contract of every request that no route gives another: one of `onlyonce profiles`, one in
    /// `[profiles.NAME]`, or a file, as in `./contract.toml`. Default `standard`.
    pub profile: Option<ProfileName>,
    /// Contracts of your own, by name; each says how it differs from its `base`.
    #[serde(default)]
    pub profiles: BTreeMap<String, Rules>,
    /// Whether contracts hold: `enforce`, or `observe`, where every request passes as it comes and what
    /// enforcing would have done is counted (`onlyonce observe report`). Nothing is held, refused,
    /// replayed or stored then, also while the store is down. Default `enforce`.
    pub mode: Option<Mode>,
    /// Whose record it is: `route`, `caller`, `path:NAME`, `path-after:SEGMENT`, `header:NAME`,
    /// `trusted-header:NAME`, `user-header:NAME`, `cookie:NAME`, `body:MEMBER`, `jwt:CLAIM`; and always the host that was asked for, so gateways
    /// that share a store are called by one name. Records of another scope are never found: a key that is sent
    /// through two routes or gateways of different scope runs in each. Default: what the profile says.
    pub scope: Option<Vec<ScopePart>>,
    /// How long an answer is kept. Default: what the profile says.
    pub ttl: Option<Retention>,
    /// Keeps this environment's records apart from others on the same store.
    pub namespace: Option<String>,
    /// What this instance is called in records and logs. With a name, or on a `file:` store, it also
    /// tells of the ends of keys that it stored before a restart. Default: a random name.
    pub instance: Option<String>,
    /// A file with the slot secret as 64 hex digits. Default: the store keeps one.
    pub secret_file: Option<PathBuf>,
    /// A file with the slot secret before that one, or `store` for the one the store keeps: records
    /// are then found and stored under both. To rotate, start every gateway with both; after the
    /// longest `ttl`, with `secret_file` alone.
    pub former_secret_file: Option<PathBuf>,
    /// How long SIGTERM waits for running requests. Default `30s`.
    pub drain: Option<Span<0, DAY>>,
    /// TLS towards clients. Default: plain HTTP. The files are read again on SIGHUP.
    pub tls: Option<Tls>,
    /// How bearer tokens are verified, for the scope part `jwt:CLAIM`. The file is read again on
    /// SIGHUP.
    pub jwt: Option<Jwt>,
    /// A cheap request to the upstream, like `GET /me`, that goes before every replay with the
    /// caller's own headers: a replay does not reach the upstream's own authentication. Only if
    /// it is answered with 2xx the replay is given. Default: none.
    pub auth_check: Option<Ask>,
    /// How the upstream hears which operation a keyed request is.
    #[serde(default)]
    pub identity: Identity,
    /// When the store counts as down, and how soon it is tried again.
    #[serde(default)]
    pub breaker: Breaker,
    /// Bounds that no client can exceed.
    #[serde(default)]
    pub limits: Limits,
    /// How long to wait for what.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// What is written to stderr, and how.
    #[serde(default)]
    pub log: Log,
    /// A file that keeps who did what under which key. Default: none.
    pub audit: Option<Audit>,
    /// How the contract of every request differs from its profile, unless its route says otherwise.
    #[serde(default)]
    pub rules: Rules,
    /// Routes: the first that matches decides.
    #[serde(default)]
    pub route: Vec<Route>,
}

impl Config {
    /// Whether a route, or what no route matches, is only observed.
    pub(crate) fn is_observed(&self, route: Option<&Route>) -> bool {
        let own = route.and_then(|route| route.mode);
        let passes = route.is_some_and(|route| route.pass);
        !passes && own.or(self.mode).unwrap_or(defaults::MODE) == Mode::Observe
    }
}

/// Requests that are treated alike.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Which requests: a method and a path, as in `POST /api/intakes/{intake}/submit`; `*` for
    /// every method; `{*rest}` at the end for everything below. A path is matched, and sent on,
    /// with dot segments and needless escapes resolved. One that servers may read in different ways
    /// (`%2F`, `\`, `//`, `;`, escaped punctuation) is refused with 400 if another route would match
    /// another reading.
    #[serde(rename = "match")]
    pub matches: Match,
    /// What these requests do, as in `create` or `submit`: its name in records, logs and metrics.
    /// Default: the path of `match`.
    pub operation: Option<Operation>,
    /// Where they go. Default: the gateway's own.
    pub upstream: Option<String>,
    /// Their contract.
    pub profile: Option<ProfileName>,
    /// Whether it holds, or what it would do is only counted. Default: the gateway's own.
    pub mode: Option<Mode>,
    /// Whose record it is.
    pub scope: Option<Vec<ScopePart>>,
    /// How long an answer is kept.
    pub ttl: Option<Retention>,
    /// A cheap request to their upstream that goes before every replay.
    pub auth_check: Option<Ask>,
    /// Where their upstream expects an idempotency key of its own: `header:NAME` or `body:MEMBER` of a
    /// JSON object. It gets the operation's id there, in place of what the client sent; a request
    /// without a JSON object has no place for a member, and is refused with 422 before it is sent.
    /// Default: nowhere but in `[identity]`'s header.
    pub upstream_key_in: Option<KeyPlace>,
    /// Declares that their upstream runs each operation's id once, in whatever request it comes. Then
    /// running again is safe: `on_lapse` is `rerun`, and has exactly one effect. Default `false`.
    #[serde(default)]
    pub upstream_keys: bool,
    /// How it is found out whether an operation happened whose outcome is unknown (its gateway or its
    /// upstream died, or answered with an error that is not stored), before it runs again: a request to
    /// their upstream, as in `GET /charges/{operation}`, or a table. Happened: its answer is stored. Did
    /// not: it runs. Cannot tell: nothing runs, and it is asked again. `on_lapse` counts no more. Every
    /// gateway on the store needs the same. Default: none.
    pub reconcile: Option<Lookup>,
    /// How their contract differs from their profile, and from the general `[rules]`.
    #[serde(default)]
    pub rules: Rules,
    /// Hands the upstream the lease of each keyed request, in the header `Onlyonce-Lease`: with it the
    /// upstream stores the answer in its own database transaction (`onlyonce store sql` shows how), and
    /// a crash at any moment leaves nothing in doubt. Needs a store in that database (`postgres`,
    /// `mysql` or `sqlite`, not sealed) and `on_lapse = "rerun"`. Default `false`.
    #[serde(default)]
    pub transactional: bool,
    /// Passes everything through, unprotected. Default `false`.
    #[serde(default)]
    pub pass: bool,
    /// What they speak: `http`, or `mcp` for an MCP endpoint (streamable HTTP), whose tool calls run once
    /// while everything else passes. A key is then the argument `idempotencyKey`, the same member of
    /// `_meta`, or the header. Default `http`.
    #[serde(default)]
    pub protocol: Protocol,
    /// More about an MCP endpoint.
    #[serde(default)]
    pub mcp: Mcp,
}

/// Whether contracts hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// They do.
    Enforce,
    /// Everything passes; what they would do is counted.
    Observe,
}

/// What is written to stderr, and how. Keys come as a short start and a digest; bodies never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// One JSON object a line, or text for people. Default `json`.
    pub format: Option<LogFormat>,
    /// The least that is written. `info` is a line for each keyed request. Default `warn`.
    pub level: Option<LogLevel>,
    /// One in so many lines of the level info is written; warnings and errors always are. Default 1.
    pub sample_info: Option<Count<1, 1_000_000>>,
    /// One in so many lines of the level debug. Default 100.
    pub sample_debug: Option<Count<1, 1_000_000>>,
}

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object.
    Json,
    /// Text for people.
    Text,
}

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Claims, lookups, renewals.
    Debug,
    /// What became of each keyed request.
    Info,
    /// What needs attention.
    Warn,
    /// What needs attention now.
    Error,
}

/// A file that keeps who did what under which key: one JSON object a line, appended.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Audit {
    /// The file. Older ones are put beside it, with a number at the end of their names.
    pub path: PathBuf,
    /// How long entries are kept. Default `90d`.
    pub keep: Option<Span<HOUR, { 3650 * DAY }>>,
    /// A file of this many bytes is put aside, as is one of an earlier day. Default 67108864.
    pub file_bytes_max: Option<Count<512, { 1024 * GIBIBYTE }>>,
}

/// TLS towards clients.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The certificate chain, as PEM.
    pub cert: PathBuf,
    /// Its private key, as PEM.
    pub key: PathBuf,
}

/// How bearer tokens are verified.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Jwt {
    /// How tokens are signed. Needed unless `key_file` is a JWKS file, whose keys say it themselves.
    pub algorithm: Option<Algorithm>,
    /// The shared secret, the public key as PEM, or a JWKS file (its name ends with `.json`), of
    /// which the key is taken that a token names.
    pub key_file: PathBuf,
    /// The issuer tokens must have.
    pub issuer: Option<String>,
    /// The audience tokens must have.
    pub audience: Option<String>,
}

impl Jwt {
    /// Whether the key file is a JWKS file.
    pub(crate) fn is_key_set(&self) -> bool {
        self.key_file.extension().is_some_and(|it| it == "json")
    }
}

/// How a token is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum Algorithm {
    /// HMAC with SHA-256.
    HS256,
    /// RSA with SHA-256.
    RS256,
    /// ECDSA on P-256 with SHA-256.
    ES256,
}

/// When the store counts as down, and how soon it is tried again. While the circuit breaker is open
/// new keys and replays are refused, or run unprotected where `store_down` is `open`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Breaker {
    /// Failures of the store in a row that open it. Default 5.
    pub failures: Option<Count<1, 5>>,
    /// After this long a request tries the store, even if no probe was answered. Default `60s`.
    pub reset: Option<Span<SECOND, MINUTE>>,
    /// How often the store is asked meanwhile whether it is back. The first answer closes the
    /// breaker. Default `1s`.
    pub probe: Option<Span<100, MINUTE>>,
}

/// Bounds that no client can exceed.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Client connections at a time. Default 10000.
    pub connections: Option<Count<1, 1_000_000>>,
    /// The bytes of a request's header section. Default 65536.
    pub header_bytes: Option<Count<KIBIBYTE, { 16 * MEBIBYTE }>>,
    /// Requests on one HTTP/2 connection at a time. Default 200.
    pub streams: Option<Count<1, 10_000>>,
    /// Keyed requests that run at a time, from their claim until their answer is stored, also those
    /// whose client has gone away; a new one beyond that is refused with 503 before anything runs.
    /// Replays, and duplicates of what runs, are still served. Default 1024.
    pub running: Option<Count<1, 1_000_000>>,
    /// Bytes of keyed requests' bodies, and of messages to MCP endpoints, held in memory at a time, at
    /// least as many as one request may have; a request for which there is no room is refused with 503 before anything is claimed.
    /// Default 268435456, or what one request may have if that is more.
    pub buffered_bytes: Option<Count<KIBIBYTE, { 1024 * GIBIBYTE }>>,
    /// Bad keys and mismatches one caller may send in a minute; then its keyed requests are refused
    /// with 429 for a while; of callers known only by their address, just the bad ones. Default 60.
    pub bad_requests_a_minute: Option<Count<1, 1_000_000>>,
    /// Records one caller may have at a time, counted by this gateway; more new keys are refused
    /// with 429 until some expire. Replays never count. Default: any number.
    pub keys_a_caller: Option<Count<1, 1_000_000_000_000>>,
    /// Bytes of answers one caller may have stored at a time. Default: any number.
    pub bytes_a_caller: Option<Count<1, { 1024 * 1024 * GIBIBYTE }>>,
    /// A header in which something in front of the gateway names the client's address, such as
    /// `x-real-ip` or `x-forwarded-for` (its last entry). These limits go by it where nothing
    /// proves who the caller is. Default: the address of the connection.
    pub address_header: Option<String>,
}

/// How long to wait for what.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Timeouts {
    /// For a connection to an upstream. Default `5s`.
    pub connect: Option<Timeout>,
    /// For a client's request headers; on HTTP/1.1 also for the next request. Default `60s`.
    pub headers: Option<Timeout>,
    /// For the next bytes of a client's request body. Default `30s`.
    pub body: Option<Timeout>,
    /// For all of a keyed request's body, which is read before anything runs. Default `5m`.
    pub body_whole: Option<Timeout>,
    /// For the rest of a request's body once its answer is there, at most 64 MiB, so that a client
    /// which is still sending hears it; `0s` closes its connection at once. Default `10s`.
    pub linger: Option<Span<0, DAY>>,
    /// For a client to take the next bytes of its answer. Default `30s`.
    pub write: Option<Timeout>,
    /// For an unkeyed request's response to begin; `rules.execution_max` is for keyed ones. Default
    /// `60s`.
    pub response: Option<Timeout>,
    /// For the next request on an idle connection, the client's or ours to an upstream. Default
    /// `75s`.
    pub idle: Option<Timeout>,
    /// For the next bytes of a WebSocket, from either side. Default `1h`.
    pub websocket: Option<Timeout>,
}
