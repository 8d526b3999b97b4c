//! How the upstreams do, as requests have found them.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Admin;
use crate::upstream::HealthNow;

/// The upstreams of this gateway.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct UpstreamsView {
    /// Each of them, by name.
    pub upstreams: Vec<UpstreamView>,
}

/// How an upstream does.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct UpstreamView {
    /// Its scheme, host and port.
    pub name: String,
    /// Whether the last request to it was answered.
    pub up: bool,
    /// Requests that it did not answer, since this gateway started.
    pub failures: u64,
    /// The last of these.
    pub last_failure: Option<FailureView>,
}

/// A request that an upstream did not answer.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FailureView {
    /// When.
    pub at: String,
    /// What went wrong: `unreachable`, `lost`, `unreadable`, `broken_off`, `slow` or `switched`.
    pub kind: String,
    /// What lies behind it.
    pub cause: String,
}

pub(super) async fn list(State(admin): State<Admin>) -> Json<UpstreamsView> {
    let upstreams = admin.upstreams();
    Json(UpstreamsView { upstreams })
}

impl Admin {
    pub(super) fn upstreams(&self) -> Vec<UpstreamView> {
        let all = self.healths.as_ref().map(crate::upstream::Healths::now);
        all.into_iter().flatten().map(UpstreamView::of).collect()
    }
}

impl UpstreamView {
    fn of(health: HealthNow) -> Self {
        Self {
            name: health.name.to_string(),
            up: health.is_up,
            failures: health.failures,
            last_failure: health.last.map(|last| FailureView {
                at: last.at.to_rfc3339(),
                kind: last.kind.to_owned(),
                cause: last.cause,
            }),
        }
    }
}
