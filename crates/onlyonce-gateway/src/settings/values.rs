//! The plain values: addresses, bounds and times as they are in force, given or not.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use http::HeaderName;
use onlyonce_observe::audit::AuditSettings;
use onlyonce_stores::Guarded;
use onlyonce_tower::{AllowanceRule, Linger};

use super::contracts::Contracts;
use super::defaults;
use super::finding::Findings;
use crate::body::BodyPatience;
use crate::config::{self, Config, Count, HostName, LogFormat, LogLevel, Span, Timeout};
use crate::upstream::Patience;

/// The operators' side.
#[derive(Clone)]
pub(crate) struct Operators {
    pub(crate) address: SocketAddr,
    /// Names by which it is reached; none if nothing is said of them.
    pub(crate) hosts: Option<Vec<HostName>>,
    /// Whether it is ready only while its upstreams can be reached.
    pub(crate) needs_upstreams: bool,
}

/// What an engine stands on.
#[derive(Clone)]
pub(crate) struct Storage {
    pub(crate) url: String,
    pub(crate) namespace: Option<String>,
    pub(crate) instance: Option<String>,
    pub(crate) breaker: Breaker,
    pub(crate) audit: Option<AuditSettings>,
    /// Keyed requests that run at a time.
    pub(crate) running_max: NonZeroUsize,
}

/// When a store counts as down.
#[derive(Clone, Copy)]
pub(crate) struct Breaker {
    pub(crate) failures: u32,
    pub(crate) reset: Duration,
    pub(crate) probe: Duration,
}

/// Bounds that no client can exceed.
#[derive(Clone)]
pub(crate) struct Limits {
    pub(crate) connections: u32,
    pub(crate) header_bytes: usize,
    /// Requests on one HTTP/2 connection.
    pub(crate) streams: u32,
    /// Bytes of keyed requests' bodies that are held at a time.
    pub(crate) buffered_bytes: usize,
    /// The largest answer that some route stores.
    pub(crate) response_bytes: usize,
    /// What one caller may take.
    pub(crate) caller: AllowanceRule,
    /// Where something in front of us says whose request it is.
    pub(crate) address_header: Option<HeaderName>,
}

/// How long to wait for what.
#[derive(Clone, Copy)]
pub(crate) struct Timeouts {
    pub(crate) headers: Duration,
    pub(crate) write: Duration,
    pub(crate) idle: Duration,
    pub(crate) websocket: Duration,
    pub(crate) bodies: BodyPatience,
    pub(crate) upstream: Patience,
}

/// What is written to stderr, and how.
#[derive(Clone, Copy)]
pub(crate) struct Log {
    pub(crate) format: LogFormat,
    pub(crate) level: LogLevel,
    /// One in so many lines.
    pub(crate) sample_info: u32,
    pub(crate) sample_debug: u32,
}

impl Operators {
    pub(super) fn of(config: &Config, findings: &mut Findings) -> Self {
        let address = config.admin.unwrap_or(defaults::ADMIN);
        if !address.ip().is_loopback() && config.admin_token_file.is_none() {
            let why = format!(
                "admin = \"{address}\" can be reached from other machines: give \
                 `admin_token_file`, or use a loopback address, as in admin = \"{}\"",
                defaults::ADMIN
            );
            findings.note_about(&["admin_token_file"], "admin", why);
        }
        Self {
            address,
            hosts: config.admin_hosts.clone(),
            needs_upstreams: config.ready_upstreams.unwrap_or(defaults::READY_UPSTREAMS),
        }
    }
}

impl Storage {
    pub(super) fn of(config: &Config, findings: &mut Findings) -> Self {
        let checked = config.store.as_deref().map(onlyonce_stores::check_url);
        if let Some(Err(error)) = checked {
            let why = format!(
                "store: {error}; for example store = \"{}\"",
                defaults::STORE
            );
            findings.note("store", why);
        }
        let running = config.limits.running.map(Count::as_usize);
        Self {
            url: config.store_url().to_owned(),
            namespace: config.namespace.clone(),
            instance: config.instance.clone(),
            breaker: Breaker::of(&config.breaker),
            audit: config.audit.as_ref().map(audit),
            running_max: running
                .and_then(NonZeroUsize::new)
                .unwrap_or(defaults::RUNNING_MAX),
        }
    }
}

fn audit(given: &config::Audit) -> AuditSettings {
    let usual = defaults::audit(&given.path);
    AuditSettings {
        keep: given.keep.map_or(usual.keep, Span::get),
        file_bytes_max: given
            .file_bytes_max
            .map_or(usual.file_bytes_max, Count::get),
        ..usual
    }
}

impl Breaker {
    fn of(given: &config::Breaker) -> Self {
        Self {
            failures: given
                .failures
                .map_or(defaults::BREAKER_FAILURES, Count::as_u32),
            reset: given.reset.map_or(defaults::BREAKER_RESET, Span::get),
            probe: given.probe.map_or(defaults::BREAKER_PROBE, Span::get),
        }
    }

    /// The store with these settings.
    pub(crate) fn guard(&self, store: Guarded) -> Guarded {
        store.breaker(self.failures, self.reset).probe(self.probe)
    }
}

impl Limits {
    pub(super) fn of(config: &Config, contracts: &Contracts, findings: &mut Findings) -> Self {
        let given = &config.limits;
        let largest = contracts
            .in_force(config)
            .map(|it| it.limits.response_bytes_max);
        Self {
            connections: given
                .connections
                .map_or(defaults::CONNECTIONS_MAX, Count::as_u32),
            header_bytes: given
                .header_bytes
                .map_or(defaults::HEADER_BYTES_MAX, Count::as_usize),
            streams: given.streams.map_or(defaults::STREAMS_MAX, Count::as_u32),
            response_bytes: largest.max().unwrap_or_default(),
            buffered_bytes: buffered_bytes(config, contracts, findings),
            caller: caller(given),
            address_header: address_header(given, findings),
        }
    }
}

/// A body that never has room would be refused for ever.
fn buffered_bytes(config: &Config, contracts: &Contracts, findings: &mut Findings) -> usize {
    let largest = contracts
        .in_force(config)
        .map(|it| it.limits.request_bytes_max);
    let largest = largest.max().unwrap_or_default();
    let given = config.limits.buffered_bytes.map(Count::as_usize);
    let room = given.unwrap_or_else(|| largest.max(defaults::BUFFERED_BYTES_MAX));
    if largest > room {
        let why = format!(
            "buffered_bytes: {room} bytes have no room for a request of {largest} bytes, which \
             request_bytes_max allows; for example buffered_bytes = {}",
            largest.saturating_mul(16)
        );
        let about = &["limits", "rules", "route"];
        findings.note_about(about, "limits.buffered_bytes", why);
    }
    room
}

fn caller(given: &config::Limits) -> AllowanceRule {
    let usual = defaults::allowance();
    let bad = given.bad_requests_a_minute.map(Count::as_u32);
    AllowanceRule {
        keys_max: given.keys_a_caller.map(Count::get).or(usual.keys_max),
        bytes_max: given.bytes_a_caller.map(Count::get).or(usual.bytes_max),
        bad_requests_a_minute: bad
            .and_then(NonZeroU32::new)
            .unwrap_or(usual.bad_requests_a_minute),
    }
}

fn address_header(given: &config::Limits, findings: &mut Findings) -> Option<HeaderName> {
    let name = given.address_header.as_ref()?;
    let read = HeaderName::from_bytes(name.as_bytes());
    let wrong = |_| format!("`{name}` is not a header name: write one like \"x-real-ip\"");
    match read.map_err(wrong) {
        Ok(name) => Some(name),
        Err(why) => {
            findings.note("limits.address_header", format!("address_header: {why}"));
            None
        }
    }
}

impl Timeouts {
    pub(super) fn of(given: &config::Timeouts) -> Self {
        let or = |timeout: Option<Timeout>, usual| timeout.map_or(usual, Span::get);
        let idle = or(given.idle, defaults::IDLE_MAX);
        let linger = defaults::linger();
        Self {
            headers: or(given.headers, defaults::HEADERS_MAX),
            write: or(given.write, defaults::WRITE_PAUSE_MAX),
            idle,
            websocket: or(given.websocket, defaults::WEB_SOCKET_IDLE_MAX),
            bodies: BodyPatience {
                pause_max: or(given.body, defaults::BODY_PAUSE_MAX),
                whole_max: or(given.body_whole, defaults::BODY_WHOLE_MAX),
                linger: Linger {
                    time_max: given.linger.map_or(linger.time_max, Span::get),
                    ..linger
                },
            },
            upstream: Patience {
                connect_max: or(given.connect, defaults::CONNECT_MAX),
                response_max: or(given.response, defaults::RESPONSE_MAX),
                idle_max: idle,
            },
        }
    }
}

impl Log {
    pub(super) fn of(given: &config::Log) -> Self {
        Self {
            format: given.format.unwrap_or(defaults::LOG_FORMAT),
            level: given.level.unwrap_or(defaults::LOG_LEVEL),
            sample_info: given
                .sample_info
                .map_or(defaults::SAMPLE_INFO, Count::as_u32),
            sample_debug: given
                .sample_debug
                .map_or(defaults::SAMPLE_DEBUG, Count::as_u32),
        }
    }
}
