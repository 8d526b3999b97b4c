//! The callers that repeat themselves or are refused most, for operators.

use axum::Json;
use axum::extract::State;
use onlyonce_observe::BusyCaller;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Admin;
use super::extract::Query;

pub(super) const SHOWN: usize = 20;

/// The busiest callers of this gateway, since it started.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct CallersView {
    /// The callers, the busiest first.
    pub callers: Vec<BusyCaller>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CallersQuery {
    /// How many at most; 20 unless asked otherwise.
    #[schemars(range(max = u32::MAX))]
    limit: Option<u32>,
}

pub(super) async fn callers(
    State(admin): State<Admin>,
    Query(query): Query<CallersQuery>,
) -> Json<CallersView> {
    let limit = query.limit.and_then(|limit| usize::try_from(limit).ok());
    let callers = admin.observers.hot().busiest(limit.unwrap_or(SHOWN));
    Json(CallersView { callers })
}
