//! HTTP with a connection of its own for every request: nothing of one exchange is left for the next.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// The name by which every front is called: it is a part of what a key belongs to.
const HOST: &str = "shop.example";

/// Sends a request and reads the whole answer, or says why there is none.
pub(crate) async fn send(
    to: SocketAddr,
    mut request: Request<Full<Bytes>>,
    within: Duration,
) -> io::Result<Response<Bytes>> {
    let headers = request.headers_mut();
    headers
        .entry("host")
        .or_insert(http::HeaderValue::from_static(HOST));
    let exchange = async {
        let stream = TcpStream::connect(to).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        let answer = async {
            let answer = sender.send_request(request).await?;
            let (parts, body) = answer.into_parts();
            let body = body.collect().await?.to_bytes();
            Ok::<_, hyper::Error>(Response::from_parts(parts, body))
        };
        // The connection is driven by the exchange itself. It may end first: what came is read then.
        let mut answer = std::pin::pin!(answer);
        tokio::select! {
            biased;
            answer = &mut answer => answer,
            _ = connection => answer.await,
        }
        .map_err(io::Error::other)
    };
    match timeout(within, exchange).await {
        Ok(done) => done,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// What is going on in a service: open connections, and what was begun and outlives its own.
#[derive(Clone, Default)]
pub(crate) struct Activity(Arc<AtomicUsize>);

/// One thing that goes on, until this is dropped.
pub(crate) struct Going(Activity);

impl Activity {
    pub(crate) fn begin(&self) -> Going {
        self.0.fetch_add(1, Ordering::Relaxed);
        Going(self.clone())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves until the process is killed. A connection has one request.
pub(crate) async fn serve<H, F>(
    listen: SocketAddr,
    activity: Activity,
    handler: H,
) -> io::Result<Infallible>
where
    H: Fn(Request<Incoming>) -> F + Clone + 'static,
    F: Future<Output = Response<Full<Bytes>>> + 'static,
{
    let listener = TcpListener::bind(listen).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let going = activity.begin();
        let handler = handler.clone();
        let answer = service_fn(move |request| {
            let answering = handler(request);
            async move { Ok::<_, Infallible>(answering.await) }
        });
        let mut http1 = hyper::server::conn::http1::Builder::new();
        let served = http1
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), answer);
        tokio::task::spawn_local(async move {
            // A client that dies is no event here.
            drop(served.await);
            drop(going);
        });
    }
}

/// An answer in JSON.
pub(crate) fn json(status: StatusCode, value: &serde_json::Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(value.to_string()));
    *response.status_mut() = status;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert("content-type", json);
    response
}
