//! Requests over http and https to servers that the machine trusts. No redirect is followed.

use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::header::USER_AGENT;
use http::{HeaderValue, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use onlyonce_client::{REPLY_BYTES_MAX, Reply, Transport, TransportError};
use onlyonce_gateway::trust::{HttpsConnector, connector};

const CONNECT_MAX: Duration = Duration::from_secs(10);
const AGENT: &str = concat!("onlyonce/", env!("CARGO_PKG_VERSION"));

/// The way to any service.
pub(super) struct Network(Client<HttpsConnector, Full<Bytes>>);

impl Network {
    pub(super) fn new() -> Self {
        let mut http = HttpConnector::new();
        http.set_connect_timeout(Some(CONNECT_MAX));
        http.set_nodelay(true);
        Self(Client::builder(TokioExecutor::new()).build(connector(http)))
    }
}

#[async_trait]
impl Transport for Network {
    async fn exchange(&self, request: Request<Bytes>) -> Result<Reply, TransportError> {
        let mut request = request.map(Full::new);
        let headers = request.headers_mut();
        headers
            .entry(USER_AGENT)
            .or_insert(HeaderValue::from_static(AGENT));
        let response = self.0.request(request).await.map_err(|error| {
            if error.is_connect() {
                TransportError::NotSent(error.into())
            } else {
                TransportError::Interrupted(error.into())
            }
        })?;
        let (parts, body) = response.into_parts();
        let (body, is_whole) = read(body).await?;
        let mut reply = Reply::new(parts.status, parts.headers, body);
        reply.is_whole = is_whole;
        Ok(reply)
    }
}

/// The body as far as it is looked at, and whether that is all of it.
async fn read(mut body: Incoming) -> Result<(Bytes, bool), TransportError> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| TransportError::Interrupted(error.into()))?;
        let data = frame.into_data().unwrap_or_default();
        if bytes.len() + data.len() > REPLY_BYTES_MAX {
            return Ok((bytes.freeze(), false));
        }
        bytes.extend_from_slice(&data);
    }
    Ok((bytes.freeze(), true))
}
