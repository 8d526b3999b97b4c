//! Connections to an upstream. One that refuses a large request answers, closes, and so lets the rest
//! of the request fail: that failure must not hide the answer, which has arrived by then.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Uri;
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use tower_service::Service;

use crate::trust::HttpsConnector;

/// What carries a connection with or without TLS.
type AnyStream = <HttpsConnector as Service<Uri>>::Response;
type Error = <HttpsConnector as Service<Uri>>::Error;

/// Makes connections to an upstream.
#[derive(Clone)]
pub(super) struct Connector(HttpsConnector);

impl Connector {
    pub(super) fn new(connector: HttpsConnector) -> Self {
        Self(connector)
    }
}

impl Service<Uri> for Connector {
    type Response = UpstreamStream<AnyStream>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<UpstreamStream<AnyStream>, Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.0.call(uri);
        Box::pin(async move { connecting.await.map(UpstreamStream::new) })
    }
}

/// A connection to an upstream.
pub(super) struct UpstreamStream<S> {
    inner: S,
    side: Side,
}

/// What the upstream still takes and says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// Everything.
    Open,
    /// It takes no more. What it said before that is still to be read, and then its end.
    Closed,
    /// That was read too.
    Over,
}

impl<S: Read + Write + Unpin> UpstreamStream<S> {
    pub(super) fn new(inner: S) -> Self {
        let side = Side::Open;
        Self { inner, side }
    }

    /// Writes, if the upstream still takes anything. If it does not any more, writing waits for the
    /// reading side, which always comes to its end then and wakes the connection's task.
    fn write<T>(
        &mut self,
        write: impl FnOnce(Pin<&mut S>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match self.side {
            Side::Open => {}
            Side::Closed => return Poll::Pending,
            Side::Over => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
        match ready!(write(Pin::new(&mut self.inner))) {
            Err(error) if is_closed(&error) => {
                self.side = Side::Closed;
                Poll::Pending
            }
            written => Poll::Ready(written),
        }
    }

    /// Reads what the upstream said before it closed, and notes its end.
    fn read_last(
        &mut self,
        cx: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = [0; 4096];
        let room = bytes.len().min(into.remaining());
        let mut buffer = ReadBuf::new(&mut bytes[..room]);
        let read = ready!(Pin::new(&mut self.inner).poll_read(cx, buffer.unfilled()));
        if read.is_err() || buffer.filled().is_empty() {
            self.side = Side::Over;
        }
        into.put_slice(buffer.filled());
        Poll::Ready(read)
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
    )
}

impl<S: Read + Write + Unpin> Read for UpstreamStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match self.side {
            Side::Open => Pin::new(&mut self.inner).poll_read(cx, buffer),
            Side::Closed | Side::Over => self.read_last(cx, buffer),
        }
    }
}

impl<S: Read + Write + Unpin> Write for UpstreamStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(|inner| inner.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(|inner| inner.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write(|inner| inner.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl Connection for UpstreamStream<AnyStream> {
    fn connected(&self) -> Connected {
        self.inner.connected()
    }
}
