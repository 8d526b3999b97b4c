//! The layer beside the quickest peer that is written in Rust as well: by how they stand to the bare
//! handler, which was measured right before each.

use crate::markdown::of;
use crate::report::{Goal, Report, Row, Unit};

const LAYER: &str = "onlyonce layer, memory";
/// The peers in Rust.
const PEERS: [&str; 4] = [
    "axum-idempotent",
    "actix-idempotent",
    "idempotent-proxy-server, memory",
    "idempotent-proxy-server, Redis",
];
const GOAL: Goal = Goal::AtLeast(1.15);

/// One row for new keys and one for replays, where both sides were measured.
pub(super) fn rows(report: &Report) -> Vec<Row> {
    let cases = [
        ("new keys", "new keys / quickest Rust peer"),
        ("replays", "replays / quickest Rust peer"),
    ];
    let rows = cases.into_iter().filter_map(|(case, name)| {
        let ours = of(report, LAYER, case, "rate")?.figure;
        let peers = PEERS.iter();
        let peers = peers.filter_map(|peer| Some(of(report, peer, case, "rate")?.figure));
        let quickest = peers.reduce(f64::max)?;
        let ratio = (ours / quickest, Unit::Ratio);
        Some(Row::alone("layer", name, "rate", ratio, Some(GOAL)))
    });
    rows.collect()
}
