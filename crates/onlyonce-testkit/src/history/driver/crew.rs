//! The workers of a run: each place has one process at a time. They are ended by their id, and
//! never outlive the run.

use std::io;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::RunError;
use crate::history::clock::{Micros, now};
use crate::history::plan::Plan;
use crate::history::program::{Program, ShiftedClock, clear_faketime};
use crate::history::record::EXTENSION;

const LOOK_EVERY: Duration = Duration::from_millis(10);
/// What of a failed worker's last words is told.
const SAID_CHARS_MAX: usize = 2000;

pub(super) struct Crew {
    pub(super) url: String,
    pub(super) program: Program,
    pub(super) logs: PathBuf,
    pub(super) nodes: Vec<Node>,
}

/// One place for a worker.
pub(super) struct Node {
    plan: Plan,
    clock: Option<ShiftedClock>,
    state: State,
}

enum State {
    /// Nobody is there; from this moment on there should be.
    Down(Micros),
    Running(Child),
    /// Until then.
    Stopped(Child, Micros),
    Ended,
}

impl Crew {
    pub(super) fn start_all(&mut self) -> io::Result<()> {
        (0..self.nodes.len()).try_for_each(|index| self.start(index))
    }

    fn start(&mut self, index: usize) -> io::Result<()> {
        let node = &mut self.nodes[index];
        let log = self.logs.join(node.name()).with_extension(EXTENSION);
        let child = self
            .program
            .start(&self.url, &node.plan, &log, node.clock.as_ref())?;
        node.state = State::Running(child);
        Ok(())
    }

    /// Starts the next life of a place that is down long enough.
    pub(super) fn revive(&mut self, index: usize, at: Micros) -> io::Result<()> {
        let node = &mut self.nodes[index];
        if matches!(node.state, State::Down(until) if until <= at) {
            node.plan.life += 1;
            self.start(index)?;
        }
        Ok(())
    }

    /// No worker fails by itself. One that has made its last call may end a little early.
    pub(super) fn all_well(&mut self) -> Result<(), RunError> {
        for index in 0..self.nodes.len() {
            let node = &mut self.nodes[index];
            let State::Running(child) = &mut node.state else {
                continue;
            };
            match child.try_wait()? {
                Some(status) if status.success() => node.end(State::Ended),
                Some(status) => return Err(self.failed(index, &status.to_string())),
                None => {}
            }
        }
        Ok(())
    }

    /// Waits until every worker has ended, and ended well.
    pub(super) async fn join(&mut self, until: Micros) -> Result<(), RunError> {
        for index in 0..self.nodes.len() {
            loop {
                let node = &mut self.nodes[index];
                let State::Running(child) = &mut node.state else {
                    break;
                };
                match child.try_wait()? {
                    Some(status) if status.success() => node.end(State::Ended),
                    Some(status) => return Err(self.failed(index, &status.to_string())),
                    None if now() > until => {
                        let worker = node.name();
                        return Err(RunError::Stuck { worker });
                    }
                    None => tokio::time::sleep(LOOK_EVERY).await,
                }
            }
        }
        Ok(())
    }

    /// Starts one more worker, which asks for every key.
    pub(super) fn sweep(&mut self, place: u16) -> io::Result<()> {
        let Some(first) = self.nodes.first() else {
            return Ok(());
        };
        let plan = Plan {
            node: place,
            life: 0,
            sweep: true,
            ..first.plan.clone()
        };
        self.nodes.push(Node::new(plan, None));
        self.start(self.nodes.len() - 1)
    }

    fn failed(&self, index: usize, status: &str) -> RunError {
        let worker = self.nodes[index].name();
        let said = self.logs.join(&worker).with_extension("err");
        let said = std::fs::read_to_string(said).unwrap_or_default();
        RunError::Worker {
            worker,
            status: status.to_owned(),
            said: said.trim().chars().take(SAID_CHARS_MAX).collect(),
        }
    }
}

impl Node {
    pub(super) fn new(plan: Plan, clock: Option<ShiftedClock>) -> Self {
        Self {
            plan,
            clock,
            state: State::Down(0),
        }
    }

    /// Not dotted: the end of a file's name must not look like an extension.
    fn name(&self) -> String {
        format!("worker-{}-{}", self.plan.node, self.plan.life)
    }

    /// Who is there, if somebody is and nothing is wrong with it.
    pub(super) fn healthy(&self) -> Option<(u16, u16)> {
        matches!(self.state, State::Running(_)).then_some((self.plan.node, self.plan.life))
    }

    pub(super) fn is_stopped_until(&self, at: Micros) -> bool {
        matches!(self.state, State::Stopped(_, until) if until <= at)
    }

    /// Kills the worker there is; the next may come at `until`.
    pub(super) fn kill(&mut self, until: Micros) -> io::Result<()> {
        if let State::Running(child) | State::Stopped(child, _) = &mut self.state {
            child.kill()?;
            child.wait()?;
            self.end(State::Down(until));
        }
        Ok(())
    }

    /// The worker there was is gone.
    fn end(&mut self, state: State) {
        let before = std::mem::replace(&mut self.state, state);
        if let (State::Running(child) | State::Stopped(child, _), Some(_)) = (before, &self.clock) {
            clear_faketime(child.id());
        }
    }

    /// Stops the worker there is.
    pub(super) fn stop(&mut self, until: Micros) -> io::Result<()> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Running(child) => {
                signal(&child, Signal::STOP)?;
                self.state = State::Stopped(child, until);
            }
            other @ (State::Down(_) | State::Stopped(..) | State::Ended) => self.state = other,
        }
        Ok(())
    }

    /// Lets a stopped worker go on; says which.
    pub(super) fn go_on(&mut self) -> io::Result<(u16, u16)> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Stopped(child, _) => {
                signal(&child, Signal::CONT)?;
                self.state = State::Running(child);
            }
            other @ (State::Down(_) | State::Running(_) | State::Ended) => self.state = other,
        }
        Ok((self.plan.node, self.plan.life))
    }
}

fn signal(child: &Child, signal: Signal) -> io::Result<()> {
    kill_process(Pid::from_child(child), signal)?;
    Ok(())
}

impl Drop for Node {
    fn drop(&mut self) {
        // A run that ends early takes its workers along, also those that are stopped.
        let _ = self.kill(Micros::MAX);
    }
}
