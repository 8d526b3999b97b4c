//! The engine, and the layer with its settings.

use std::time::Duration;

use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use onlyonce_bridge::{HeaderLines, Host, JobSettings, Settings, SiteSettings};
use onlyonce_core::OnLapse;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::errors;
use crate::exchange::Exchange;
use crate::run::Job;
use crate::signal::Signal;

/// An engine on a store. No lock of ours is around it: a thread that waited for one would hold the interpreter's.
#[pyclass(frozen)]
pub(crate) struct Engine(Host);

#[pymethods]
impl Engine {
    #[new]
    fn open(
        py: Python<'_>,
        url: &str,
        namespace: Option<String>,
        instance: Option<String>,
    ) -> PyResult<Self> {
        let settings = Settings {
            namespace,
            instance,
        };
        let host = py.detach(|| Host::open(url, &settings));
        host.map(Self).map_err(|failure| errors::opening(&failure))
    }

    fn check(&self) -> PyResult<()> {
        self.0.check().map_err(errors::unusable)
    }

    fn site(
        &self,
        profile: Option<String>,
        rules: Option<String>,
        route: Option<String>,
    ) -> PyResult<Site> {
        let settings = SiteSettings {
            profile,
            rules,
            route,
        };
        let site = self.0.site(&settings).map_err(errors::unusable)?;
        site.map(Site).map_err(|error| errors::setting(&error))
    }

    fn job(
        &self,
        name: &str,
        hold: bool,
        keep_for: Option<f64>,
        timeout: Option<f64>,
        lease: Option<f64>,
    ) -> PyResult<Job> {
        let settings = JobSettings {
            on_lapse: hold.then_some(OnLapse::Hold),
            keep_for: keep_for.map(|it| seconds("keep_for", it)).transpose()?,
            execution_max: timeout.map(|it| seconds("timeout", it)).transpose()?,
            lease_for: lease.map(|it| seconds("lease", it)).transpose()?,
        };
        let job = self.0.job(name, &settings).map_err(errors::unusable)?;
        Ok(Job(job))
    }

    fn metrics(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.0.metrics()).map_err(errors::unusable)
    }

    fn in_flight(&self) -> usize {
        self.0.in_flight()
    }

    /// Waits for what runs, at most `grace` seconds; returns how much was still running.
    fn close(&self, py: Python<'_>, grace: f64) -> PyResult<usize> {
        let grace = seconds("grace", grace)?;
        py.detach(|| self.0.close(grace)).map_err(errors::unusable)
    }
}

pub(crate) fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value).map_err(|_| {
        PyValueError::new_err(format!("{name} must be a number of seconds, not {value}"))
    })
}

/// The layer with its settings.
#[pyclass(frozen)]
pub(crate) struct Site(onlyonce_bridge::Site);

type HeaderList = Vec<(PyBackedBytes, PyBackedBytes)>;

#[pymethods]
impl Site {
    /// The header by which a handler says that its answer is not to be stored.
    #[getter]
    fn opt_out_header(&self) -> &str {
        self.0.opt_out_header().as_str()
    }

    /// Starts a request; `None` if the layer has nothing to do with it. What is no valid request
    /// is a `ValueError`. With `joined` the lines of one header are one value, with commas between them.
    #[pyo3(signature = (method, target, headers, principal, wake, joined=false))]
    fn exchange(
        &self,
        method: &str,
        target: PyBackedBytes,
        headers: HeaderList,
        principal: Option<&str>,
        wake: Option<(PyRef<'_, Signal>, u64)>,
        joined: bool,
    ) -> PyResult<Option<Exchange>> {
        let parts = head(method, &target, &headers)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        let lines = match joined {
            true => HeaderLines::Joined,
            false => HeaderLines::AsSent,
        };
        let waker = wake.map(|(signal, number)| signal.waker(number));
        let exchange = self.0.exchange(parts, lines, principal);
        Ok(exchange.map(|exchange| Exchange::new(exchange, waker)))
    }
}

fn head(
    method: &str,
    target: &[u8],
    headers: &[(PyBackedBytes, PyBackedBytes)],
) -> Result<Parts, http::Error> {
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(method.as_bytes())?;
    *request.uri_mut() = Uri::try_from(target)?;
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name)?;
        request
            .headers_mut()
            .append(name, HeaderValue::from_bytes(value)?);
    }
    Ok(request.into_parts().0)
}
