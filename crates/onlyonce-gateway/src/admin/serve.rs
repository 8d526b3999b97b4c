//! Serves the admin address. Whoever reaches it is an operator, or only got as far as the token: no
//! client keeps a place for longer than it uses it.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use onlyonce_tower::waits_for_leave;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tower_service::Service as _;

use super::Peer;
use crate::body::{BodyPatience, ClientBody};
use crate::pace::Paced;
use crate::server::ACCEPT_PAUSE;
use crate::settings::Timeouts;

/// Connections of operators at a time. The next waits until one ends.
const CONNECTIONS_MAX: usize = 512;

/// Serves until it is dropped, and every connection with it. A client of the admin API may take as long as any
/// other.
pub(crate) async fn serve(listener: TcpListener, router: Router, patience: Timeouts) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let peer = Peer(peer.ip().to_canonical());
                let connection = connection(stream, peer, router.clone(), patience);
                connections.spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(target: "onlyonce", %error, "a connection to the admin address was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, peer: Peer, router: Router, patience: Timeouts) {
    // Without it answers only come later.
    drop(stream.set_nodelay(true));
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = bounded(request, patience.bodies);
        request.extensions_mut().insert(peer);
        let answer = router.clone().call(request);
        async move { Ok::<Response, Infallible>(answer.await.unwrap_or_else(|never| match never {})) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience.headers)
        .serve_connection(TokioIo::new(Paced::new(stream, patience.write)), service);
    // A client that goes away in the middle is no event.
    drop(served.await);
}

/// A request whose body is not waited for for ever.
fn bounded(request: Request<Incoming>, patience: BodyPatience) -> Request<Body> {
    let waits_for_leave = waits_for_leave(request.headers());
    request.map(|body| {
        let mut body = ClientBody::new(body, patience, waits_for_leave);
        body.bound_as_a_whole();
        Body::new(body)
    })
}
