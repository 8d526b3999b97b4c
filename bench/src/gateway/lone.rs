//! How long a request takes while there is no other, and what a disk makes everybody wait.

use super::{Options, Upstream};
use crate::budget::Budget;
use crate::failure::Failure;
use crate::proxy::Onlyonce;
use crate::report::{Goal, Row, Unit};
use crate::rounds::{Rounds, median};
use crate::wrk::{self, Keys, Load};
use crate::{noise, say};

/// How often the disk is waited for in a turn.
const SYNCS: usize = 500;

pub(super) fn run(
    options: &Options,
    upstream: &Upstream,
    budget: Budget,
) -> Result<Vec<Row>, Failure> {
    let program = options.program()?;
    let [mut passed, mut in_memory, mut on_disk, mut synced] = [const { Rounds::new() }; 4];
    let mut waits = Vec::new();
    for round in budget.rounds(options.rounds) {
        say(&format!(
            "gateway, lone requests: round {round} of {}",
            options.rounds
        ));
        let turn = |gateway: &Onlyonce, keys| {
            let load = Load {
                connections: 1,
                ..Load::new(gateway.port(), keys, options.seconds)
            };
            wrk::run(load, &[gateway.pid()])
        };
        let gateway = Onlyonce::start(&program, upstream.port(), "memory:")?;
        let pass = turn(&gateway, Keys::None)?;
        in_memory.add(turn(&gateway, Keys::New)?, pass);
        drop(gateway);

        let folder = tempfile::tempdir().map_err(Failure::doing("make a folder"))?;
        let bare = noise::syncs(&folder.path().join("bare"), SYNCS)?;
        let store = format!("file:{}/data", folder.path().display());
        let gateway = Onlyonce::start(&program, upstream.port(), &store)?;
        let kept = turn(&gateway, Keys::New)?;
        on_disk.add(kept, pass);
        passed.add_alone(pass);
        synced.add_alone(bare);
        if let (Some(kept), Some(pass), Some(bare)) = (kept.p50, pass.p50, bare.p50) {
            waits.push((kept - pass) / bare);
        }
    }
    let added = Row::alone(
        "gateway",
        "lone new key, file: added to pass-through, in waits for the disk",
        "p50",
        (median(waits), Unit::Ratio),
        Some(Goal::Below(1.6)),
    );
    Ok(vec![
        passed.p50("gateway", "lone pass-through"),
        in_memory.p50("gateway", "lone new key, memory / pass-through"),
        on_disk.p50("gateway", "lone new key, file / pass-through"),
        synced.p50("disk", "one write and fdatasync of a record, alone"),
        added,
    ])
}
