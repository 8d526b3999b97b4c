//! A small HTTP/1.1 client: a connection of its own for every request, so that a request can be
//! abandoned half-way, and duplicates can wait at the start line together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use onlyonce_core::{Clock, SystemClock};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::answer::Answer;
use super::target::Target;
use super::tls::Tls;

/// More than any run needs: a check that loops ends here.
const REQUESTS_MAX: usize = 2000;
const RESPONSE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Why there was no answer.
#[derive(Debug, Error)]
pub(crate) enum Trouble {
    #[error("cannot connect: {0}")]
    Connect(std::io::Error),
    #[error("no secure connection: {0}")]
    Tls(std::io::Error),
    #[error("no answer within {}", humantime::format_duration(*.0))]
    Timeout(Duration),
    #[error("the connection ended before the answer did")]
    Closed(#[source] Option<hyper::Error>),
    #[error("the answer has more than {RESPONSE_BYTES_MAX} bytes")]
    AnswerTooLarge,
    #[error("the run has sent its {REQUESTS_MAX} requests")]
    TooManyRequests,
}

/// The way to one server.
pub(crate) struct Client {
    target: Target,
    tls: Option<Tls>,
    timeout: Duration,
    clock: Arc<SystemClock>,
    sent: AtomicUsize,
}

/// A connection that has not been used yet.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
    timeout: Duration,
    clock: Arc<SystemClock>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Client {
    pub(crate) fn new(target: Target, timeout: Duration, clock: Arc<SystemClock>) -> Self {
        Self {
            tls: target.is_https().then(Tls::new),
            target,
            timeout,
            clock,
            sent: AtomicUsize::new(0),
        }
    }

    /// How many requests were sent.
    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    /// Sends a request on a connection of its own.
    pub(crate) async fn send(&self, request: Request<Bytes>) -> Result<Answer, Trouble> {
        self.connect().await?.send(request).await
    }

    /// Opens a connection, for a request to be sent later.
    pub(crate) async fn connect(&self) -> Result<Connection, Trouble> {
        let opening = async {
            let io = TokioIo::new(self.open().await?);
            handshake(io)
                .await
                .map_err(|error| Trouble::Closed(Some(error)))
        };
        let (sender, connection) = self.within(opening).await?;
        let driver = tokio::spawn(async move {
            // The sender gets the error too.
            let _ = connection.await;
        });
        Ok(Connection {
            sender,
            driver,
            timeout: self.timeout,
            clock: Arc::clone(&self.clock),
        })
    }

    /// Sends a whole request, waits, and closes the connection without reading an answer.
    pub(crate) async fn hang_up(
        &self,
        request: &Request<Bytes>,
        after: Duration,
    ) -> Result<(), Trouble> {
        let bytes = encode(request);
        let sending = async {
            let mut stream = self.open().await?;
            let closed = |_| Trouble::Closed(None);
            stream.write_all(&bytes).await.map_err(closed)?;
            stream.flush().await.map_err(closed)?;
            Ok(stream)
        };
        let stream = self.within(sending).await?;
        tokio::time::sleep(after).await;
        drop(stream);
        Ok(())
    }

    async fn open(&self) -> Result<Box<dyn Stream>, Trouble> {
        if self.sent.fetch_add(1, Ordering::Relaxed) >= REQUESTS_MAX {
            return Err(Trouble::TooManyRequests);
        }
        let Target { host, port, .. } = &self.target;
        let stream = TcpStream::connect((host.as_str(), *port))
            .await
            .map_err(Trouble::Connect)?;
        // A request is one write; waiting to fill a packet would only add time.
        stream.set_nodelay(true).map_err(Trouble::Connect)?;
        Ok(match &self.tls {
            Some(tls) => Box::new(tls.connect(host, stream).await.map_err(Trouble::Tls)?),
            None => Box::new(stream),
        })
    }

    async fn within<T>(
        &self,
        doing: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<T, Trouble> {
        timeout(self.timeout, doing)
            .await
            .unwrap_or(Err(Trouble::Timeout(self.timeout)))
    }
}

impl Connection {
    /// Sends the request and reads the whole answer.
    pub(crate) async fn send(mut self, request: Request<Bytes>) -> Result<Answer, Trouble> {
        let started = self.clock.now();
        let asking = async {
            let closed = |error| Trouble::Closed(Some(error));
            let response = self.sender.send_request(request.map(Full::new)).await;
            let (parts, body) = response.map_err(closed)?.into_parts();
            let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
            let body = body.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    Trouble::AnswerTooLarge
                } else {
                    Trouble::Closed(error.downcast().ok().map(|error| *error))
                }
            })?;
            Ok((parts, body.to_bytes()))
        };
        let (parts, body) = timeout(self.timeout, asking)
            .await
            .unwrap_or(Err(Trouble::Timeout(self.timeout)))?;
        Ok(Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
            took: self.clock.now().saturating_sub(started),
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The request as it goes over the wire.
fn encode(request: &Request<Bytes>) -> Vec<u8> {
    let mut bytes = format!("{} {} HTTP/1.1\r\n", request.method(), request.uri()).into_bytes();
    for (name, value) in request.headers() {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(request.body());
    bytes
}
