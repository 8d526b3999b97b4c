//! How a request gets to a service. [`reqwest::Client`] is one way; a test's script is another.

use std::error::Error;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::Request;
use thiserror::Error;

use crate::reply::Reply;

/// More of an answer is not read.
pub const REPLY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Sends one request, once.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// The service's answer to this request. Dropping the future may leave the request sent.
    async fn exchange(&self, request: Request<Bytes>) -> Result<Reply, TransportError>;
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum TransportError {
    /// No byte of the request left: it certainly did not run.
    #[error("no connection")]
    NotSent(#[source] Box<dyn Error + Send + Sync>),
    /// The connection broke after that: nobody knows.
    #[error("the connection broke")]
    Interrupted(#[source] Box<dyn Error + Send + Sync>),
}

#[async_trait]
impl Transport for reqwest::Client {
    async fn exchange(&self, request: Request<Bytes>) -> Result<Reply, TransportError> {
        let request = reqwest::Request::try_from(request).map_err(broken)?;
        let mut response = self.execute(request).await.map_err(broken)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut body = BytesMut::new();
        let mut is_whole = true;
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
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
}

/// The address is left out: it may hold what is nobody's business.
fn broken(error: reqwest::Error) -> TransportError {
    let error = error.without_url();
    if error.is_connect() || error.is_builder() {
        TransportError::NotSent(error.into())
    } else {
        TransportError::Interrupted(error.into())
    }
}
