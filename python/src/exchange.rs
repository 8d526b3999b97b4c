//! One request, its handler and its response, as Python sees them.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use onlyonce_bridge::Step;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::execution::Execution;
use crate::signal::Signal;

/// How long a thread waits before it looks for signals, such as the one of Ctrl-C.
pub(crate) const SLICE: Duration = Duration::from_millis(200);

/// One covered request. `poll` and `wait` give steps: `("read",)`, `("handle", body, headers, execution,
/// reply)`, `("head", status, headers)`, `("data", bytes)`, `("end",)`, `("broken",)`, `("lost", why)`.
#[pyclass(frozen)]
pub(crate) struct Exchange {
    inner: Mutex<onlyonce_bridge::Exchange>,
    waker: Waker,
}

impl Exchange {
    pub(crate) fn new(inner: onlyonce_bridge::Exchange, waker: Option<Waker>) -> Self {
        Self {
            inner: Mutex::new(inner),
            waker: waker.unwrap_or_else(|| Waker::noop().clone()),
        }
    }

    fn lock(&self) -> PyResult<MutexGuard<'_, onlyonce_bridge::Exchange>> {
        match self.inner.try_lock() {
            Ok(inner) => Ok(inner),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                Err(PyRuntimeError::new_err("a request is used by two threads"))
            }
        }
    }
}

#[pymethods]
impl Exchange {
    /// The next step, or `None` until the waker's number is signalled.
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let polled = self.lock()?.poll(&mut Context::from_waker(&self.waker));
        match polled {
            Poll::Ready(step) => tuple(py, step).map(Some),
            Poll::Pending => Ok(None),
        }
    }

    /// Blocks until the next step; `None` if `writer` can be written to before.
    #[pyo3(signature = (writer=None))]
    fn wait<'py>(
        &self,
        py: Python<'py>,
        writer: Option<&Writer>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        loop {
            let writer = writer.map(|writer| &writer.0);
            let step = py.detach(|| {
                let mut inner = self.lock()?;
                Ok::<_, PyErr>(inner.wait(writer, SLICE))
            })?;
            if let Some(step) = step {
                return tuple(py, step).map(Some);
            }
            py.check_signals()?;
            if writer.is_some() {
                return Ok(None);
            }
        }
    }

    fn feed(&self, data: PyBackedBytes, more: bool) -> PyResult<()> {
        self.lock()?.feed(Bytes::from_owner(data), more);
        Ok(())
    }

    fn hang_up(&self) -> PyResult<()> {
        self.lock()?.hang_up();
        Ok(())
    }

    fn detach(&self) -> PyResult<()> {
        self.lock()?.detach();
        Ok(())
    }
}

fn tuple(py: Python<'_>, step: Step) -> PyResult<Bound<'_, PyTuple>> {
    match step {
        Step::Read => ("read",).into_pyobject(py),
        Step::Handle(handover) => {
            let handover = *handover;
            let body = PyBytes::new(py, &handover.body);
            let headers = list(py, &handover.parts.headers)?;
            let execution = handover.execution.map(Execution);
            let reply = Reply(Mutex::new(handover.reply));
            ("handle", body, headers, execution, reply).into_pyobject(py)
        }
        Step::Head(status, headers) => {
            ("head", status.as_u16(), list(py, &headers)?).into_pyobject(py)
        }
        Step::Data(data) => ("data", PyBytes::new(py, &data)).into_pyobject(py),
        Step::End => ("end",).into_pyobject(py),
        Step::Broken => ("broken",).into_pyobject(py),
        Step::Lost(lost) => ("lost", lost.to_string()).into_pyobject(py),
    }
}

fn list<'py>(py: Python<'py>, headers: &HeaderMap) -> PyResult<Bound<'py, PyList>> {
    let pairs = headers.iter().map(|(name, value)| {
        (
            PyBytes::new(py, name.as_str().as_bytes()),
            PyBytes::new(py, value.as_bytes()),
        )
    });
    PyList::new(py, pairs.collect::<Vec<_>>())
}

/// Takes the handler's answer.
#[pyclass(frozen)]
pub(crate) struct Reply(Mutex<onlyonce_bridge::Reply>);

impl Reply {
    fn lock(&self) -> MutexGuard<'_, onlyonce_bridge::Reply> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Reply {
    /// Answers with a head; the body goes to the writer.
    fn start(&self, status: u16, headers: Vec<(PyBackedBytes, PyBackedBytes)>) -> PyResult<Writer> {
        let wrong = |error: http::Error| PyValueError::new_err(error.to_string());
        let status = StatusCode::from_u16(status).map_err(|error| wrong(error.into()))?;
        let mut map = HeaderMap::with_capacity(headers.len());
        for (name, value) in &headers {
            let name = HeaderName::from_bytes(name).map_err(|error| wrong(error.into()))?;
            let value = HeaderValue::from_bytes(value).map_err(|error| wrong(error.into()))?;
            map.append(name, value);
        }
        Ok(Writer(self.lock().start(status, map)))
    }

    fn raised(&self) {
        self.lock().raised();
    }

    fn when_abandoned(&self, signal: PyRef<'_, Signal>, number: u64) {
        self.lock().when_abandoned(signal.waker(number));
    }
}

/// The handler's body.
#[pyclass(frozen)]
pub(crate) struct Writer(onlyonce_bridge::Writer);

#[pymethods]
impl Writer {
    fn send(&self, data: PyBackedBytes) {
        self.0.send(Bytes::from_owner(data));
    }

    fn end(&self) {
        self.0.end();
    }

    fn break_off(&self) {
        self.0.break_off();
    }

    /// Whether more may be sent; if not, the number is signalled when it may.
    fn is_ready(&self, signal: PyRef<'_, Signal>, number: u64) -> bool {
        let waker = signal.waker(number);
        self.0
            .poll_ready(&mut Context::from_waker(&waker))
            .is_ready()
    }

    /// Whether more may be sent.
    fn has_room(&self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.0.poll_ready(&mut context).is_ready()
    }
}
