//! The durable queue, as Python sees it.

use std::path::PathBuf;

use onlyonce_bridge::{Credentials, Outbox};
use onlyonce_client::{
    Entries, Entry, Group, GroupId, GroupStatus, Operation, OperationId, Queue as Inner,
    QueueError, QueueOptions, State, Status,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::client::{Client, Given, wanted};
use crate::engine::seconds;
use crate::errors;
use crate::pending::{Made, Pending, Wake};

/// A durable queue of requests.
#[pyclass(frozen)]
pub(crate) struct Queue(Outbox);

impl Queue {
    /// Does something with the queue, and makes a value for Python of what comes of it.
    fn ask<T, F, M>(
        &self,
        wake: Wake<'_>,
        work: impl FnOnce(Inner) -> F + Send + 'static,
        make: M,
    ) -> PyResult<Pending>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, QueueError>> + Send + 'static,
        M: for<'py> FnOnce(Python<'py>, T) -> PyResult<Bound<'py, PyAny>> + Send + 'static,
    {
        let asked = self.0.ask(|queue| async move {
            let done = work(queue).await;
            let made: Made = Box::new(move |py| match done {
                Ok(value) => make(py, value),
                Err(error) => Err(errors::queue(&error)),
            });
            made
        });
        Ok(Pending::new(asked.map_err(errors::unusable)?, wake))
    }
}

#[pymethods]
impl Queue {
    /// `remembered` is how long by the success log, and how long by the service.
    #[new]
    fn open(
        py: Python<'_>,
        folder: PathBuf,
        client: &Client,
        parallel: usize,
        remembered: (f64, f64),
        failures: u32,
        backoff: (f64, f64),
    ) -> PyResult<Self> {
        let options = QueueOptions {
            parallel,
            log_for: seconds("keep_for", remembered.0)?,
            key_life: seconds("key_life", remembered.1)?,
            failures_max: failures,
            backoff_min: seconds("backoff", backoff.0)?,
            backoff_max: seconds("backoff", backoff.1)?,
            ..QueueOptions::default()
        };
        let opened = py.detach(|| Outbox::open(&folder, &client.0, options));
        opened.map(Self).map_err(errors::outbox)
    }

    /// Gives `(id, is_new)` once it is on disk.
    #[pyo3(signature = (given, key, wake=None))]
    fn add(&self, given: Given, key: &str, wake: Wake<'_>) -> PyResult<Pending> {
        let key = onlyonce_bridge::key(key).map_err(|error| errors::wanted(&error))?;
        let operation = kept(given)?;
        let work = |queue: Inner| async move { queue.enqueue_as(&key, operation).await };
        self.ask(wake, work, |py, done| {
            Ok((done.id.number(), done.is_new)
                .into_pyobject(py)?
                .into_any())
        })
    }

    /// Gives the group's number once all of it is on disk.
    #[pyo3(signature = (steps, name, wake=None))]
    fn add_group(
        &self,
        steps: Vec<(Given, Option<Given>)>,
        name: Option<&str>,
        wake: Wake<'_>,
    ) -> PyResult<Pending> {
        let mut group = Group::new();
        if let Some(name) = name {
            let name = onlyonce_bridge::name(name).map_err(|error| errors::wanted(&error))?;
            group = group.named(&name);
        }
        for (step, undo) in steps {
            group = match undo {
                Some(undo) => group.step_or_undo(kept(step)?, kept(undo)?),
                None => group.step(kept(step)?),
            };
        }
        let work = |queue: Inner| async move { queue.enqueue_group(group).await };
        self.ask(wake, work, |py, id| {
            Ok(id.number().into_pyobject(py)?.into_any())
        })
    }

    /// How far a group is; `None` if there is none.
    fn group(&self, id: i64) -> PyResult<Pending> {
        let work = move |queue: Inner| async move { queue.group(GroupId::from_number(id)).await };
        self.ask(None, work, |py, status| {
            let name = status.map(|status| match status {
                GroupStatus::Running => "running",
                GroupStatus::Done => "done",
                GroupStatus::Undoing => "undoing",
                GroupStatus::Stuck => "stuck",
                GroupStatus::Undone => "undone",
                _ => "unknown",
            });
            Ok(name.into_pyobject(py)?.into_any())
        })
    }

    /// Sends in the background from now on.
    fn start(&self) -> PyResult<()> {
        self.0.start().map_err(errors::unusable)
    }

    /// Sends what waits until nothing does.
    #[pyo3(signature = (wake=None))]
    fn drain(&self, wake: Wake<'_>) -> PyResult<Pending> {
        self.ask(wake, |queue| async move { queue.drain().await }, nothing)
    }

    /// Sends what is due, once.
    #[pyo3(signature = (wake=None))]
    fn send_due(&self, wake: Wake<'_>) -> PyResult<Pending> {
        self.ask(wake, |queue| async move { queue.send_due().await }, nothing)
    }

    /// The entry of an operation once it is done or has failed for good.
    #[pyo3(signature = (id, wake=None))]
    fn settled(&self, id: i64, wake: Wake<'_>) -> PyResult<Pending> {
        let id = OperationId::from_number(id);
        let work = move |queue: Inner| async move {
            queue.settled(id).await?;
            queue.entry(id).await
        };
        self.ask(wake, work, maybe_entry)
    }

    /// An operation with all that is known about it; `None` if there is none.
    fn entry(&self, id: i64) -> PyResult<Pending> {
        let id = OperationId::from_number(id);
        let work = move |queue: Inner| async move { queue.entry(id).await };
        self.ask(None, work, maybe_entry)
    }

    /// Operations of a state, after one of them.
    fn entries(&self, state: Option<&str>, after: Option<i64>, limit: u32) -> PyResult<Pending> {
        let wanted = Entries {
            state: state.map(named).transpose()?,
            after: after.map(OperationId::from_number),
            limit,
            ..Entries::default()
        };
        let work = move |queue: Inner| async move { queue.entries(wanted).await };
        self.ask(None, work, |py, entries| {
            let told = entries.iter().map(|it| entry(py, it));
            let told = told.collect::<PyResult<Vec<_>>>()?;
            Ok(told.into_pyobject(py)?.into_any())
        })
    }

    /// Puts another request in the place of one; gives its new key, and whether the old one may have run.
    fn edit(&self, id: i64, given: Given) -> PyResult<Pending> {
        let (id, operation) = (OperationId::from_number(id), kept(given)?);
        let work = move |queue: Inner| async move { queue.edit(id, operation).await };
        self.ask(None, work, |py, edited| {
            let told = (edited.key.expose(), edited.may_have_run);
            Ok(told.into_pyobject(py)?.into_any())
        })
    }

    /// Sends one that failed again.
    fn retry(&self, id: i64) -> PyResult<Pending> {
        let id = OperationId::from_number(id);
        let work = move |queue: Inner| async move { queue.retry(id).await };
        self.ask(None, work, nothing)
    }

    /// Forgets one that is not done; gives whether it may have run.
    fn discard(&self, id: i64) -> PyResult<Pending> {
        let id = OperationId::from_number(id);
        let work = move |queue: Inner| async move { queue.discard(id).await };
        self.ask(None, work, |py, may_have_run| {
            Ok(may_have_run.into_pyobject(py)?.to_owned().into_any())
        })
    }

    /// Stops sending and gives the folder up.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }
}

fn kept(given: Given) -> PyResult<Operation> {
    let operation = wanted(given).operation(Credentials::Refused);
    operation.map_err(|error| errors::wanted(&error))
}

fn named(name: &str) -> PyResult<State> {
    let all = [State::Waiting, State::Spare, State::Failed, State::Done];
    let found = all.into_iter().find(|state| state.name() == name);
    found
        .ok_or_else(|| PyValueError::new_err("the state is one of waiting, spare, failed and done"))
}

fn nothing(py: Python<'_>, (): ()) -> PyResult<Bound<'_, PyAny>> {
    Ok(py.None().into_bound(py))
}

fn maybe_entry(py: Python<'_>, found: Option<Entry>) -> PyResult<Bound<'_, PyAny>> {
    match found {
        Some(found) => Ok(entry(py, &found)?.into_any()),
        None => nothing(py, ()),
    }
}

/// The members of `onlyonce.Entry`.
fn entry<'py>(py: Python<'py>, entry: &Entry) -> PyResult<Bound<'py, PyDict>> {
    let told = PyDict::new(py);
    told.set_item("id", entry.id.number())?;
    told.set_item("state", State::of(&entry.status).name())?;
    told.set_item("key", entry.key.expose())?;
    let operation = entry.operation.as_ref();
    told.set_item("method", operation.map(|it| it.method().as_str()))?;
    told.set_item("url", operation.map(|it| it.url().as_str()))?;
    told.set_item("attempts", entry.attempts)?;
    let (cause, status, answer) = match &entry.status {
        Status::Waiting { cause, .. } => (*cause, None, None),
        Status::Spare => (None, None, None),
        Status::Failed { cause, .. } => (Some(*cause), None, None),
        Status::Done { status, answer } => (None, *status, answer.as_ref()),
    };
    told.set_item("cause", cause.map(|cause| cause.name()))?;
    told.set_item("detail", &entry.detail)?;
    told.set_item("status", status)?;
    told.set_item("answer", answer.map(|it| PyBytes::new(py, it)))?;
    told.set_item("group", entry.group.map(GroupId::number))?;
    Ok(told)
}
