//! The client's side: connections, bounded in number, in header bytes and in time.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use crate::body::{self, GatewayBody};
use crate::forward::Peer;
use crate::pace::Paced;
use crate::settings::Settings;
use crate::site::Sites;
use crate::streams::{Sending, StreamExecutor};
use crate::tls::Acceptor;
use crate::upgrade;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a connection is looked at within the time that it may be idle.
const IDLE_LOOKS: u32 = 4;
/// How long to pause when the system has no more descriptors to give.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A listening gateway.
pub(crate) struct Server {
    listener: TcpListener,
    tls: Option<Acceptor>,
    http: auto::Builder<StreamExecutor>,
    connections: Arc<Semaphore>,
    connections_max: u32,
    header_bytes_max: usize,
    sites: Sites,
    /// Where connections are served, one thread each.
    runtimes: Vec<Handle>,
    idle_max: Duration,
    write_max: Duration,
}

impl Server {
    pub(crate) fn new(
        listener: TcpListener,
        tls: Option<Acceptor>,
        settings: &Settings,
        sites: Sites,
        runtimes: Vec<Handle>,
    ) -> Self {
        let (limits, timeouts) = (&settings.limits, settings.timeouts);
        let (header_bytes, write_max) = (limits.header_bytes, timeouts.write);
        let mut http = auto::Builder::new(StreamExecutor::new(write_max));
        http.http1()
            .timer(TokioTimer::new())
            .header_read_timeout(timeouts.headers)
            // Read beyond the bound, so that whoever sends a little too much gets an answer.
            .max_buf_size((2 * header_bytes).max(8192))
            .half_close(false);
        http.http2()
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(header_bytes).unwrap_or(u32::MAX))
            .max_concurrent_streams(limits.streams);
        let connections_max = limits.connections;
        Self {
            listener,
            tls,
            http,
            connections: Arc::new(Semaphore::new(connections_max as usize)),
            connections_max,
            header_bytes_max: header_bytes,
            sites,
            runtimes,
            idle_max: timeouts.idle,
            write_max,
        }
    }

    /// Serves until `stop` says so, then lets open requests end.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        for (worker, runtime) in self.runtimes.iter().enumerate().cycle() {
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
            let connection = Connection {
                http: self.http.clone(),
                sites: Arc::clone(&self.sites),
                worker,
                header_bytes_max: self.header_bytes_max,
                idle_max: self.idle_max,
                write_max: self.write_max,
                stop: stop.clone(),
                place: Arc::new(permit),
            };
            // Its readiness is to be told to the thread that serves it.
            if let Ok(stream) = stream.into_std() {
                runtime.spawn(accepted(stream, address, self.tls.clone(), connection));
            }
        }
        drop(self.listener);
        // Every connection has a permit until it ends.
        drop(self.connections.acquire_many(self.connections_max).await);
    }
}

/// Returns when the gateway shall stop.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A sender that is gone means that too.
    drop(stop.wait_for(|stop| *stop).await);
}

async fn accepted(
    stream: std::net::TcpStream,
    address: SocketAddr,
    tls: Option<Acceptor>,
    connection: Connection,
) {
    let stream = stream
        .set_nodelay(true)
        .and_then(|()| TcpStream::from_std(stream));
    let stream = match stream {
        Ok(stream) => Paced::new(stream, connection.write_max),
        Err(error) => {
            tracing::debug!(target: "onlyonce", %error, "a connection ended at once");
            return;
        }
    };
    let peer = Peer::new(address.ip().to_canonical(), tls.is_some());
    match tls {
        None => connection.serve(stream, peer).await,
        Some(acceptor) => {
            let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream));
            if let Ok(Ok(stream)) = handshake.await {
                connection.serve(stream, peer).await;
            }
        }
    }
}

/// What one connection needs.
struct Connection {
    http: auto::Builder<StreamExecutor>,
    sites: Sites,
    /// The number of the thread that serves it.
    worker: usize,
    header_bytes_max: usize,
    idle_max: Duration,
    /// How long the client may take nothing of what it is sent.
    write_max: Duration,
    stop: watch::Receiver<bool>,
    /// Its place among the connections; it goes with it if the protocol is changed.
    place: Arc<OwnedSemaphorePermit>,
}

impl Connection {
    /// Serves until the client ends, or is idle for too long, or the gateway stops. In the last two
    /// cases what has begun still ends well, for a client that takes it.
    async fn serve<S>(self, stream: S, peer: Peer)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let activity = Arc::new(Activity::default());
        let (sites, worker, active) = (self.sites, self.worker, Arc::clone(&activity));
        let (place, header_bytes_max) = (self.place, self.header_bytes_max);
        let service = service_fn(move |mut request: Request<Incoming>| {
            let site = sites.load().of(worker);
            let running = Activity::start(&active);
            let place = Arc::clone(&place);
            request.extensions_mut().insert(peer.clone());
            async move {
                let response: Response<GatewayBody> = if is_over(&request, header_bytes_max) {
                    site.discard(request);
                    body::headers_too_large()
                } else if upgrade::is_handshake(&request) {
                    Box::pin(upgrade::answer(&site, request, place)).await
                } else {
                    site.answer(request).await
                };
                Ok::<_, Infallible>(response.map(|body| Sending::new(body, running)))
            }
        });
        let served = self
            .http
            .serve_connection_with_upgrades(TokioIo::new(stream), service);
        let mut served = pin!(served.into_owned());
        let (end, ended) = oneshot::channel();
        let ending = end_in_time(end, self.stop, Arc::clone(&activity), self.idle_max);
        tokio::spawn(ending);
        tokio::select! {
            biased;
            // A client that goes away in the middle is no event: its request goes on.
            _ = served.as_mut() => return,
            _ = ended => {}
        }
        served.as_mut().graceful_shutdown();
        tokio::select! {
            biased;
            _ = served => {}
            // Nothing runs, and what was left of the last answers is not taken either.
            () = activity.idle(self.write_max) => {}
        }
    }
}

/// Drops `end`, which ends a connection, when the gateway stops or nothing runs on it for so long. In
/// a task of its own: otherwise whatever happens on the connection would have to look at both.
async fn end_in_time(
    mut end: oneshot::Sender<()>,
    mut stop: watch::Receiver<bool>,
    activity: Arc<Activity>,
    idle_max: Duration,
) {
    tokio::select! {
        () = end.closed() => {}
        () = stopped(&mut stop) => {}
        () = activity.idle(idle_max) => {}
    }
}

/// Whether the header section of a request is over the bound.
fn is_over(request: &Request<Incoming>, bytes_max: usize) -> bool {
    let target = request.uri().path_and_query();
    let target = target.map_or(0, |target| target.as_str().len());
    let headers = request.headers().iter();
    let bytes = headers.fold(target, |sum, (name, value)| {
        sum + name.as_str().len() + value.len() + ": \r\n".len()
    });
    bytes > bytes_max
}

/// What a connection is busy with. It is looked at now and then, and wakes nobody in between.
#[derive(Default)]
struct Activity {
    running: AtomicUsize,
    /// How often a request began or ended.
    changes: AtomicUsize,
}

/// A request whose answer has not been sent.
struct Running(Arc<Activity>);

impl Activity {
    fn start(this: &Arc<Self>) -> Running {
        this.running.fetch_add(1, Ordering::Relaxed);
        this.changes.fetch_add(1, Ordering::Relaxed);
        Running(Arc::clone(this))
    }

    /// Returns when nothing has run for so long, or up to a quarter longer.
    async fn idle(&self, idle_max: Duration) {
        let mut seen = self.changes.load(Ordering::Relaxed);
        let mut quiet = 0;
        while quiet < IDLE_LOOKS {
            tokio::time::sleep(idle_max / IDLE_LOOKS).await;
            let changes = self.changes.load(Ordering::Relaxed);
            let is_quiet = changes == seen && self.running.load(Ordering::Relaxed) == 0;
            quiet = if is_quiet { quiet + 1 } else { 0 };
            seen = changes;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.changes.fetch_add(1, Ordering::Relaxed);
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}
