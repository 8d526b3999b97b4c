//! Connections that change their protocol (WebSocket) pass straight through: after the upstream
//! agreed, bytes go both ways until one side ends.

use std::sync::Arc;

use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::sync::OwnedSemaphorePermit;

use crate::body::{self, GatewayBody};
use crate::forward;
use crate::site::Site;

/// Whether a request wants to change its connection's protocol.
pub(crate) fn is_asked_for(request: &Request<Incoming>) -> bool {
    request.version() == http::Version::HTTP_11 && forward::upgrade_of(request.headers()).is_some()
}

/// Asks the upstream, and joins both connections if it agrees. They keep the place that the
/// client's connection has.
pub(crate) async fn pass(
    site: &Site,
    mut request: Request<Incoming>,
    place: Arc<OwnedSemaphorePermit>,
) -> Response<GatewayBody> {
    let protocol = forward::upgrade_of(request.headers());
    let client = hyper::upgrade::on(&mut request);
    let mut response = match site.pass(request, protocol).await {
        Some(Ok(response)) => response,
        Some(Err(error)) => return body::upstream_failed(&error),
        None => return body::not_found(),
    };
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return response.map(body::passed);
    }
    let agreed = response.headers().get(UPGRADE).cloned();
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
    let (mut parts, _) = response.into_parts();
    parts
        .headers
        .insert(CONNECTION, HeaderValue::from_static("upgrade"));
    if let Some(agreed) = agreed {
        parts.headers.insert(UPGRADE, agreed);
    }
    Response::from_parts(parts, body::empty())
}
