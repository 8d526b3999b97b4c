//! What a handler may know and say about its own execution, and its steps.

use onlyonce_bridge::HostExecution;
use onlyonce_core::OnLapse;
use pyo3::prelude::*;

use crate::engine::seconds;
use crate::run::Run;
use crate::signal::Signal;

/// What a handler may know and say about its own execution.
#[pyclass(frozen)]
pub(crate) struct Execution(pub(crate) HostExecution);

#[pymethods]
impl Execution {
    /// 1, or more if an earlier attempt was cut off: then check what it left behind.
    #[getter]
    fn attempt(&self) -> u32 {
        self.0.attempt()
    }

    /// The id of this operation for the services it calls: the same for every attempt.
    #[getter]
    fn operation(&self) -> String {
        self.0.operation().to_string()
    }

    /// A key for a call to a service that takes idempotency keys: the same for every attempt, another
    /// for each name.
    fn downstream(&self, name: &str) -> String {
        self.0.downstream(name).to_string()
    }

    /// How logs name the key; `None` when running without protection.
    #[getter]
    fn label(&self) -> Option<String> {
        self.0.label().map(|label| label.to_string())
    }

    /// Whether another process has taken over meanwhile: this answer will not count.
    #[getter]
    fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// Does not store this answer: the next request with the key runs again.
    fn do_not_store(&self) {
        self.0.do_not_store();
    }

    /// Keeps this answer for so many seconds.
    fn keep_for(&self, seconds_kept: f64) -> PyResult<()> {
        self.0.keep_for(seconds("keep_for", seconds_kept)?);
        Ok(())
    }

    /// Names what was made, for audits and operators.
    fn made(&self, resource: String) {
        self.0.made(resource);
    }

    /// The right to complete this operation in a transaction of one's own; `None` when running without
    /// protection.
    #[getter]
    fn lease(&self) -> Option<String> {
        let lease = self.0.lease()?;
        Some(lease.capability().expose().to_owned())
    }

    /// Starts a durable step. `hold` is what follows when an attempt dies in it; otherwise it is as for
    /// the whole operation.
    #[pyo3(signature = (name, input, hold, wake=None))]
    fn step(
        &self,
        name: String,
        input: String,
        hold: Option<bool>,
        wake: Option<(PyRef<'_, Signal>, u64)>,
    ) -> PyResult<Run> {
        let on_lapse = hold.map(|hold| if hold { OnLapse::Hold } else { OnLapse::Rerun });
        let run = self.0.step(name, input, on_lapse);
        Run::start(run, wake)
    }
}
