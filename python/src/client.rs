//! The client, as Python sees it.

use http::HeaderMap;
use onlyonce_bridge::{ClientSettings, Credentials, Wanted};
use onlyonce_client::{Failure, Keys, Reply, Sent};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::engine::seconds;
use crate::errors;
use crate::pending::{Made, Pending, Wake};

/// Method, address, headers and body.
pub(crate) type Given = (String, String, Vec<(String, String)>, Option<Vec<u8>>);

pub(crate) fn wanted((method, url, headers, body): Given) -> Wanted {
    Wanted {
        method,
        url,
        headers,
        body,
    }
}

fn headers(pairs: Vec<(String, String)>) -> PyResult<HeaderMap> {
    onlyonce_bridge::headers(pairs).map_err(|error| errors::wanted(&error))
}

/// Sends requests under their keys.
#[pyclass(frozen)]
pub(crate) struct Client(pub(crate) onlyonce_bridge::Client);

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (given, attempts, timeout, backoff, total, status_path, pages))]
    fn open(
        given: Vec<(String, String)>,
        attempts: u32,
        timeout: f64,
        backoff: (f64, f64),
        total: f64,
        status_path: Option<String>,
        pages: bool,
    ) -> PyResult<Self> {
        let backoff = (
            seconds("backoff", backoff.0)?,
            seconds("backoff", backoff.1)?,
        );
        let settings = ClientSettings {
            attempts_max: Some(attempts),
            attempt_timeout: Some(seconds("timeout", timeout)?),
            backoff: Some(backoff),
            total_max: Some(seconds("total", total)?),
            status_path,
            allows_pages: pages,
        };
        let client = onlyonce_bridge::Client::open(settings, headers(given)?);
        client.map(Self).map_err(|failure| errors::client(&failure))
    }

    fn authorize(&self, given: Vec<(String, String)>) -> PyResult<()> {
        self.0.authorize(headers(given)?);
        Ok(())
    }

    /// Gives `(status, headers, body, replayed, attempts, whole)`.
    #[pyo3(signature = (given, key, wake=None))]
    fn send(&self, given: Given, key: &str, wake: Wake<'_>) -> PyResult<Pending> {
        let key = onlyonce_bridge::key(key).map_err(|error| errors::wanted(&error))?;
        let operation = wanted(given).operation(Credentials::Allowed);
        let operation = operation.map_err(|error| errors::wanted(&error))?;
        let sending = self.0.send(operation, key, made);
        Ok(Pending::new(sending.map_err(errors::unusable)?, wake))
    }

    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = self.0.counts();
        let told = PyDict::new(py);
        told.set_item("attempts", counts.attempts)?;
        told.set_item("retries", counts.retries)?;
        told.set_item("asked", counts.asked)?;
        told.set_item("succeeded", counts.succeeded)?;
        told.set_item("replayed", counts.replayed)?;
        told.set_item("throttled", counts.throttled)?;
        for cause in onlyonce_client::Cause::ALL {
            told.set_item(cause.name(), counts.failed(cause))?;
        }
        Ok(told)
    }
}

/// A new random key.
#[pyfunction]
pub(crate) fn new_key() -> String {
    Keys::default().v4().expose().to_owned()
}

fn made(sent: Result<Sent, Failure>) -> Made {
    Box::new(move |py| match sent {
        Ok(sent) => answer(py, &sent.reply, sent.is_replayed, sent.attempts),
        Err(failure) => {
            let reply = failure.reply.as_ref();
            let answer = reply.map(|it| answer(py, it, it.is_replayed(), failure.attempts));
            Err(errors::sending(py, &failure, answer.transpose()?)?)
        }
    })
}

fn answer<'py>(
    py: Python<'py>,
    reply: &Reply,
    is_replayed: bool,
    attempts: u32,
) -> PyResult<Bound<'py, PyAny>> {
    let text = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| char::from(*byte))
            .collect::<String>()
    };
    let headers: Vec<_> = reply
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), text(value.as_bytes())))
        .collect();
    let body = PyBytes::new(py, &reply.body);
    let status = reply.status.as_u16();
    let told = (status, headers, body, is_replayed, attempts, reply.is_whole);
    Ok(told.into_pyobject(py)?.into_any())
}
