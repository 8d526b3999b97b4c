//! The client's side: connections, bounded in number, in header bytes and in time.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use crate::body::GatewayBody;
use crate::config::Config;
use crate::forward::Peer;
use crate::site::Current;
use crate::tls::Acceptor;
use crate::upgrade;

const CONNECTIONS_MAX: usize = 10_000;
const HEADER_BYTES_MAX: usize = 64 * 1024;
const STREAMS_MAX: u32 = 200;
const HEADERS_TIMEOUT: Duration = Duration::from_secs(15);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to pause when the system has no more descriptors to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A listening gateway.
pub(crate) struct Server {
    listener: TcpListener,
    tls: Option<Acceptor>,
    http: auto::Builder<TokioExecutor>,
    connections: Arc<Semaphore>,
    site: Current,
}

impl Server {
    pub(crate) fn new(
        listener: TcpListener,
        tls: Option<Acceptor>,
        config: &Config,
        site: Current,
    ) -> Self {
        let limits = &config.limits;
        let header_bytes = limits.header_bytes.unwrap_or(HEADER_BYTES_MAX);
        let headers_timeout = config.timeouts.headers.map_or(HEADERS_TIMEOUT, |it| it.0);
        let mut http = auto::Builder::new(TokioExecutor::new());
        http.http1()
            .timer(TokioTimer::new())
            .header_read_timeout(headers_timeout)
            .max_buf_size(header_bytes.max(8192))
            .pipeline_flush(true)
            .half_close(false);
        http.http2()
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(header_bytes).unwrap_or(u32::MAX))
            .max_concurrent_streams(limits.streams.unwrap_or(STREAMS_MAX))
            .enable_connect_protocol();
        Self {
            listener,
            tls,
            http,
            connections: Arc::new(Semaphore::new(
                limits.connections.unwrap_or(CONNECTIONS_MAX),
            )),
            site,
        }
    }

    /// Serves until `stop` says so, then lets open requests end.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        let graceful = GracefulShutdown::new();
        loop {
            let permit = tokio::select! {
                biased;
                () = stopped(&mut stop) => break,
                permit = Arc::clone(&self.connections).acquire_owned() => permit,
            };
            let Ok(permit) = permit else { break };
            let (stream, address) = tokio::select! {
                biased;
                () = stopped(&mut stop) => break,
                accepted = self.listener.accept() => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        tracing::warn!(target: "onlyonce", %error, "a connection was not accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        continue;
                    }
                },
            };
            let (site, http) = (Arc::clone(&self.site), self.http.clone());
            let (watcher, tls) = (graceful.watcher(), self.tls.clone());
            tokio::spawn(async move {
                connection(stream, address, tls, http, site, watcher).await;
                drop(permit);
            });
        }
        drop(self.listener);
        graceful.shutdown().await;
    }
}

/// Returns when the gateway shall stop.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A sender that is gone means that too.
    drop(stop.wait_for(|stop| *stop).await);
}

async fn connection(
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<Acceptor>,
    http: auto::Builder<TokioExecutor>,
    site: Current,
    watcher: hyper_util::server::graceful::Watcher,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(target: "onlyonce", %error, "a connection ended at once");
        return;
    }
    let peer = Peer {
        ip: address.ip().to_canonical(),
        tls: tls.is_some(),
    };
    match tls {
        None => serve(stream, peer, http, site, watcher).await,
        Some(acceptor) => {
            let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream));
            if let Ok(Ok(stream)) = handshake.await {
                serve(stream, peer, http, site, watcher).await;
            }
        }
    }
}

async fn serve<S>(
    stream: S,
    peer: Peer,
    http: auto::Builder<TokioExecutor>,
    site: Current,
    watcher: hyper_util::server::graceful::Watcher,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |mut request: Request<Incoming>| {
        let site = site.load_full();
        async move {
            request.extensions_mut().insert(peer);
            let response: Response<GatewayBody> = if upgrade::is_asked_for(&request) {
                upgrade::pass(&site, request).await
            } else {
                site.answer(request).await
            };
            Ok::<_, Infallible>(response)
        }
    });
    let served = http.serve_connection_with_upgrades(TokioIo::new(stream), service);
    // A client that goes away in the middle is no event: its request goes on.
    drop(watcher.watch(served.into_owned()).await);
}
