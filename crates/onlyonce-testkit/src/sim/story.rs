//! A run from its beginning to its end: the script is played, everything heals, and what is left
//! must be in order.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use onlyonce_core::operate::{Filter, Page};
use onlyonce_core::{OnLapse, Record, Response, State};

use super::client::{Order, ask, client};
use super::clock::{Ms, millis, pause};
use super::history::What;
use super::kinds::{Fault, Heard, Seen};
use super::model::{Cell, Closing, Window};
use super::process::{open, shut_down};
use super::report::require;
use super::rotation::Rotation;
use super::script::{Action, Script};
use super::terms::{LEASE_MAX, Terms};
use super::world::{Running, Weather, World};

/// How long everything may take to settle once all faults have ended.
const QUIET_WITHIN: Ms = 60_000;
/// A record about to expire is left out where its end would race with the check.
const MARGIN: Ms = 50;

/// Plays the whole script, and checks what is left.
pub(super) async fn play(world: &Arc<World>, script: Script) {
    for node in 0..script.nodes {
        world.step(|state, _| state.nodes.push(None));
        open(world, node).await;
    }
    lay_out(world, script.keys);
    world.step(|state, _| state.weather = script.weather);
    let mut resolved = 0;
    for (at, action) in script.actions {
        pause(at.saturating_sub(world.now())).await;
        act(world, action, &mut resolved).await;
    }
    pause(script.heals_at.saturating_sub(world.now())).await;
    heal(world);
    quieten(world).await;
    nothing_is_left(world).await;
    for key in 0..script.keys {
        probe(world, key).await;
    }
    world.step(count_expired);
}

/// Finds where each key lives: all engines agreed on the secret, so any of them knows.
fn lay_out(world: &World, keys: usize) {
    let keys = &world.keys[..keys];
    world.step(|state, _| {
        let Some(Running { engine, .. }) = &state.nodes[0] else {
            return;
        };
        let slot = |key| engine.slot(&world.scope, key);
        let slots = match &world.rotation {
            Some(rotation) => rotation.slots(&world.scope, keys),
            None => keys.iter().map(slot).collect(),
        };
        state.ledger.cells = slots.into_iter().map(Cell::new).collect();
        state.ledger.keys = keys.len();
        let rotation = world.rotation.as_ref();
        state.ledger.common_half = rotation.map(Rotation::common_half);
    });
}

async fn act(world: &Arc<World>, action: Action, resolved: &mut u32) {
    let on = |node: usize| world.step(|state, _| state.nodes[node].clone());
    let slot = |cell: usize| world.step(|state, _| state.ledger.cells[cell].slot);
    let halves = |key: usize| world.step(|state, _| state.ledger.halves(key));
    match action {
        Action::Call(order) => {
            world.step(|state, _| {
                state.clients += 1;
                if order.credential > 0 {
                    state.report.count_fault(Fault::Rotation);
                }
            });
            tokio::spawn(client(Arc::clone(world), *order));
        }
        Action::Crash { node } => {
            if let Some(Running { process, .. }) = on(node) {
                process.crash(world, Fault::Crash);
            }
        }
        Action::Pause { node, ms } => {
            if let Some(Running { process, .. }) = on(node) {
                process.pause(world, ms);
            }
        }
        Action::Jump { node, by_ms } => {
            if let Some(Running { process, .. }) = on(node) {
                process.jump(world, by_ms);
            }
        }
        Action::Outage { ms } => world.step(|state, now| {
            state.report.count_fault(Fault::Outage);
            state.ledger.outages.push(Window::new(now, now + ms));
            let fault = What::Fault {
                fault: Fault::Outage,
                verb: None,
                ms,
            };
            state.note(now, None, fault);
        }),
        Action::ShutDown { node, grace } => {
            if let Some(running) = on(node) {
                tokio::spawn(shut_down(Arc::clone(world), running, grace));
            }
        }
        Action::Forget { key } => {
            for cell in halves(key) {
                drop(world.forget(&slot(cell)).await);
            }
        }
        Action::Extend { key, ms } => {
            for cell in halves(key) {
                drop(world.extend(&slot(cell), millis(ms)).await);
            }
        }
        Action::Resolve { key, keep } => {
            let cell = world.step(|state, _| state.ledger.common(key));
            *resolved += 1;
            let body = Bytes::from(format!("resolved {resolved}"));
            let response = Arc::new(Response::new(StatusCode::OK, body));
            drop(world.resolve(&slot(cell), &response, keep).await);
        }
        // Dropping what is expired changes nothing that anyone can see.
        Action::Sweep { records_max } => drop(world.operators().sweep(records_max).await),
    }
}

fn heal(world: &World) {
    let living: Vec<Running> = world.step(|state, now| {
        state.note(now, None, What::Healed);
        state.weather = Weather {
            healed: true,
            ..Default::default()
        };
        for outage in &mut state.ledger.outages {
            outage.to = outage.to.min(now);
        }
        state.living().cloned().collect()
    });
    for Running { process, .. } in living {
        process.gate.resume();
    }
}

/// Waits until nobody waits any more: callers, flights, verbs under way.
async fn quieten(world: &World) {
    let until = world.now() + QUIET_WITHIN;
    loop {
        let busy = world.step(|state, _| {
            let in_flight: usize = state.living().map(|it| it.engine.in_flight()).sum();
            (state.clients, state.under_way, state.opening, in_flight)
        });
        if busy == (0, 0, 0, 0) {
            return;
        }
        if world.now() >= until {
            let (clients, verbs, _, in_flight) = busy;
            world.check(|_, _| {
                require(
                    false,
                    "when all is well again, nobody waits for ever",
                    || format!("{clients} callers, {in_flight} flights and {verbs} verbs are left"),
                )
            });
            return;
        }
        pause(LEASE_MAX / 5).await;
    }
}

/// After the last lease: nothing pending under a live lease, and the store lists what the model
/// has.
async fn nothing_is_left(world: &World) {
    pause(LEASE_MAX + world.step(|state, _| state.ledger.recovery())).await;
    let page = Page {
        after: None,
        records_max: usize::MAX,
    };
    let listed = world.operators().list(&Filter::default(), &page).await;
    let listed = listed.unwrap_or_default();
    world.check(|state, now| {
        let cells = state.ledger.cells.iter_mut();
        let mut expected: Vec<_> = cells
            .filter_map(|cell| Some((cell.slot, cell.record(now)?)))
            .collect();
        expected.sort_by_key(|(slot, _)| *slot);
        require(expected == listed, "the store lists what is there", || {
            format!("expected {expected:?}\n  was {listed:?}")
        })?;
        let live = expected.iter().find(|(_, record)| {
            matches!(record.state, State::Pending { lease_left } if !lease_left.is_zero())
        });
        require(
            live.is_none(),
            "when all is quiet, nobody holds a lease",
            || format!("{live:?}"),
        )
    });
}

/// One more call for each key, when all is well: it gets what it must.
async fn probe(world: &Arc<World>, key: usize) {
    let (records, terms) = world.step(|state, now| {
        let terms = Terms {
            on_lapse: OnLapse::Rerun,
            ..Terms::draw(&mut state.dice)
        };
        (seen_from_node_0(state, key, now), terms)
    });
    let meaning = records.first().map_or([1, 0], |record| {
        let digest = record.fingerprint.digest();
        [digest[0], digest[1]]
    });
    let order = Order {
        node: 0,
        key,
        payload: meaning[0] - 1,
        credential: meaning[1],
        terms,
        policy: terms.policy(&world.base),
        keep: None,
        hangs_up_after: None,
        again: 0,
        by_hand: false,
    };
    let heard = ask(world, &order).await;
    let ends_now = |record: &Record| record.keep_left < millis(MARGIN);
    let fits = records.iter().any(ends_now) || fits(&records, heard);
    world.check(|_, _| {
        require(
            fits,
            "when all is well, a call gets what its record says",
            || format!("key {key} heard {heard:?}, records {records:?}"),
        )
    });
}

/// The records of a key that the process on node 0 finds; more than one only in a rotation.
fn seen_from_node_0(state: &mut super::world::State, key: usize, now: Ms) -> Vec<Record> {
    let Some(Running { process, .. }) = &state.nodes[0] else {
        return Vec::new();
    };
    let known = state.ledger.known(process.id, key);
    let cells = &mut state.ledger.cells;
    known
        .into_iter()
        .filter_map(|cell| cells[cell].record(now))
        .collect()
}

/// Whether a call that means what the first record does hears what they say: one that is lapsed is
/// taken over, and then the next one decides.
fn fits(records: &[Record], heard: Option<Heard>) -> bool {
    let lapsed = |record: &Record| {
        matches!(record.state, State::Pending { .. }) && record.on_lapse == OnLapse::Rerun
    };
    let meaning = records.first().map(|record| record.fingerprint);
    let another = |record: &&Record| Some(record.fingerprint) != meaning;
    let mut deciding = records.iter();
    let Some(record) = deciding.find(|it| another(it) || !lapsed(it)) else {
        return heard.is_some_and(is_new);
    };
    if another(&record) {
        return matches!(heard, Some(Heard::Mismatch | Heard::OtherCredential));
    }
    match record.state {
        State::Done(_) | State::Failed(_) => heard == Some(Heard::Replayed),
        State::Unknown | State::Pending { .. } => heard == Some(Heard::OutcomeUnknown),
    }
}

/// What a call can hear for which the handler runs.
fn is_new(heard: Heard) -> bool {
    matches!(
        heard,
        Heard::Ran | Heard::RanUnstored | Heard::NotRun | Heard::OutcomeUnknown | Heard::TimedOut
    )
}

fn count_expired(state: &mut super::world::State, now: Ms) {
    for cell in &mut state.ledger.cells {
        cell.current(now);
        for tenure in &cell.tenures {
            let expired = matches!(tenure.closed, Some((_, Closing::Expired)));
            if expired && tenure.finished.is_some() {
                state.report.count_seen(Seen::Expired);
            }
        }
    }
}
