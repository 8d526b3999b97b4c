//! The service where nothing is enforced: what comes passes, and is looked at on its way.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, request};
use http_body::Body;
use onlyonce_core::Refusal;
use tower_service::Service;

use crate::body::{RequestBody, ResponseBody};
use crate::future::ResponseFuture;
use crate::layer::{ClassifyError, Matched, Settings};
use crate::observe::{AnswerWatch, Exchange, ObservedRoute, RequestWatch, Sight};
use crate::origin;
use crate::request::{self as reading, Head};

/// A layer that only looks.
pub(super) struct Observed<'a> {
    pub(super) route: &'a ObservedRoute,
    pub(super) settings: &'a Arc<Settings>,
}

impl Observed<'_> {
    /// Passes a request to the inner service, which is ready for it.
    pub(super) fn call<S, C, B, R>(
        &self,
        inner: &mut S,
        classify: C,
        request: Request<B>,
    ) -> ResponseFuture<S::Future, R, S::Error>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>>,
        S::Future: Send + 'static,
        S::Error: Send + 'static,
        C: ClassifyError<S::Error>,
        B: Body<Data = Bytes>,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Send,
    {
        let (parts, body) = request.into_parts();
        let covered = match reading::head(&parts, self.settings) {
            Head::Read(covered) => covered,
            head @ (Head::Pass | Head::Status(_) | Head::Refuse(_)) => {
                self.look_at_head(&head, &parts);
                let request = Request::from_parts(parts, RequestBody::streamed(body));
                return ResponseFuture::untouched(inner.call(request));
            }
        };
        let exchange = Exchange::begin(self.route, self.settings, &parts, covered);
        let watch = RequestWatch::of(Arc::clone(&exchange), &body);
        let request = Request::from_parts(parts, RequestBody::watched(body, watch));
        let answering = inner.call(request);
        ResponseFuture::keyed(Box::pin(async move {
            let asking = Asking(exchange);
            let exchange = &asking.0;
            match answering.await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    exchange.answered(&head);
                    let watch = AnswerWatch::of(Arc::clone(exchange), &body);
                    let body = ResponseBody::watched(body, watch);
                    Ok(Response::from_parts(head, body))
                }
                Err(error) => {
                    exchange.failed(classify.classify(&error));
                    Err(error)
                }
            }
        }))
    }

    /// Counts a request that is judged by its head alone.
    fn look_at_head(&self, head: &Head, parts: &request::Parts) {
        match head {
            Head::Pass if self.covers(parts) => self.route.saw(Sight::Unkeyed, None, None),
            Head::Refuse(Refusal { reason, detail, .. }) => {
                let sight = Sight::Refused(*reason);
                self.route.saw(sight, None, Some(detail));
            }
            Head::Pass | Head::Status(_) | Head::Read(_) => {}
        }
    }

    /// Whether a request could have had a key.
    fn covers(&self, parts: &request::Parts) -> bool {
        let path = origin::uri(&parts.uri, &parts.extensions).path();
        let methods = &self.settings.policy.http.methods;
        let matched = || reading::params(&Matched::Own(path), parts, self.settings);
        methods.need(&parts.method).is_some() && matched().is_ok_and(|params| params.is_some())
    }
}

/// An exchange without an answer yet. If it is dropped, its caller has left.
struct Asking(Arc<Exchange>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.left();
    }
}
