//! How a request gets to a service. [`Http`] is one way; a test's script is another.

use std::error::Error;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::Request;
use reqwest::redirect::Policy;
use thiserror::Error;

use crate::reply::Reply;

/// More of an answer is not read.
pub const REPLY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Sends one request, once.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// The answer to this request. Dropping the future may leave the request sent.
    ///
    /// A transport must not follow redirects: the request's key would travel to addresses that it was
    /// not meant for, and the answer would be another request's. One that does all the same says so
    /// with [`Reply::was_redirected`], and its answer does not count.
    async fn exchange(&self, request: Request<Bytes>) -> Result<Reply, TransportError>;
}

/// Why there is no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TransportError {
    /// No byte of the request left: it certainly did not run.
    #[error("no connection")]
    NotSent(#[source] Box<dyn Error + Send + Sync>),
    /// The connection broke after that: the outcome is unknown.
    #[error("the connection broke")]
    Interrupted(#[source] Box<dyn Error + Send + Sync>),
}

/// HTTP as operations need it: no redirect is followed behind the sender's back. Clones share their
/// connections.
///
/// A `reqwest::Client` is no transport. It may follow redirects, also to the address that was asked: then
/// what `GET` finds there looks like the answer to a `POST` that never ran, and nothing in it tells.
///
/// ```compile_fail,E0277
/// # use onlyonce_client::Sender;
/// let sender = Sender::new(reqwest::Client::new());
/// ```
///
/// ```
/// use onlyonce_client::{Http, Sender};
///
/// # fn main() -> Result<(), reqwest::Error> {
/// let sender = Sender::new(Http::new()?);
/// // With settings of your own, such as TLS roots or a proxy:
/// let agent = reqwest::Client::builder().user_agent("till/1.0");
/// let sender = Sender::new(Http::with(agent)?);
/// # let _ = sender; Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Http {
    client: reqwest::Client,
}

impl Http {
    /// HTTP with the usual settings.
    pub fn new() -> Result<Self, reqwest::Error> {
        Self::with(reqwest::Client::builder())
    }

    /// HTTP with these settings, but for redirects: those are off.
    pub fn with(settings: reqwest::ClientBuilder) -> Result<Self, reqwest::Error> {
        let client = settings.redirect(Policy::none()).build()?;
        Ok(Self { client })
    }
}

#[async_trait]
impl Transport for Http {
    async fn exchange(&self, request: Request<Bytes>) -> Result<Reply, TransportError> {
        let request = reqwest::Request::try_from(request).map_err(not_sent)?;
        let response = self.client.execute(request).await.map_err(|error| {
            if error.is_connect() || error.is_builder() {
                not_sent(error)
            } else {
                interrupted(error)
            }
        })?;
        read(response).await
    }
}

async fn read(mut response: reqwest::Response) -> Result<Reply, TransportError> {
    let (status, headers) = (response.status(), response.headers().clone());
    let mut body = BytesMut::new();
    let mut is_whole = true;
    while let Some(chunk) = response.chunk().await.map_err(interrupted)? {
        if body.len() + chunk.len() > REPLY_BYTES_MAX {
            is_whole = false;
            break;
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Reply {
        is_whole,
        ..Reply::new(status, headers, body.freeze())
    })
}

/// The address is left out: it may contain secrets.
fn not_sent(error: reqwest::Error) -> TransportError {
    TransportError::NotSent(error.without_url().into())
}

fn interrupted(error: reqwest::Error) -> TransportError {
    TransportError::Interrupted(error.without_url().into())
}
