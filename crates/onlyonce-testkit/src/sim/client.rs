//! Callers: they ask a node, wait, hang up, hear an answer, and ask again with the same key.

use std::future::pending;
use std::sync::Arc;

use onlyonce_core::engine::Who;
use onlyonce_core::event::Verb;
use onlyonce_core::{Answer, Call, Engine, Fingerprint, Outcome, Policy, Reason, Refusal, Verdict};
use tokio::sync::Notify;

use super::clock::{Ms, millis, pause};
use super::dice::Dice;
use super::handler::Handler;
use super::history::What;
use super::kinds::{Fault, Heard, Seen};
use super::ledger;
use super::model::Window;
use super::rules::{answers, refusals};
use super::terms::{LEASE_MAX, Terms, Work};
use super::world::{Running, World, short};

/// What a caller wants, and how it behaves.
pub(super) struct Order {
    pub(super) node: usize,
    pub(super) key: usize,
    pub(super) payload: u8,
    pub(super) credential: u8,
    pub(super) terms: Terms,
    pub(super) policy: Arc<Policy>,
    /// Asks for another retention than the policy's.
    pub(super) keep: Option<Ms>,
    pub(super) hangs_up_after: Option<Ms>,
    /// How often it asks again.
    pub(super) again: u64,
    /// Runs the work itself, between `begin` and `finish`.
    pub(super) by_hand: bool,
}

impl Order {
    pub(super) fn fingerprint(&self) -> Fingerprint {
        let mut digest = [0; 32];
        digest[..2].copy_from_slice(&[self.payload + 1, self.credential]);
        Fingerprint::new(Fingerprint::RECIPE, digest)
    }

    pub(super) fn hang_up_after(dice: &mut Dice) -> Option<Ms> {
        dice.chance(150).then(|| dice.between(0..=2 * LEASE_MAX))
    }
}

/// A caller's whole life.
pub(super) async fn client(world: Arc<World>, mut order: Order) {
    loop {
        ask(&world, &order).await;
        if order.again == 0 {
            break;
        }
        order.again -= 1;
        let rest = world.step(|state, _| {
            order.node = state.dice.index(state.nodes.len());
            order.hangs_up_after = Order::hang_up_after(&mut state.dice);
            state.dice.between(1..=150)
        });
        pause(rest).await;
    }
    world.step(|state, _| state.clients -= 1);
}

/// Asks once. Nothing, if nobody serves the node.
pub(super) async fn ask(world: &Arc<World>, order: &Order) -> Option<Heard> {
    let running = world.step(|state, _| state.nodes[order.node].clone())?;
    let (id, work) = register(world, order, running.process.id);
    let call = call(world, &running.engine, order, id);
    let cancel = world.hangup_cancels.then(Arc::<Notify>::default);
    let handler = Handler {
        world: Arc::clone(world),
        process: Arc::clone(&running.process),
        call: id,
        work,
        by_hand: order.by_hand,
        cancel: cancel.clone(),
    };
    let Running { process, engine } = running;
    let asking = async {
        let answer = if order.by_hand {
            by_hand(&engine, call, handler).await
        } else {
            engine.once(call, |execution| handler.run(execution)).await
        };
        process.gate.pass().await;
        answer
    };
    let hanging_up = async {
        match order.hangs_up_after {
            Some(after) => pause(after).await,
            None => pending().await,
        }
    };
    let answer = tokio::select! {
        biased;
        () = process.gate.crashed() => Err(Heard::CutOff),
        () = hanging_up => Err(Heard::HungUp),
        answer = asking => Ok(answer),
    };
    if let (Err(Heard::HungUp), Some(cancel)) = (&answer, cancel) {
        cancel.notify_one();
    }
    Some(match answer {
        Ok(answer) => hear(world, id, &answer),
        Err(heard) => leave(world, id, heard),
    })
}

fn register(world: &World, order: &Order, process: usize) -> (usize, Work) {
    world.step(|state, now| {
        let id = state.ledger.calls.len();
        state.ledger.calls.push(ledger::Call {
            process,
            key: order.key,
            fingerprint: order.fingerprint(),
            credential: credential(order),
            terms: order.terms,
            keep: order.keep.unwrap_or(order.terms.keep),
            by_hand: order.by_hand,
            started: now,
            left: None,
            hung_up: false,
            flies_on: false,
        });
        state.report.calls += 1;
        let called = What::Called {
            call: short(id),
            key: short(order.key),
            payload: order.payload,
            credential: order.credential,
            by_hand: order.by_hand,
        };
        state.note(now, Some(process), called);
        let crashes = state.weather.crashes_permille;
        (id, Work::draw(&mut state.dice, &order.terms, crashes))
    })
}

fn call(world: &World, engine: &Engine, order: &Order, id: usize) -> Call {
    let who = Who {
        operation: Arc::clone(&world.operation),
        actor: None,
        trace: Some(id.to_string().into()),
        credential: credential(order),
        intake: None,
        route: None,
    };
    let under = |engine: &Engine| {
        let key = &world.keys[order.key];
        let who = who.clone();
        let call = engine.call(&world.scope, key, order.fingerprint(), &order.policy, who);
        match order.keep {
            Some(keep) => call.keep_for(millis(keep)),
            None => call,
        }
    };
    match engine.former().filter(|_| !world.former_ignored) {
        Some(former) => under(engine).after(under(former)),
        None => under(engine),
    }
}

fn credential(order: &Order) -> Option<[u8; 32]> {
    Some([order.credential; 32])
}

async fn by_hand(engine: &Engine, call: Call, handler: Handler) -> Answer {
    match engine.begin(call).await {
        Verdict::Execute(held) => {
            let outcome = handler.run(held.execution().clone()).await;
            engine.finish(held, outcome).await
        }
        Verdict::PassThrough(execution) => match handler.run(execution).await {
            Outcome::Finished(response) => Answer::Ran {
                response,
                receipt: None,
                in_doubt: false,
                as_returned: true,
            },
            Outcome::NotRun => Answer::Refused(Refusal::new(Reason::NotRun)),
            Outcome::Unknown => Answer::Refused(Refusal::new(Reason::OutcomeUnknown)),
        },
        Verdict::Replay(replay) => Answer::Replayed(replay),
        Verdict::Refuse(refusal) => Answer::Refused(refusal),
    }
}

/// The caller hears an answer, and every rule about it is checked.
fn hear(world: &World, id: usize, answer: &Answer) -> Heard {
    let heard = world.step(|state, now| {
        let heard = answers::kind(&state.ledger, id, answer);
        let call = &mut state.ledger.calls[id];
        call.left = Some(now);
        call.flies_on = heard == Heard::NotStored;
        let process = call.process;
        state.report.count_heard(heard);
        state.note(
            now,
            Some(process),
            What::Heard {
                call: short(id),
                heard,
            },
        );
        if heard == Heard::OutcomeUnknown && refusals::held_back(&state.ledger, id, now) {
            state.report.count_seen(Seen::Held);
        }
        heard
    });
    world.check(|state, now| answers::heard(&mut state.ledger, id, answer, now));
    heard
}

/// The caller goes away without an answer.
fn leave(world: &World, id: usize, heard: Heard) -> Heard {
    world.step(|state, now| {
        let call = &mut state.ledger.calls[id];
        call.left = Some(now);
        (call.hung_up, call.flies_on) = (true, true);
        let (process, by_hand) = (call.process, call.by_hand);
        state.report.count_heard(heard);
        state.note(
            now,
            Some(process),
            What::Heard {
                call: short(id),
                heard,
            },
        );
        if heard == Heard::HungUp {
            state.report.count_fault(Fault::HangUp);
        }
        let mut runs = state.ledger.runs.iter();
        let token = runs.find(|run| run.call == id).and_then(|run| run.token);
        if let Some(token) = token.filter(|_| by_hand) {
            // Who runs the work by hand takes it along: its claim is left to lapse or in doubt.
            let window = Window::new(now, now + LEASE_MAX);
            state.trouble(process, Some((Verb::Release, token)), window);
        }
    });
    heard
}
