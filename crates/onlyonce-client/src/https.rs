//! Requests over http and https to servers that the machine trusts. No redirect is followed.

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::header::USER_AGENT;
use http::{HeaderValue, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::crypto::ring::default_provider;
use rustls::{ClientConfig, RootCertStore};

use crate::reply::Reply;
use crate::transport::{REPLY_BYTES_MAX, Transport, TransportError};

const CONNECT_MAX: Duration = Duration::from_secs(10);
const AGENT: &str = concat!("onlyonce/", env!("CARGO_PKG_VERSION"));
/// Says which roots to trust, and no others.
const ROOTS_FILE: &str = "SSL_CERT_FILE";

/// Read once: a machine has a hundred and more.
static ROOTS: LazyLock<Arc<RootCertStore>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    let named = std::env::var_os(ROOTS_FILE);
    if let Some(path) = named.as_ref().filter(|path| !Path::new(path).exists()) {
        tracing::warn!(target: "onlyonce", ?path, "{ROOTS_FILE} is not there: nobody is trusted");
        return Arc::new(roots);
    }
    // A root that cannot be read trusts nobody; the handshake will say so.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() && named.is_none() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    Arc::new(roots)
});

/// HTTP and HTTPS to servers that the machine trusts, or whose roots are in `SSL_CERT_FILE`; on a machine
/// without roots of its own, those that browsers trust. Clones share their connections.
#[derive(Clone, Debug)]
pub struct Https(Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

impl Default for Https {
    fn default() -> Self {
        Self::new()
    }
}

impl Https {
    /// The way to any service.
    pub fn new() -> Self {
        let trust = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has the default versions")
            .with_root_certificates(Arc::clone(&ROOTS))
            .with_no_client_auth();
        let mut http = HttpConnector::new();
        http.set_connect_timeout(Some(CONNECT_MAX));
        http.set_nodelay(true);
        http.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(trust)
            .https_or_http()
            .enable_http1()
            .enable_http2()
            .wrap_connector(http);
        Self(Client::builder(TokioExecutor::new()).build(connector))
    }
}

#[async_trait]
impl Transport for Https {
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
