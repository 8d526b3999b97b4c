//! One HTTP/1.1 connection to an upstream, polled by the request that uses it: no task of its own
//! stands between the two, and no wake-up passes from one to the other.

use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::UpstreamBody;
use super::connection::UpstreamStream;

pub(super) type PlainStream = UpstreamStream<TokioIo<TcpStream>>;

/// A connection without a task: it makes progress only while it is polled here.
pub(super) struct Line {
    sender: SendRequest<UpstreamBody>,
    /// `None` once it has ended: it must not be polled again.
    connection: Option<http1::Connection<PlainStream, UpstreamBody>>,
}

impl Line {
    pub(super) async fn start(stream: PlainStream) -> hyper::Result<Self> {
        let (sender, connection) = http1::handshake(stream).await?;
        Ok(Self {
            sender,
            connection: Some(connection),
        })
    }

    /// Sends a request, and returns the head of its answer. An error that comes with the request says
    /// that no byte of it was sent.
    pub(super) async fn exchange(
        &mut self,
        request: Request<UpstreamBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<UpstreamBody>>> {
        let mut answer = pin!(self.sender.try_send_request(request));
        let connection = &mut self.connection;
        poll_fn(|cx| {
            drive(connection, cx);
            answer.as_mut().poll(cx)
        })
        .await
    }

    /// Reads and writes what can be read and written now.
    pub(super) fn poll_progress(&mut self, cx: &mut Context<'_>) {
        drive(&mut self.connection, cx);
    }

    /// Whether the last answer was read to its end, and the next request can be sent.
    pub(super) fn is_ready(&self) -> bool {
        self.connection.is_some() && self.sender.is_ready()
    }

    /// Whether the upstream has ended the connection, or does so with what it sends between answers.
    pub(super) fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        self.poll_progress(cx);
        !self.is_ready()
    }

    /// Returns whether it can be used again, once what is left of its request has been sent.
    pub(super) async fn settled(&mut self) -> bool {
        poll_fn(|cx| {
            self.poll_progress(cx);
            match self.connection {
                Some(_) => self.sender.poll_ready(cx).map(|ready| ready.is_ok()),
                None => Poll::Ready(false),
            }
        })
        .await
    }
}

fn drive(
    connection: &mut Option<http1::Connection<PlainStream, UpstreamBody>>,
    cx: &mut Context<'_>,
) {
    // How it ended is told to the request that was on it.
    if let Some(running) = connection
        && Pin::new(running).poll(cx).is_ready()
    {
        *connection = None;
    }
}
