//! What will happen and when, drawn from the seed: calls, faults, operators.

use std::sync::Arc;

use onlyonce_core::Policy;

use super::Plan;
use super::client::Order;
use super::clock::{JUMP_MAX, Ms};
use super::dice::Dice;
use super::terms::{LEASE_MAX, Terms};
use super::world::Weather;

/// Policies a key is used under: the usual one and its variants.
const VARIANTS: usize = 3;

pub(super) enum Action {
    Call(Box<Order>),
    Crash { node: usize },
    Pause { node: usize, ms: Ms },
    Jump { node: usize, by_ms: i64 },
    Outage { ms: Ms },
    ShutDown { node: usize, grace: Ms },
    Forget { key: usize },
    Extend { key: usize, ms: Ms },
    Resolve { key: usize, keep: Ms },
    Sweep { records_max: usize },
}

/// A run before it starts.
pub(super) struct Script {
    pub(super) nodes: usize,
    pub(super) keys: usize,
    pub(super) weather: Weather,
    /// In the order of their times.
    pub(super) actions: Vec<(Ms, Action)>,
    /// When faults end.
    pub(super) heals_at: Ms,
}

type Variant = (Terms, Arc<Policy>);

impl Script {
    pub(super) fn draw(dice: &mut Dice, plan: &Plan, base: &Policy) -> Self {
        let nodes = range(dice, &plan.nodes);
        let keys = range(dice, &plan.keys);
        let heals_at = dice.between(800..=3000);
        let (weather, troubles) = weather(dice, plan);
        let variants: Vec<[Variant; VARIANTS]> = (0..keys)
            .map(|_| {
                let usual = Terms::draw(dice);
                [usual, usual.vary(dice), usual.vary(dice)].map(|it| (it, it.policy(base)))
            })
            .collect();
        let mut actions = Vec::new();
        for _ in 0..range(dice, &plan.calls) {
            let order = order(dice, nodes, &variants);
            // Half of the callers come together: that is when it gets interesting.
            let at = match dice.below(2) {
                0 => dice.below(heals_at),
                _ => dice.below(heals_at / 4) * 4 / 100 * 100 + dice.below(30),
            };
            actions.push((at, Action::Call(Box::new(order))));
        }
        for _ in 0..troubles {
            actions.push((dice.below(heals_at), trouble(dice, nodes, keys)));
        }
        if plan.rotation {
            // A rolling restart.
            for node in 0..nodes {
                let grace = dice.between(0..=400);
                actions.push((dice.below(heals_at), Action::ShutDown { node, grace }));
            }
        }
        actions.sort_by_key(|(at, _)| *at);
        Self {
            nodes,
            keys,
            weather,
            actions,
            heals_at,
        }
    }
}

fn range(dice: &mut Dice, range: &std::ops::RangeInclusive<usize>) -> usize {
    range.start() + dice.index(range.end() - range.start() + 1)
}

/// One run in five is calm: there, every bound holds without an excuse.
fn weather(dice: &mut Dice, plan: &Plan) -> (Weather, u64) {
    if !plan.faults {
        return (Weather::default(), 0);
    }
    let (faults, copies, crashes, troubles) = match dice.below(10) {
        0..2 => (0, 0, 0, 0),
        2..7 => (20, 20, 10, dice.between(0..=4)),
        _ => (100, 60, 30, dice.between(2..=8)),
    };
    let weather = Weather {
        faults_permille: faults,
        copies_permille: copies,
        crashes_permille: crashes,
        healed: false,
    };
    (weather, troubles)
}

fn order(dice: &mut Dice, nodes: usize, variants: &[[Variant; VARIANTS]]) -> Order {
    let key = dice.index(variants.len());
    let variant = if dice.chance(700) {
        0
    } else {
        dice.index(VARIANTS)
    };
    let (terms, policy) = variants[key][variant].clone();
    Order {
        node: dice.index(nodes),
        key,
        payload: u8::from(dice.chance(120)),
        credential: u8::from(dice.chance(60)),
        terms,
        policy,
        keep: dice.chance(100).then(|| dice.between(40..=900)),
        hangs_up_after: Order::hang_up_after(dice),
        again: dice.below(4),
        by_hand: dice.chance(120),
    }
}

fn trouble(dice: &mut Dice, nodes: usize, keys: usize) -> Action {
    let node = dice.index(nodes);
    let key = dice.index(keys);
    match dice.below(16) {
        0..3 => Action::Crash { node },
        3..6 => Action::Pause {
            node,
            ms: dice.between(10..=3 * LEASE_MAX),
        },
        6 => Action::Jump {
            node,
            by_ms: jump(dice),
        },
        7 => Action::Jump {
            node,
            by_ms: -jump(dice),
        },
        8..10 => Action::Outage {
            ms: dice.between(5..=2 * LEASE_MAX),
        },
        10 => Action::ShutDown {
            node,
            grace: dice.between(0..=400),
        },
        11..13 => Action::Forget { key },
        13 => Action::Extend {
            key,
            ms: dice.between(10..=500),
        },
        14 => Action::Resolve {
            key,
            keep: dice.between(50..=800),
        },
        _ => Action::Sweep {
            records_max: dice.index(10),
        },
    }
}

fn jump(dice: &mut Dice) -> i64 {
    let ms = dice.between(10..=JUMP_MAX);
    i64::try_from(ms).expect("a few seconds fit")
}
