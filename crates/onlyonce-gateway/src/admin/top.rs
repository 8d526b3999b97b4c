//! The keys that are repeated most, for operators.

use axum::Json;
use axum::extract::State;
use onlyonce_observe::HotKey;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Admin;
use super::extract::Query;

const SHOWN: usize = 20;

/// The hottest keys of this gateway, since it started.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct TopView {
    /// The keys, hottest first.
    pub keys: Vec<HotKey>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TopQuery {
    /// How many at most; 20 unless asked otherwise.
    #[schemars(range(max = u32::MAX))]
    limit: Option<u32>,
}

pub(super) async fn top(
    State(admin): State<Admin>,
    Query(query): Query<TopQuery>,
) -> Json<TopView> {
    let limit = query.limit.and_then(|limit| usize::try_from(limit).ok());
    let keys = admin.observers.hot().hottest(limit.unwrap_or(SHOWN));
    Json(TopView { keys })
}
