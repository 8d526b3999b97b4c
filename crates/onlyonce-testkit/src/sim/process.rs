//! Processes: each is a production engine with its own clock, randomness and link to the store.
//! They open, pause, jump in time, shut down, crash, and are replaced.

use std::sync::Arc;

use onlyonce_core::{Engine, Store};

use super::clock::{Ms, ProcessClock, millis, pause};
use super::dice::SeededEntropy;
use super::gate::Gate;
use super::history::What;
use super::kinds::Fault;
use super::ledger::Life;
use super::link::Link;
use super::model::Window;
use super::terms::{KEEP_MAX, LEASE_MAX};
use super::world::{Ear, Running, World, short};

pub(super) struct Process {
    pub(super) id: usize,
    pub(super) node: usize,
    pub(super) gate: Gate,
    clock: Arc<ProcessClock>,
}

/// How long a node is down after a crash, and between tries to reach the store at its start.
const RESTART_MS: Ms = 25;

/// Starts an engine on `node`; it serves there from then on.
pub(super) async fn open(world: &Arc<World>, node: usize) -> Running {
    let (id, secrets, dice) = world.step(|state, now| {
        let id = state.ledger.lives.len();
        // At the start each node gets the process of its number.
        let is_first = id == node;
        let rotation = world.rotation.as_ref();
        let secrets = rotation.map(|it| it.secrets(is_first)).unwrap_or_default();
        if rotation.is_some() && !is_first {
            state.report.count_fault(Fault::NextSecrets);
        }
        state.ledger.lives.push(Life {
            secrets,
            ..Life::default()
        });
        state.note(now, Some(id), What::Opened { node: short(node) });
        (id, secrets, state.dice.fork())
    });
    let process = Arc::new(Process {
        id,
        node,
        gate: Gate::new(),
        clock: Arc::new(ProcessClock::new()),
    });
    let entropy = Arc::new(SeededEntropy::new(dice));
    let engine = loop {
        let link = Arc::new(Link::new(Arc::clone(world), Arc::clone(&process)));
        let store: Arc<dyn Store> = match world.around {
            None => link,
            Some(around) => (around.wrap)(link, process.clock.clone(), entropy.clone()),
        };
        let builder = Engine::builder(store)
            .clock(process.clock.clone())
            .entropy(entropy.clone())
            .instance(&format!("p{id}"))
            .subscribe(Arc::new(Ear(Arc::clone(world))));
        let builder = match &world.rotation {
            Some(rotation) => rotation.configure(builder, secrets),
            None => builder,
        };
        match builder.open().await {
            Ok(engine) => break engine,
            Err(_) => pause(RESTART_MS).await,
        }
    };
    let running = Running { process, engine };
    let serving = running.clone();
    world.step(|state, _| state.nodes[node] = Some(serving));
    running
}

impl Process {
    /// Stops for ever: whatever it still does, nobody outside learns of it. Another process takes
    /// the node over a little later.
    pub(super) fn crash(&self, world: &Arc<World>, fault: Fault) {
        if self.gate.is_crashed() || world.step(|state, _| state.weather.healed) {
            return;
        }
        self.gate.crash();
        self.clock.stop();
        let served = world.step(|state, now| {
            state.fault(fault, None, self.id, Window::new(now, now));
            state.ledger.lives[self.id].crashed = true;
            let serves = |it: &mut Running| it.process.id == self.id;
            state.nodes[self.node].take_if(serves)
        });
        if served.is_some() {
            self.replace(world, RESTART_MS);
        }
    }

    fn replace(&self, world: &Arc<World>, after: Ms) {
        world.step(|state, _| state.opening += 1);
        let (world, node) = (Arc::clone(world), self.node);
        tokio::spawn(async move {
            pause(after).await;
            open(&world, node).await;
            world.step(|state, _| state.opening -= 1);
        });
    }

    /// Stops for a while.
    pub(super) fn pause(self: &Arc<Self>, world: &Arc<World>, ms: Ms) {
        let window = world.step(|state, now| {
            let window = Window::new(now, now + ms);
            state.fault(Fault::Pause, None, self.id, window);
            window
        });
        self.gate.pause();
        let (world, process) = (Arc::clone(world), Arc::clone(self));
        tokio::spawn(async move {
            pause(window.to - window.from).await;
            process.gate.resume();
            world.step(|state, now| state.note(now, Some(process.id), What::Resumed));
        });
    }

    /// Its clock jumps; the store's does not.
    pub(super) fn jump(&self, world: &World, by_ms: i64) {
        self.clock.jump(by_ms);
        let fault = if by_ms > 0 {
            Fault::ClockForward
        } else {
            Fault::ClockBack
        };
        world.step(|state, now| {
            state.report.count_fault(fault);
            let ms = by_ms.unsigned_abs();
            let what = What::Fault {
                fault,
                verb: None,
                ms,
            };
            state.note(now, Some(self.id), what);
            // What it had scheduled is off by the jump, for as long as a record can live.
            let off = now + ms + LEASE_MAX + KEEP_MAX;
            state.trouble(self.id, None, Window::new(now, off));
            state.ledger.lives[self.id].jumps.push(now);
        });
    }
}

/// Tells the engine on `node` to shut down; what it runs goes on, and a new one takes its place.
pub(super) async fn shut_down(world: Arc<World>, running: Running, grace: Ms) {
    let id = running.process.id;
    world.step(|state, now| {
        // Shutting down is no excuse for losing a lease: only counted, not a disturbance.
        state.report.count_fault(Fault::Shutdown);
        let fault = What::Fault {
            fault: Fault::Shutdown,
            verb: None,
            ms: grace,
        };
        state.note(now, Some(id), fault);
        state.ledger.lives[id].closing = Some(now);
    });
    running.engine.shutdown(millis(grace)).await;
    let retired = world.step(|state, _| {
        let serves = |it: &mut Running| it.process.id == id;
        let served = state.nodes[running.process.node].take_if(serves);
        let found = served.is_some();
        state.retired.extend(served);
        found
    });
    if retired {
        running.process.replace(&world, 0);
    }
}
