//! A result that the runtime is working on, as Python sees it.

use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::errors;
use crate::exchange::SLICE;
use crate::signal::Signal;

/// Makes the result, or its exception, on a thread of Python's.
pub(crate) type Made = Box<dyn for<'py> FnOnce(Python<'py>) -> PyResult<Bound<'py, PyAny>> + Send>;

/// Where an event loop waits for it.
pub(crate) type Wake<'py> = Option<(PyRef<'py, Signal>, u64)>;

/// `poll` and `wait` give `(result,)`; what failed is raised.
#[pyclass(frozen)]
pub(crate) struct Pending {
    inner: Mutex<onlyonce_bridge::Pending<Made>>,
    waker: Waker,
}

impl Pending {
    pub(crate) fn new(inner: onlyonce_bridge::Pending<Made>, wake: Wake<'_>) -> Self {
        let waker = wake.map(|(signal, number)| signal.waker(number));
        Self {
            inner: Mutex::new(inner),
            waker: waker.unwrap_or_else(|| Waker::noop().clone()),
        }
    }
}

#[pymethods]
impl Pending {
    /// The result, or `None` until the waker's number is signalled.
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let polled = {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            inner.poll(&mut Context::from_waker(&self.waker))
        };
        match polled {
            Poll::Ready(made) => tuple(py, made).map(Some),
            Poll::Pending => Ok(None),
        }
    }

    /// Blocks until the result is there.
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        loop {
            let waited = py.detach(|| {
                let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
                inner.wait(SLICE)
            });
            if let Poll::Ready(made) = waited {
                return tuple(py, made);
            }
            py.check_signals()?;
        }
    }
}

fn tuple(py: Python<'_>, made: Option<Made>) -> PyResult<Bound<'_, PyTuple>> {
    let made = made.ok_or_else(errors::stopped)?;
    (made(py)?,).into_pyobject(py)
}
