//! What a handler of the host has of its own execution: all that the core's has, and its steps as calls
//! that the host takes one step at a time.

use std::ops::Deref;

use onlyonce_core::engine::StepError;
use onlyonce_core::{Execution, OnLapse, Reason, Refusal};
use serde_json::value::RawValue;
use tokio::runtime::Handle;

use crate::run::{Desk, Ran, Run, RunFailure, by_host};
use crate::value::HostValue;

/// An execution, with the threads that its steps need.
#[derive(Clone)]
pub struct HostExecution {
    execution: Execution,
    runtime: Handle,
}

impl Deref for HostExecution {
    type Target = Execution;

    fn deref(&self) -> &Execution {
        &self.execution
    }
}

impl HostExecution {
    /// To be called within the runtime.
    pub(crate) fn new(execution: Execution) -> Self {
        Self {
            execution,
            runtime: Handle::current(),
        }
    }

    /// Starts a durable step: `input` is JSON. An attempt after a crash gets the value that is stored.
    pub fn step(
        &self,
        name: String,
        input: String,
        on_lapse: Option<OnLapse>,
    ) -> Result<Run, serde_json::Error> {
        let input = RawValue::from_string(input)?;
        let execution = self.execution.clone();
        let desk = Desk::default();
        let host = desk.clone();
        let running = async move {
            let mut step = execution.step(&name, &input);
            if let Some(on_lapse) = on_lapse {
                step = step.on_lapse(on_lapse);
            }
            let mut has_run = false;
            let done = step.run_with(|inner| {
                has_run = true;
                by_host(host, inner)
            });
            let value: HostValue = done.await?;
            let replayed = !has_run;
            HostValue::told(Ran { value, replayed })
        };
        Ok(Run::new(running, desk, self.runtime.clone()))
    }
}

impl From<StepError<String>> for RunFailure {
    fn from(error: StepError<String>) -> Self {
        let text = error.to_string();
        match error {
            StepError::Failed(why) => Self::Failed(why),
            StepError::Name { .. } | StepError::Repeated { .. } => Self::Step(text),
            StepError::Changed { .. } => refused(Reason::Mismatch, text),
            StepError::InDoubt { .. } => refused(Reason::OutcomeUnknown, text),
            StepError::CannotTell { retry_after, .. } => {
                let mut refusal = Refusal::new(Reason::OutcomeUnknown);
                refusal.detail = text.into();
                refusal.retry_after = retry_after;
                refusal.retryable = Some(true);
                Self::Refused(refusal)
            }
            StepError::Lost { .. } => refused(Reason::InProgress, text),
            StepError::Store { .. } => refused(Reason::StoreDown, text),
            StepError::Refused { name, mut refusal } => {
                refusal.detail = format!("step `{name}`: {}", refusal.detail).into();
                Self::Refused(refusal)
            }
            StepError::NotKept { .. } => Self::NotKept(text),
            StepError::Json { .. } | _ => Self::Json(text),
        }
    }
}

fn refused(reason: Reason, text: String) -> RunFailure {
    let mut refusal = Refusal::new(reason);
    refusal.detail = text.into();
    RunFailure::Refused(refusal)
}
