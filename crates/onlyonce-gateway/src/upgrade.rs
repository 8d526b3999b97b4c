//! WebSockets pass straight through: once the upstream has agreed, bytes go both ways until one
//! side ends or nothing moves for too long. No other protocol can be changed to, and the request that asks for it goes the same
//! way as every other, through the route and its layer.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;

use crate::body::{self, GatewayBody};
use crate::forward::list_of;
use crate::site::Site;

const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
/// How often a tunnel is looked at within the time that it may be idle.
const IDLE_LOOKS: u32 = 4;

/// Marks a request that asks for a WebSocket; it is put into its extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handshake;

/// Whether a request asks for a WebSocket. An `Upgrade` header on any other request is a header
/// of its hop, and goes no further.
pub(crate) fn is_handshake(request: &Request<Incoming>) -> bool {
    request.method() == Method::GET
        && request.version() == Version::HTTP_11
        && names(request.headers(), &CONNECTION, "upgrade")
        && is_to_websocket(request.headers())
        && request.body().is_end_stream()
}

/// Whether `Upgrade` names WebSocket.
pub(crate) fn is_to_websocket(headers: &HeaderMap) -> bool {
    names(headers, &UPGRADE, "websocket")
}

fn names(headers: &HeaderMap, list: &http::HeaderName, wanted: &str) -> bool {
    list_of(headers, list).any(|it| it.eq_ignore_ascii_case(wanted.as_bytes()))
}

/// Makes a message ask for a WebSocket, or agree to one.
pub(crate) fn mark(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, WEBSOCKET);
}

/// Answers a handshake, and joins both connections if the upstream agrees. They keep the place
/// that the client's connection has.
pub(crate) async fn answer(
    site: &Site,
    mut request: Request<Incoming>,
    place: Arc<OwnedSemaphorePermit>,
) -> Response<GatewayBody> {
    let client = hyper::upgrade::on(&mut request);
    request.extensions_mut().insert(Handshake);
    let mut response = site.answer(request).await;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return response;
    }
    let upstream = hyper::upgrade::on(&mut response);
    let idle_max = site.web_socket_idle_max();
    tokio::spawn(async move {
        let (Ok(client), Ok(upstream)) = tokio::join!(client, upstream) else {
            return;
        };
        join(TokioIo::new(client), TokioIo::new(upstream), idle_max).await;
        drop(place);
    });
    mark(response.headers_mut());
    response.map(|_| body::empty())
}

/// Passes bytes both ways until one side ends, which either may at any time, or until nothing has moved
/// for `idle_max`, or up to a quarter longer.
async fn join<C, U>(client: C, upstream: U, idle_max: Duration)
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    let reads = Arc::<AtomicUsize>::default();
    let (mut client, mut upstream) = (Watched::new(client, &reads), Watched::new(upstream, &reads));
    tokio::select! {
        biased;
        _ = tokio::io::copy_bidirectional(&mut client, &mut upstream) => {}
        () = still(&reads, idle_max) => {
            tracing::debug!(target: "onlyonce", "nothing moved on a WebSocket: it is closed");
        }
    }
}

/// Returns when nothing was read for so long.
async fn still(reads: &AtomicUsize, idle_max: Duration) {
    let mut seen = reads.load(Ordering::Relaxed);
    let mut quiet = 0;
    while quiet < IDLE_LOOKS {
        tokio::time::sleep(idle_max / IDLE_LOOKS).await;
        let now = reads.load(Ordering::Relaxed);
        quiet = if now == seen { quiet + 1 } else { 0 };
        seen = now;
    }
}

/// One side of a tunnel, whose reads are counted.
struct Watched<S> {
    inner: S,
    reads: Arc<AtomicUsize>,
}

impl<S> Watched<S> {
    fn new(inner: S, reads: &Arc<AtomicUsize>) -> Self {
        let reads = Arc::clone(reads);
        Self { inner, reads }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        if read.is_ready() {
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
