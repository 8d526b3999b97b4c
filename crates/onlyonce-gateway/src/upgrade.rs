//! WebSockets pass straight through: once the upstream has agreed, bytes go both ways until one
//! side ends. No other protocol can be changed to, and the request that asks for it goes the same
//! way as every other, through the route and its layer.

use std::sync::Arc;

use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::sync::OwnedSemaphorePermit;

use crate::body::{self, GatewayBody};
use crate::forward::list_of;
use crate::site::Site;

const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");

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
    tokio::spawn(async move {
        let (Ok(client), Ok(upstream)) = tokio::join!(client, upstream) else {
            return;
        };
        let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
        // Either side may end at any time; that is how such a connection ends.
        drop(tokio::io::copy_bidirectional(&mut client, &mut upstream).await);
        drop(place);
    });
    mark(response.headers_mut());
    response.map(|_| body::empty())
}
