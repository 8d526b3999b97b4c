//! What a handler may know and say about its own execution, and its steps.

use std::time::Duration;

use napi::bindgen_prelude::*;
use napi_derive::napi;
use onlyonce_bridge::HostExecution;
use onlyonce_core::OnLapse;

use crate::errors::told;
use crate::run::Run;
use crate::signal::Signal;

/// What a handler may know and say about its own execution.
#[napi]
pub struct Execution(pub(crate) HostExecution);

#[napi]
impl Execution {
    /// 1, or more if an earlier attempt was cut off: then check what it left behind.
    #[napi(getter)]
    pub fn attempt(&self) -> u32 {
        self.0.attempt()
    }

    /// The id of this operation for the services it calls: the same for every attempt.
    #[napi(getter)]
    pub fn operation(&self) -> String {
        self.0.operation().to_string()
    }

    /// A key for a call to a service that takes idempotency keys: the same for every attempt, another
    /// for each name.
    #[napi]
    pub fn downstream(&self, name: String) -> String {
        self.0.downstream(&name).to_string()
    }

    /// How logs name the key; nothing when running without protection.
    #[napi(getter)]
    pub fn label(&self) -> Option<String> {
        self.0.label().map(|label| label.to_string())
    }

    /// Whether another process has taken over meanwhile: this answer will not count.
    #[napi(getter)]
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// Does not store this answer: the next request with the key runs again.
    #[napi]
    pub fn do_not_store(&self) {
        self.0.do_not_store();
    }

    /// Keeps this answer for so many seconds.
    #[napi]
    pub fn keep_for(&self, seconds: f64) -> Result<()> {
        let kept = Duration::try_from_secs_f64(seconds);
        let kept = kept.map_err(|_| told("setting", "keepFor takes a number of seconds"))?;
        self.0.keep_for(kept);
        Ok(())
    }

    /// Names what was made, for audits and operators.
    #[napi]
    pub fn made(&self, resource: String) {
        self.0.made(resource);
    }

    /// The right to complete this operation in a transaction of one's own; nothing when running without
    /// protection.
    #[napi(getter)]
    pub fn lease(&self) -> Option<String> {
        let lease = self.0.lease()?;
        Some(lease.capability().expose().to_owned())
    }

    /// Starts a durable step. `hold` is what follows when an attempt dies in it; otherwise it is as for
    /// the whole operation.
    #[napi]
    pub fn begin_step(
        &self,
        name: String,
        input: String,
        hold: Option<bool>,
        signal: &Signal,
        number: u32,
    ) -> Result<Run> {
        let on_lapse = hold.map(|hold| if hold { OnLapse::Hold } else { OnLapse::Rerun });
        Run::start(self.0.step(name, input, on_lapse), signal, number)
    }
}
