//! What holds unless it is set: every default of the gateway, in one place. The reference of all settings
//! names them too; a test compares.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use http::HeaderName;
use onlyonce_core::{Profile, profile};
use onlyonce_observe::audit::AuditSettings;
use onlyonce_tower::{AllowanceRule, Linger};

use crate::config::{LogFormat, LogLevel, Mode};

pub(crate) const LISTEN: SocketAddr = loopback(8080);
pub(crate) const ADMIN: SocketAddr = loopback(9090);
pub(crate) const READY_UPSTREAMS: bool = false;
pub(crate) const STORE: &str = "file:./onlyonce-data";
pub(crate) const MODE: Mode = Mode::Enforce;
pub(crate) const DRAIN: Duration = Duration::from_secs(30);

pub(crate) const OPERATION_HEADER: HeaderName = HeaderName::from_static("onlyonce-operation");
pub(crate) const ATTEMPT_HEADER: HeaderName = HeaderName::from_static("onlyonce-attempt");
pub(crate) const IDENTITY_HEADERS: bool = true;

pub(crate) const BREAKER_FAILURES: u32 = 5;
pub(crate) const BREAKER_RESET: Duration = Duration::from_secs(60);
pub(crate) const BREAKER_PROBE: Duration = Duration::from_secs(1);

pub(crate) const CONNECTIONS_MAX: u32 = 10_000;
pub(crate) const HEADER_BYTES_MAX: usize = 64 << 10;
pub(crate) const STREAMS_MAX: u32 = 200;
pub(crate) const RUNNING_MAX: NonZeroUsize = NonZeroUsize::new(1024).expect("1,024 is not zero");
/// Or what one request may have, if that is more.
pub(crate) const BUFFERED_BYTES_MAX: usize = 256 << 20;

pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(5);
pub(crate) const HEADERS_MAX: Duration = Duration::from_secs(60);
pub(crate) const BODY_PAUSE_MAX: Duration = Duration::from_secs(30);
pub(crate) const BODY_WHOLE_MAX: Duration = Duration::from_secs(300);
pub(crate) const WRITE_PAUSE_MAX: Duration = Duration::from_secs(30);
pub(crate) const RESPONSE_MAX: Duration = Duration::from_secs(60);
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(75);
pub(crate) const WEB_SOCKET_IDLE_MAX: Duration = Duration::from_secs(3600);
/// For a tool call, where neither a profile nor a rule says more.
pub(crate) const TOOL_EXECUTION_MAX: Duration = Duration::from_secs(3600);

pub(crate) const LOG_FORMAT: LogFormat = LogFormat::Json;
pub(crate) const LOG_LEVEL: LogLevel = LogLevel::Warn;
pub(crate) const SAMPLE_INFO: u32 = 1;
/// D0 §9.2.3: a hundredth of what is for debugging.
pub(crate) const SAMPLE_DEBUG: u32 = 100;

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// The contract of every request.
pub(crate) fn profile() -> Profile {
    profile::usual()
}

/// What one caller may take: what the library gives.
pub(crate) fn allowance() -> AllowanceRule {
    AllowanceRule::default()
}

/// What is read of a body after its answer: what the library reads.
pub(crate) fn linger() -> Linger {
    Linger::default()
}

/// An audit trail in this file, as the library keeps one.
pub(crate) fn audit(path: &Path) -> AuditSettings {
    AuditSettings::at(path)
}
