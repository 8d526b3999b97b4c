//! Operations of several effects, each a durable step that can be looked up: none may happen twice,
//! wherever its process dies.

use std::sync::atomic::Ordering;

use onlyonce_core::engine::job::Question;
use onlyonce_core::{Execution, Finding, Outcome, Response};

use super::{LookBug, Node, answer};

/// The steps of an operation.
pub(super) const STEPS: [&str; 3] = ["reserve", "charge", "mail"];

impl Node {
    /// All steps, one after the other. The answer is that of the last one.
    pub(super) async fn work_in_steps(self, execution: Execution) -> Outcome {
        self.world.count(|counts| counts.runs += 1);
        let mut last = 0;
        for name in STEPS {
            self.process.live().await;
            match self.step(&execution, name).await {
                Ok(number) => last = number,
                Err(_) if self.world.draw(|dice| dice.chance(500)) => return Outcome::Unknown,
                Err(error) => {
                    let status = http::StatusCode::INTERNAL_SERVER_ERROR;
                    return Response::new(status, error).into();
                }
            }
        }
        self.process.live().await;
        answer(last).into()
    }

    async fn step(&self, execution: &Execution, name: &str) -> Result<u64, String> {
        let step = execution.step(name, "the same");
        let step = if self.world.bug == Some(LookBug::NoLook) {
            step
        } else {
            let node = self.clone();
            step.reconcile(move |question: Question| {
                let node = node.clone();
                async move {
                    let operation = question.execution().operation().to_string();
                    match node.look(&operation).await {
                        Ok(Some(number)) => question.happened(&number),
                        Ok(None) => Finding::DidNot,
                        Err(finding) => finding,
                    }
                }
            })
        };
        let node = self.clone();
        let done = step.run_with(async move |step: Execution| node.effect(&step).await);
        Ok(done.await?)
    }

    /// The effect of one step, and what can happen around it. None lands after its step has ended: a step
    /// is asked about as soon as the next attempt comes to it.
    async fn effect(self, step: &Execution) -> Result<u64, String> {
        let world = &self.world;
        world.count(|counts| counts.steps += 1);
        world.pause(20).await;
        self.process.live().await;
        if world.fails(100) {
            return Err("lost before its effect".to_owned());
        }
        let number = world.effect(&step.operation().to_string());
        world.pause(20).await;
        if world.fails(100) {
            self.process.is_dead.store(true, Ordering::Relaxed);
        }
        self.process.live().await;
        if world.fails(100) {
            return Err("lost after its effect".to_owned());
        }
        Ok(number)
    }
}
