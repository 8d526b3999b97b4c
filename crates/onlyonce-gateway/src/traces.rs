//! Where traces go: over http or https, to a collector that the machine trusts.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper_util::client::legacy::connect::HttpConnector;
use onlyonce_core::async_trait;
use onlyonce_observe::traces::{Given, RequestSpan, Traces};
use onlyonce_tower::Replayed;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_http::{HttpClient, HttpError};
use tokio::runtime::Handle;

use crate::config::ConfigError;
use crate::trust::{self, HttpsConnector};

/// Where spans go, over http or https. They are sent from a thread that has no runtime, so this
/// brings its own.
#[derive(Debug)]
struct Collector {
    client: HyperClient<HttpsConnector>,
    runtime: Handle,
}

impl Collector {
    fn new(timeout: Duration) -> Self {
        Self {
            client: HyperClient::new(trust::connector(HttpConnector::new()), timeout, None),
            runtime: Handle::current(),
        }
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let sent = async move { client.send_bytes(request).await };
        self.runtime.spawn(sent).await?
    }
}

/// The traces that the environment asks for, if it does. Needs a tokio runtime.
pub fn from_env() -> Result<Option<Traces>, ConfigError> {
    let traces = Traces::from_env(Collector::new);
    traces.map_err(|error| ConfigError::new(error.variable, error.why))
}

/// Ends a request's span with its answer.
pub(crate) fn end<B>(span: RequestSpan, response: &Response<B>) {
    let given = match response.extensions().get::<Replayed>() {
        Some(Replayed { original_trace }) => Given::Replay {
            original: original_trace.as_deref(),
        },
        None => Given::Own,
    };
    span.end(response.status(), given);
}
