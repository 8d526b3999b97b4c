//! What enforcing would have done on routes that are only observed.

use axum::Json;
use axum::extract::State;
use onlyonce_tower::observe::{Example, KEYS_MAX, ObservedCounts, Observing, Sight, Tallied};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::report::ObservedReport;
use super::Admin;

mod report;

/// What was seen on observed routes since this gateway started. It is kept in its memory alone: each
/// gateway tells of its own requests.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ObservedView {
    /// Since when.
    pub since: String,
    /// Keys that are remembered, to know their repeats.
    pub keys: usize,
    /// Keys that can be remembered.
    pub keys_max: usize,
    /// Keys that were forgotten for lack of room: repeats of them count as first requests.
    pub keys_forgotten: u64,
    /// The routes that are or were observed, by name.
    pub routes: Vec<ObservedRouteView>,
}

/// What was seen on one route.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ObservedRouteView {
    /// The `match` of the route; `*` for what no route matches.
    pub route: String,
    /// Whether it is observed now; if not, its contract has been enforced since.
    pub observed: bool,
    /// Since when it was observed.
    pub since: String,
    /// Requests that its contract covers, with a key or without.
    pub requests: u64,
    /// Those with a key, good or bad, that could be looked at.
    pub keyed: u64,
    /// What would have become of each request. Their counts sum up to `requests`.
    pub verdicts: Vec<SeenView>,
    /// What requests and answers were like besides: `weak-key`, `answer-too-large`, `ran-again`.
    pub findings: Vec<SeenView>,
}

/// How often one thing was seen.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct SeenView {
    /// What: `first`, `replay`, `attached`, `rerun`, `unkeyed`, `unseen`, a finding, or the reason for
    /// which it would have been refused, as in `mismatch` or `missing-key`.
    pub seen: String,
    /// Whether it would have been refused.
    pub refused: bool,
    /// How often.
    pub count: u64,
    /// When first.
    pub first_at: String,
    /// When last.
    pub last_at: String,
    /// The newest of them, at most five.
    pub examples: Vec<ExampleView>,
}

/// One request of its kind.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ExampleView {
    /// When.
    pub at: String,
    /// A harmless start of its key, and of the key's digest.
    pub key: Option<String>,
    /// What would have been wrong with it.
    pub detail: Option<String>,
}

pub(super) async fn observed(State(admin): State<Admin>) -> Json<ObservedView> {
    Json(ObservedView::of(&admin.observing))
}

impl ObservedView {
    pub(super) fn of(observing: &Observing) -> Self {
        let remembered = observing.remembered();
        let routes = observing.routes();
        Self {
            since: observing.since().to_rfc3339(),
            keys: remembered.keys,
            keys_max: KEYS_MAX,
            keys_forgotten: remembered.forgotten,
            routes: routes.iter().map(ObservedRouteView::of).collect(),
        }
    }
}

impl ObservedRouteView {
    fn of(route: &ObservedCounts) -> Self {
        let all = || route.seen.iter();
        let verdicts = || all().filter(|(sight, _)| sight.is_verdict());
        let findings = all().filter(|(sight, _)| !sight.is_verdict());
        let keyed = verdicts().filter(|(sight, _)| sight.has_key());
        Self {
            route: route.name.to_string(),
            observed: route.is_observed,
            since: route.since.to_rfc3339(),
            requests: verdicts().map(|(_, tallied)| tallied.count).sum(),
            keyed: keyed.map(|(_, tallied)| tallied.count).sum(),
            verdicts: verdicts().map(SeenView::of).collect(),
            findings: findings.map(SeenView::of).collect(),
        }
    }
}

impl SeenView {
    fn of((sight, tallied): (&Sight, &Tallied)) -> Self {
        Self {
            seen: sight.name().to_owned(),
            refused: matches!(sight, Sight::Refused(_)),
            count: tallied.count,
            first_at: tallied.first.to_rfc3339(),
            last_at: tallied.last.to_rfc3339(),
            examples: tallied.examples.iter().map(ExampleView::of).collect(),
        }
    }
}

impl ExampleView {
    fn of(example: &Example) -> Self {
        Self {
            at: example.at.to_rfc3339(),
            key: example.key.as_deref().map(str::to_owned),
            detail: example.detail.as_deref().map(str::to_owned),
        }
    }
}
