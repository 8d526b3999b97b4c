//! A replay does not reach the upstream, so not its authentication either: a caller whose access
//! was taken away would still get its old answers. Where that matters, a cheap request of the
//! caller's own goes first, and only if the upstream is content the replay is given.

use http::header::{EXPECT, HeaderName, RANGE, RETRY_AFTER, TRAILER};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use onlyonce_tower::RequestBody;
use tower_service::Service;

use crate::body::{self, ClientBody, GatewayBody};
use crate::config::Ask;
use crate::forward::Peer;
use crate::upstream::Upstream;

/// What was meant for the one request it was sent with, its key too: the check is another one.
const NOT_SENT: [HeaderName; 8] = [
    EXPECT,
    RANGE,
    TRAILER,
    HeaderName::from_static("digest"),
    HeaderName::from_static("repr-digest"),
    // Some services take the method from these, and the check's is its own.
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-method-override"),
];
/// The same for every header that begins like this: conditions, what speaks of the body, keys.
const NOT_SENT_STARTS: [&str; 4] = ["content-", "idempotency-", "if-", "x-idempotency-"];

/// Whether a header of a request goes with another request in its caller's name, if it is not the
/// one with the key.
pub(crate) fn is_sent(name: &HeaderName) -> bool {
    let mut starts = NOT_SENT_STARTS.iter();
    !NOT_SENT.contains(name) && !starts.any(|start| name.as_str().starts_with(start))
}

/// The request that goes before a replay.
pub(crate) struct AuthCheck {
    method: Method,
    target: Uri,
    /// The header that the key is sent in: the check must not look like a retry.
    key_header: HeaderName,
    upstream: Upstream,
}

impl AuthCheck {
    pub(crate) fn new(ask: &Ask, key_header: &HeaderName, upstream: Upstream) -> Self {
        Self {
            method: ask.method.clone(),
            target: ask.target.clone().into(),
            key_header: key_header.clone(),
            upstream,
        }
    }

    /// The same over other connections.
    pub(crate) fn over(&self, upstream: &Upstream) -> Self {
        Self {
            method: self.method.clone(),
            target: self.target.clone(),
            key_header: self.key_header.clone(),
            upstream: upstream.clone(),
        }
    }

    /// The check for this request: the caller's headers, without a body.
    pub(crate) fn request(&self, of: &Request<ClientBody>) -> Request<RequestBody<ClientBody>> {
        let mut check = Request::new(RequestBody::from(ClientBody::empty()));
        *check.method_mut() = self.method.clone();
        *check.uri_mut() = self.target.clone();
        // Line by line: `extend` would keep only the last of several.
        for (name, value) in of.headers().iter().filter(|(name, _)| self.is_sent(name)) {
            check.headers_mut().append(name, value.clone());
        }
        if let Some(peer) = of.extensions().get::<Peer>() {
            check.extensions_mut().insert(peer.clone());
        }
        check
    }

    /// Whether a header of a request goes with its check.
    fn is_sent(&self, name: &HeaderName) -> bool {
        *name != self.key_header && is_sent(name)
    }

    /// The replay if the upstream is content with its caller, else what the upstream says.
    pub(crate) async fn pass(
        &self,
        check: Request<RequestBody<ClientBody>>,
        replay: Response<GatewayBody>,
    ) -> Response<GatewayBody> {
        match self.upstream.clone().call(check).await {
            Ok(said) if said.status().is_success() => replay,
            Ok(said) if said.status().is_client_error() => said.map(body::passed),
            Ok(_) | Err(_) => {
                let mut response = body::problem(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "auth-check-failed",
                    "Access not checked",
                    "The operation ran before, but the service behind this gateway did not say \
                     whether its answer may still be given. Retry with the same key.",
                );
                let after = HeaderValue::from_static("1");
                response.headers_mut().insert(RETRY_AFTER, after);
                response
            }
        }
    }
}
