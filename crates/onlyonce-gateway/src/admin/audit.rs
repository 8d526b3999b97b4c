//! The audit trail over HTTP, read and purged as `onlyonce audit` does where it lies.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use onlyonce_core::Deed;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Admin;
use super::extract::{Body, Query};
use super::operator::{Name, Reason, Via};
use super::problem::Problem;
use crate::audit::{Trail, TrailError};

/// Entries of a page unless asked otherwise, and at most.
const ENTRIES: usize = 100;
const ENTRIES_MAX: usize = 10_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TailQuery {
    /// Only by this actor.
    actor: Option<String>,
    /// How many at most; 100 unless asked otherwise, 10000 at most.
    #[schemars(range(max = u32::MAX))]
    limit: Option<u32>,
}

/// The newest entries of an audit trail.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct AuditPage {
    /// The entries, oldest first: one JSON object each, as they were written.
    pub entries: Vec<Value>,
    /// Lines that could not be read, torn by a crash.
    pub unread: u64,
}

/// Whose entries go.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Purge {
    /// The actor's id.
    #[schemars(length(min = 1))]
    actor: String,
    /// The operator's name.
    by: Option<Name>,
    /// Why: kept in the audit trail, which must not name the actor again.
    reason: Option<Reason>,
}

/// What a purge did.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct PurgedView {
    /// Entries removed.
    pub removed: u64,
    /// Entries that stay.
    pub kept: u64,
}

pub(super) async fn tail(
    State(admin): State<Admin>,
    Query(query): Query<TailQuery>,
) -> Result<Json<AuditPage>, Problem> {
    let limit = query.limit.and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.unwrap_or(ENTRIES).clamp(1, ENTRIES_MAX);
    let actor = query.actor;
    let (entries, unread) = on_trail(&admin, move |trail| {
        let admit = |entry: &Value| actor.as_ref().is_none_or(|it| entry["actor"]["id"] == **it);
        trail.last(limit, admit)
    })
    .await?;
    Ok(Json(AuditPage { entries, unread }))
}

pub(super) async fn purge(
    State(admin): State<Admin>,
    via: Via,
    Body(purge): Body<Purge>,
) -> Result<Json<PurgedView>, Problem> {
    if purge.actor.is_empty() {
        return Err(Problem::bad("`actor` is the id of an actor, and not empty"));
    }
    let actor = purge.actor;
    let purged = on_trail(&admin, move |trail| trail.purge(&actor)).await?;
    let (removed, kept) = (purged.removed, purged.kept);
    let deed = Deed::Purged { entries: removed };
    let operated = via.operated(deed, purge.by, purge.reason);
    admin.observers.operated_at_large(operated);
    Ok(Json(PurgedView { removed, kept }))
}

/// Reads or changes the files of the trail, off the threads that serve.
async fn on_trail<T: Send + 'static>(
    admin: &Admin,
    act: impl FnOnce(&Trail) -> Result<T, TrailError> + Send + 'static,
) -> Result<T, Problem> {
    let Some(trail) = admin.trail.as_ref().map(Arc::clone) else {
        let why = "this gateway keeps no audit trail: set `path` of [audit]";
        return Err(Problem::not_found(why));
    };
    let unusable = |why: String| Problem::new(StatusCode::SERVICE_UNAVAILABLE, why);
    let acted = tokio::task::spawn_blocking(move || act(&trail)).await;
    acted
        .map_err(|error| unusable(format!("the audit trail was not read: {error}")))?
        .map_err(|error| unusable(error.to_string()))
}
