//! A server on the network, as `onlyonce mcp --upstream` reaches it.

use std::env;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use onlyonce_gateway::trust::{self, HttpsConnector};
use onlyonce_mcp::{AnswerBody, Http, Remote, Unanswered};
use thiserror::Error;

const CONNECT_MAX: Duration = Duration::from_secs(10);
/// A connection that nobody used for longer may have been closed by the other side.
const IDLE_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, Error)]
pub(super) enum BadServer {
    #[error("{url} is no address of a server: write it like https://example.org/mcp")]
    Address { url: Uri },
    #[error("a header cannot be read: write it like 'Authorization: Bearer ${{TOKEN}}'")]
    Header,
    #[error("{name} is not set in the environment, and a header needs it")]
    Unset { name: String },
}

/// The server at `url`, with these headers for every request.
pub(super) fn server(url: &Uri, headers: &[String]) -> Result<Remote, BadServer> {
    let is_web = matches!(url.scheme_str(), Some("http" | "https"));
    if !is_web || url.authority().is_none() {
        return Err(BadServer::Address { url: url.clone() });
    }
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_MAX));
    let client = Client::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE_MAX)
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .build(trust::connector(connector));
    let headers = read(headers)?;
    Ok(Remote::new(Arc::new(Network(client)), url.clone(), headers))
}

fn read(lines: &[String]) -> Result<HeaderMap, BadServer> {
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(BadServer::Header)?;
        let name: HeaderName = name.trim().parse().map_err(|_| BadServer::Header)?;
        let value = with_environment(value.trim())?;
        let mut value = HeaderValue::from_str(&value).map_err(|_| BadServer::Header)?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

/// Puts values of the environment in the place of `${NAME}`: a credential need not be on a command line,
/// which everyone on the machine can read.
fn with_environment(text: &str) -> Result<String, BadServer> {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').ok_or(BadServer::Header)?;
        filled.push_str(before);
        let value = env::var(name).map_err(|_| BadServer::Unset { name: name.into() })?;
        filled.push_str(&value);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

struct Network(Client<HttpsConnector, Full<Bytes>>);

impl Http for Network {
    fn send(
        &self,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<AnswerBody>, Unanswered>> {
        let sent = self.0.request(request.map(Full::new));
        async move {
            match sent.await {
                Ok(response) => Ok(response.map(|body| AnswerBody::new(body.map_err(Into::into)))),
                // Only a connection that was never made says that nothing arrived.
                Err(error) if error.is_connect() => Err(Unanswered::NotSent(cause(&error))),
                Err(error) => Err(Unanswered::Lost(cause(&error))),
            }
        }
        .boxed()
    }
}

/// What is at the bottom of it.
fn cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
