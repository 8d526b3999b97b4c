//! How each upstream does, over all threads: counted, logged with the cause, and known to operators.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use http::Uri;
use http::uri::Scheme;
use onlyonce_core::{Clock as _, SystemClock, Timestamp};
use onlyonce_metrics::Metrics;
use tokio::net::TcpStream;

use super::UpstreamError;

#[cfg(test)]
mod tests;

/// An upstream that is down is logged this often, with the number of failures in between.
const LOG_EVERY: Duration = Duration::from_secs(1);
/// How long a connection may take that only asks whether the upstream is there.
const PROBE_MAX: Duration = Duration::from_secs(1);
/// What is kept of a cause.
const CAUSE_CHARS_MAX: usize = 300;

/// The upstreams of a gateway, by address; cheap to clone.
#[derive(Clone)]
pub(crate) struct Healths(Arc<Known>);

struct Known {
    metrics: Arc<Metrics>,
    by_name: Mutex<BTreeMap<Arc<str>, Arc<Health>>>,
}

/// How one upstream does.
pub(crate) struct Health {
    /// Scheme, host and port.
    name: Arc<str>,
    host: String,
    port: u16,
    metrics: Arc<Metrics>,
    clock: SystemClock,
    /// Whether the last exchange went well; read by each request, written only when it changes, and only
    /// under the lock of `seen`, with its metric: both say the same.
    is_up: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    failures: u64,
    last: Option<Failed>,
    logged_at: Option<Duration>,
    unlogged: u64,
    /// No settings name it any more, and requests that still end there must not bring its metric back.
    is_retired: bool,
}

/// The last failure of an upstream.
#[derive(Clone)]
pub(crate) struct Failed {
    pub(crate) at: Timestamp,
    pub(crate) kind: &'static str,
    pub(crate) cause: String,
}

/// How an upstream does at this moment.
pub(crate) struct HealthNow {
    pub(crate) name: Arc<str>,
    pub(crate) is_up: bool,
    pub(crate) failures: u64,
    pub(crate) last: Option<Failed>,
}

impl Healths {
    pub(crate) fn new(metrics: &Arc<Metrics>) -> Self {
        Self(Arc::new(Known {
            metrics: Arc::clone(metrics),
            by_name: Mutex::default(),
        }))
    }

    /// The health of the upstream at `uri`, from the first time it is asked for.
    pub(crate) fn of(&self, uri: &Uri) -> Arc<Health> {
        let name = name_of(uri);
        let mut known = self.known();
        let health = known.entry(Arc::clone(&name));
        let health = health.or_insert_with(|| {
            self.0.metrics.set_upstream_up(&name, true);
            Arc::new(Health {
                name,
                host: uri
                    .host()
                    .unwrap_or_default()
                    .trim_matches(['[', ']'])
                    .to_owned(),
                port: port_of(uri),
                metrics: Arc::clone(&self.0.metrics),
                clock: SystemClock::new(),
                is_up: AtomicBool::new(true),
                seen: Mutex::default(),
            })
        });
        Arc::clone(health)
    }

    /// Forgets the upstreams that are none of these any more.
    pub(crate) fn keep_only(&self, uris: &[Uri]) {
        let names: Vec<_> = uris.iter().map(name_of).collect();
        self.known().retain(|name, health| {
            let is_kept = names.contains(name);
            if !is_kept {
                health.retire();
            }
            is_kept
        });
    }

    /// All of them, as they are now.
    pub(crate) fn now(&self) -> Vec<HealthNow> {
        self.known().values().map(|health| health.now()).collect()
    }

    /// Connects to each; the names of those that cannot be reached.
    pub(crate) async fn unreachable(&self) -> Vec<Arc<str>> {
        let all: Vec<_> = self.known().values().cloned().collect();
        let tried = join_all(all.iter().map(|health| health.connects())).await;
        let unreachable = all.iter().zip(tried).filter(|(_, connects)| !connects);
        unreachable
            .map(|(health, _)| Arc::clone(&health.name))
            .collect()
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<Health>>> {
        self.0
            .by_name
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Health {
    /// An exchange went well.
    pub(crate) fn answered(&self) {
        if self.is_up.load(Ordering::Relaxed) {
            return;
        }
        let failures = {
            let seen = self.seen();
            if !self.turn(&seen, true) {
                return;
            }
            seen.failures
        };
        tracing::warn!(
            target: "onlyonce",
            event = "idempotency.upstream.back",
            upstream = &*self.name,
            failures,
            "the upstream answers again"
        );
    }

    /// Notes whether it is up; false if that was known.
    fn turn(&self, seen: &Seen, is_up: bool) -> bool {
        let turns = self.is_up.swap(is_up, Ordering::Relaxed) != is_up;
        if turns && !seen.is_retired {
            self.metrics.set_upstream_up(&self.name, is_up);
        }
        turns
    }

    fn retire(&self) {
        self.seen().is_retired = true;
        self.metrics.forget_upstream(&self.name);
    }

    /// An exchange failed; what its client did wrong is no failure of the upstream.
    pub(crate) fn failed(&self, error: &UpstreamError) {
        let Some(kind) = error.kind() else {
            return;
        };
        self.metrics.upstream_failed(&self.name, kind);
        let cause = cause_of(error);
        let now = self.clock.now();
        let (failures, is_due) = {
            let mut seen = self.seen();
            self.turn(&seen, false);
            seen.failures += 1;
            seen.unlogged += 1;
            seen.last = Some(Failed {
                at: self.clock.wall(),
                kind,
                cause: cause.clone(),
            });
            let is_due = seen.logged_at.is_none_or(|at| now >= at + LOG_EVERY);
            if is_due {
                seen.logged_at = Some(now);
                (std::mem::take(&mut seen.unlogged), true)
            } else {
                (0, false)
            }
        };
        if is_due {
            tracing::warn!(
                target: "onlyonce",
                event = "idempotency.upstream.failed",
                upstream = &*self.name,
                kind,
                error = cause,
                failures,
                "the upstream did not answer"
            );
        }
    }

    fn now(&self) -> HealthNow {
        let seen = self.seen();
        HealthNow {
            name: Arc::clone(&self.name),
            is_up: self.is_up.load(Ordering::Relaxed),
            failures: seen.failures,
            last: seen.last.clone(),
        }
    }

    async fn connects(&self) -> bool {
        let connect = TcpStream::connect((self.host.as_str(), self.port));
        matches!(tokio::time::timeout(PROBE_MAX, connect).await, Ok(Ok(_)))
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How an upstream is called: without a path, and without anything that could be a secret.
fn name_of(uri: &Uri) -> Arc<str> {
    let scheme = uri.scheme_str().unwrap_or("http");
    let host = uri.host().unwrap_or_default();
    format!("{scheme}://{host}:{}", port_of(uri)).into()
}

fn port_of(uri: &Uri) -> u16 {
    let usual = if uri.scheme() == Some(&Scheme::HTTPS) {
        443
    } else {
        80
    };
    uri.port_u16().unwrap_or(usual)
}

/// The error and what lies behind it, on one line.
fn cause_of(error: &UpstreamError) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let text = next.to_string();
        if !words.ends_with(&text) {
            words.push_str(": ");
            words.push_str(&text);
        }
        cause = next.source();
    }
    words.chars().take(CAUSE_CHARS_MAX).collect()
}
