//! One function under a key, as Python sees it.

use std::fmt::Display;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker};

use onlyonce_bridge::RunStep;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::errors;
use crate::exchange::SLICE;
use crate::execution::Execution;
use crate::signal::Signal;

/// A named kind of function.
#[pyclass(frozen)]
pub(crate) struct Job(pub(crate) onlyonce_bridge::Job);

#[pymethods]
impl Job {
    /// Starts a call.
    #[pyo3(signature = (key, input, wake=None))]
    fn run(
        &self,
        key: String,
        input: String,
        wake: Option<(PyRef<'_, Signal>, u64)>,
    ) -> PyResult<Run> {
        Run::start(self.0.run(key, input), wake)
    }
}

/// One call. `poll` and `wait` give steps: `("work", work, execution)`, `("done", json, replayed)`,
/// `("failed",)` if the call's own function raised; any other failure is raised.
#[pyclass(frozen)]
pub(crate) struct Run {
    inner: Mutex<onlyonce_bridge::Run>,
    waker: Waker,
}

impl Run {
    pub(crate) fn start(
        run: Result<onlyonce_bridge::Run, impl Display>,
        wake: Option<(PyRef<'_, Signal>, u64)>,
    ) -> PyResult<Self> {
        let run = run.map_err(|error| PyTypeError::new_err(format!("the input: {error}")))?;
        let waker = wake.map(|(signal, number)| signal.waker(number));
        Ok(Self {
            inner: Mutex::new(run),
            waker: waker.unwrap_or_else(|| Waker::noop().clone()),
        })
    }

    fn lock(&self) -> PyResult<MutexGuard<'_, onlyonce_bridge::Run>> {
        match self.inner.try_lock() {
            Ok(inner) => Ok(inner),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                Err(PyRuntimeError::new_err("a call is used by two threads"))
            }
        }
    }
}

#[pymethods]
impl Run {
    /// The next step, or `None` until the waker's number is signalled.
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let polled = self.lock()?.poll(&mut Context::from_waker(&self.waker));
        match polled {
            Poll::Ready(step) => tuple(py, step).map(Some),
            Poll::Pending => Ok(None),
        }
    }

    /// Blocks until the next step.
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        loop {
            let step = py.detach(|| Ok::<_, PyErr>(self.lock()?.wait(SLICE)))?;
            if let Some(step) = step {
                return tuple(py, step);
            }
            py.check_signals()?;
        }
    }

    fn detach(&self) -> PyResult<()> {
        self.lock()?.detach();
        Ok(())
    }
}

fn tuple(py: Python<'_>, step: RunStep) -> PyResult<Bound<'_, PyTuple>> {
    match step {
        RunStep::Work(work) => {
            let execution = Execution(work.execution().clone());
            ("work", Work(Mutex::new(work)), execution).into_pyobject(py)
        }
        RunStep::Done(Ok(ran)) => ("done", ran.value.get(), ran.replayed).into_pyobject(py),
        RunStep::Done(Err(failure)) => match errors::running(py, &failure)? {
            Some(error) => Err(error),
            None => ("failed",).into_pyobject(py),
        },
    }
}

/// Takes what a function returned.
#[pyclass(frozen)]
pub(crate) struct Work(Mutex<onlyonce_bridge::Work>);

impl Work {
    fn lock(&self) -> MutexGuard<'_, onlyonce_bridge::Work> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Work {
    fn returned(&self, json: String) -> PyResult<()> {
        let taken = self.lock().returned(json);
        taken.map_err(|error| PyTypeError::new_err(format!("the value: {error}")))
    }

    fn unwritable(&self, why: String) {
        self.lock().unwritable(why);
    }

    fn raised(&self, why: String) {
        self.lock().raised(why);
    }

    fn when_abandoned(&self, signal: PyRef<'_, Signal>, number: u64) {
        self.lock().when_abandoned(signal.waker(number));
    }
}
