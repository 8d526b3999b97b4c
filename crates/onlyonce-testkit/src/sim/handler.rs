//! The work itself: it takes its time, and succeeds, fails, panics, knows nothing, or takes its
//! process down.

use std::panic::resume_unwind;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use onlyonce_core::policy::Fate;
use onlyonce_core::{Execution, Outcome, Response};
use tokio::sync::Notify;

use super::clock::{millis, pause};
use super::history::{Ending, Short, What};
use super::kinds::{Fault, Seen};
use super::ledger::Run;
use super::model::Phase;
use super::process::Process;
use super::report::require;
use super::rules::tenancy;
use super::terms::{Gives, Work};
use super::world::{World, short};

pub(super) struct Handler {
    pub(super) world: Arc<World>,
    pub(super) process: Arc<Process>,
    pub(super) call: usize,
    pub(super) work: Work,
    pub(super) by_hand: bool,
    /// The planted bug: what the caller's hang-up would cancel it by.
    pub(super) cancel: Option<Arc<Notify>>,
}

impl Handler {
    pub(super) async fn run(self, execution: Execution) -> Outcome {
        let mut running = self.start(&execution);
        tokio::select! {
            biased;
            () = cancelled(self.cancel.as_deref()) => {
                drop(running);
                return Outcome::Unknown;
            }
            () = self.perform() => {}
        }
        let (ending, outcome) = self.outcome(running.id, &execution);
        running.end(ending, &execution);
        match outcome {
            Some(outcome) => outcome,
            // Unwinds like a panic, but does not call the panic hook, which would print.
            None => resume_unwind(Box::new("the handler panicked, as planned")),
        }
    }

    fn start(&self, execution: &Execution) -> Running {
        let token = execution.lease().map(|lease| lease.token);
        // In a rotation the handler is told of the attempts under the former secret, too; rules about
        // a claim go by the claim's own.
        let attempt = execution.lease().map_or(1, |lease| lease.attempt);
        let id = self.world.step(|state, now| {
            let id = state.ledger.runs.len();
            state.ledger.runs.push(Run {
                call: self.call,
                token,
                attempt,
                started: now,
                ended: None,
                keep: self.work.keep.unwrap_or(state.ledger.calls[self.call].keep),
                landed: now,
                lost: None,
                failing: None,
                told_of_another: false,
                releases_on: false,
                told_absent: false,
            });
            state.report.count_seen(Seen::Started);
            let started = What::Started {
                run: short(id),
                call: short(self.call),
                token: token.as_ref().map(Short::of),
                attempt,
            };
            state.note(now, Some(self.process.id), started);
            id
        });
        self.world
            .check(|state, now| tenancy::started(&mut state.ledger, id, now));
        Running {
            world: Arc::clone(&self.world),
            process: Arc::clone(&self.process),
            id,
            ended: false,
        }
    }

    async fn perform(&self) {
        pause(self.work.takes).await;
        self.process.gate.pass().await;
        if self.work.crashes {
            self.process.crash(&self.world, Fault::CrashBeforeComplete);
            self.process.gate.pass().await;
        }
    }

    /// How it ends and what it says; nothing said is a panic.
    fn outcome(&self, id: usize, execution: &Execution) -> (Ending, Option<Outcome>) {
        let work = &self.work;
        if work.opts_out {
            execution.do_not_store();
        }
        if let Some(keep) = work.keep {
            execution.keep_for(millis(keep));
        }
        let terms = self
            .world
            .step(|state, _| state.ledger.calls[self.call].terms);
        let fate = |status| match work.opts_out {
            true => Fate::Released,
            false => terms.stored.fate(status, terms.on_lapse),
        };
        match work.gives {
            Gives::Status(status) => {
                let body = Bytes::from(tenancy::body(id));
                let code = StatusCode::from_u16(status).expect("a planned status is a status");
                let ending = Ending::Finished { fate: fate(status) };
                (ending, Some(Response::new(code, body).into()))
            }
            Gives::NotRun => (Ending::NotRun, Some(Outcome::NotRun)),
            Gives::Panic if !self.by_hand => (Ending::Panicked { fate: fate(500) }, None),
            // By hand there is nobody to catch a panic: the outcome is just as unknown.
            Gives::Unknown | Gives::Panic => (Ending::Unknown, Some(Outcome::Unknown)),
        }
    }
}

async fn cancelled(cancel: Option<&Notify>) {
    match cancel {
        Some(cancel) => cancel.notified().await,
        None => std::future::pending().await,
    }
}

/// A handler under way. Dropped before its end, it needs a reason.
struct Running {
    world: Arc<World>,
    process: Arc<Process>,
    id: usize,
    ended: bool,
}

impl Running {
    fn end(&mut self, ending: Ending, execution: &Execution) {
        self.ended = true;
        let (id, lost) = (self.id, execution.is_lost());
        self.world.check(|state, now| {
            state.ledger.runs[id].ended = Some((now, ending));
            state.ledger.runs[id].landed = now;
            state.note(
                now,
                Some(self.process.id),
                What::Ended {
                    run: short(id),
                    ending,
                },
            );
            let run = &state.ledger.runs[id];
            let call = &state.ledger.calls[run.call];
            let token = run.token;
            let cell = token.map_or(call.key, |token| state.ledger.cell_of(call, &token));
            let took = now - run.started;
            require(
                call.by_hand || took <= call.terms.execution_max,
                "a handler does not run past its deadline",
                || format!("run {id} took {took} ms"),
            )?;
            let holds = state.ledger.cells[cell].current(now).is_some_and(|held| {
                Some(held.token) == token && matches!(held.phase, Phase::Pending) && !held.orphan
            });
            require(
                !(lost && holds),
                "a lease is told lost only if it is",
                || format!("run {id}, {token:?}"),
            )
        });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended || self.process.gate.is_crashed() {
            return;
        }
        let id = self.id;
        self.world.check(|state, now| {
            if state.over {
                return Ok(());
            }
            let ending = tenancy::dropped(&state.ledger, &state.ledger.runs[id], now)?;
            let run = &mut state.ledger.runs[id];
            (run.ended, run.landed) = (Some((now, ending)), now);
            state.note(
                now,
                Some(self.process.id),
                What::Ended {
                    run: short(id),
                    ending,
                },
            );
            Ok(())
        });
    }
}
