//! The engine, and the layer with its settings.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use napi::bindgen_prelude::*;
use napi_derive::napi;
use onlyonce_bridge::{
    CloseError, HeaderLines, Host, JobSettings, OpenFailure, Settings, SiteSettings,
};
use onlyonce_core::OnLapse;

use crate::errors::{told, whole};
use crate::exchange::Exchange;
use crate::run::Job;
use crate::signal::Signal;

/// An engine on a store.
#[napi]
pub struct Engine(Arc<Host>);

/// How functions are run.
#[napi(object)]
#[derive(Default)]
pub struct JobOptions {
    /// Never runs a call again that may have taken effect when its process died.
    pub hold: Option<bool>,
    /// How long values are kept, in seconds.
    pub keep_for: Option<f64>,
    /// How long a function may run, in seconds.
    pub timeout: Option<f64>,
    /// How soon another process takes over after a crash, in seconds.
    pub lease: Option<f64>,
}

/// How requests are protected.
#[napi(object)]
#[derive(Default)]
pub struct SiteOptions {
    /// The name of a contract.
    pub profile: Option<String>,
    /// A contract of one's own, as TOML.
    pub rules: Option<String>,
    /// Only paths that match.
    pub route: Option<String>,
}

/// Opens an engine off JavaScript's thread.
pub struct Opening {
    url: String,
    settings: Settings,
}

impl Task for Opening {
    type Output = std::result::Result<Host, OpenFailure>;
    type JsValue = Engine;

    fn compute(&mut self) -> Result<Self::Output> {
        Ok(Host::open(&self.url, &self.settings))
    }

    fn resolve(&mut self, _env: Env, opened: Self::Output) -> Result<Engine> {
        match opened {
            Ok(host) => Ok(Engine(Arc::new(host))),
            Err(failure) => Err(told("open", whole(&failure))),
        }
    }
}

/// Closes an engine off JavaScript's thread, on which handlers go on.
pub struct Closing {
    host: Arc<Host>,
    grace: Duration,
}

impl Task for Closing {
    type Output = usize;
    type JsValue = u32;

    fn compute(&mut self) -> Result<usize> {
        self.host.close(self.grace).map_err(unusable)
    }

    fn resolve(&mut self, _env: Env, left: usize) -> Result<u32> {
        Ok(u32::try_from(left).unwrap_or(u32::MAX))
    }
}

/// Opens the store at `url` and an engine on it.
#[napi]
pub fn open(
    url: String,
    namespace: Option<String>,
    instance: Option<String>,
) -> AsyncTask<Opening> {
    let settings = Settings {
        namespace,
        instance,
    };
    AsyncTask::new(Opening { url, settings })
}

fn unusable(error: CloseError) -> Error {
    told("closed", error)
}

fn seconds(name: &str, value: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(value).map_err(|_| {
        told(
            "setting",
            format!("{name} must be a number of seconds, not {value}"),
        )
    })
}

#[napi]
impl Engine {
    /// The layer with these settings.
    #[napi]
    pub fn site(&self, options: SiteOptions) -> Result<Site> {
        let settings = SiteSettings {
            profile: options.profile,
            rules: options.rules,
            route: options.route,
        };
        let site = self.0.site(&settings).map_err(unusable)?;
        site.map(Site).map_err(|error| told("open", whole(&error)))
    }

    /// A named kind of function.
    #[napi]
    pub fn job(&self, name: String, options: JobOptions) -> Result<Job> {
        let length = |name, value: Option<f64>| value.map(|it| seconds(name, it)).transpose();
        let settings = JobSettings {
            on_lapse: (options.hold == Some(true)).then_some(OnLapse::Hold),
            keep_for: length("keepFor", options.keep_for)?,
            execution_max: length("timeout", options.timeout)?,
            lease_for: length("lease", options.lease)?,
        };
        let job = self.0.job(&name, &settings).map_err(unusable)?;
        Ok(Job(job))
    }

    /// Everything it has counted, as Prometheus reads it.
    #[napi]
    pub fn metrics(&self) -> Result<String> {
        self.0.metrics().map_err(unusable)
    }

    /// How many calls run or wait.
    #[napi]
    pub fn in_flight(&self) -> u32 {
        u32::try_from(self.0.in_flight()).unwrap_or(u32::MAX)
    }

    /// Takes no more calls, and resolves once none runs, after at most `grace` seconds; to how much was still running.
    #[napi]
    pub fn close_later(&self, grace: f64) -> Result<AsyncTask<Closing>> {
        Ok(AsyncTask::new(Closing {
            host: Arc::clone(&self.0),
            grace: seconds("grace", grace)?,
        }))
    }

    /// Blocks until nothing runs, at most `grace` seconds; how much was still running.
    #[napi]
    pub fn close(&self, grace: f64) -> Result<u32> {
        let grace = seconds("grace", grace)?;
        let left = self.0.close(grace).map_err(unusable)?;
        Ok(u32::try_from(left).unwrap_or(u32::MAX))
    }
}

/// The layer with its settings.
#[napi]
pub struct Site(onlyonce_bridge::Site);

#[napi]
impl Site {
    /// The header by which a handler says that its answer is not to be stored.
    #[napi(getter)]
    pub fn opt_out_header(&self) -> String {
        self.0.opt_out_header().as_str().to_owned()
    }

    /// Starts a request; nothing if the layer has nothing to do with it. `headers` are names and
    /// values by turns.
    #[napi]
    pub fn exchange(
        &self,
        method: String,
        target: String,
        headers: Vec<String>,
        principal: Option<String>,
        signal: &Signal,
        number: u32,
    ) -> Result<Option<Exchange>> {
        let lines = HeaderLines::AsSent;
        self.begun(
            lines,
            (&method, &target, &headers),
            principal,
            signal.waker(number),
        )
    }

    /// The same where lines of one header are one value, with commas between them.
    #[napi]
    pub fn exchange_joined(
        &self,
        method: String,
        target: String,
        headers: Vec<String>,
        principal: Option<String>,
        signal: &Signal,
        number: u32,
    ) -> Result<Option<Exchange>> {
        let lines = HeaderLines::Joined;
        self.begun(
            lines,
            (&method, &target, &headers),
            principal,
            signal.waker(number),
        )
    }
}

impl Site {
    fn begun(
        &self,
        lines: HeaderLines,
        (method, target, headers): (&str, &str, &[String]),
        principal: Option<String>,
        waker: Waker,
    ) -> Result<Option<Exchange>> {
        let parts = head(method, target, headers).map_err(|error| told("request", error))?;
        let exchange = self.0.exchange(parts, lines, principal.as_deref());
        Ok(exchange.map(|exchange| Exchange::new(exchange, waker)))
    }
}

fn head(method: &str, target: &str, headers: &[String]) -> std::result::Result<Parts, http::Error> {
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(method.as_bytes())?;
    *request.uri_mut() = Uri::try_from(target)?;
    for pair in headers.chunks_exact(2) {
        let name = HeaderName::from_bytes(pair[0].as_bytes())?;
        let value = HeaderValue::from_bytes(&latin1(&pair[1]))?;
        request.headers_mut().append(name, value);
    }
    Ok(request.into_parts().0)
}

/// Node has the bytes of a header as the characters with these numbers.
pub(crate) fn latin1(text: &str) -> Vec<u8> {
    text.chars()
        .map(|character| u8::try_from(u32::from(character)).unwrap_or(b'?'))
        .collect()
}
