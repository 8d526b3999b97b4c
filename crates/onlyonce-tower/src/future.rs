//! The response of the layer: the inner service's own future, or the life of a keyed call.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::Response;
use http_body::Body;
use onlyonce_core::policy::Policy;
use pin_project_lite::pin_project;

use crate::body::ResponseBody;
use crate::service::opts_out;

pin_project! {
    /// The future of [`Idempotent`](crate::Idempotent).
    pub struct ResponseFuture<F, B: Body, E> {
        #[pin]
        kind: Kind<F, B, E>,
    }
}

pin_project! {
    #[project = KindProjection]
    enum Kind<F, B: Body, E> {
        Pass { #[pin] future: F, policy: Option<Arc<Policy>> },
        Keyed { future: KeyedFuture<B, E> },
    }
}

pub(crate) type KeyedFuture<B, E> =
    Pin<Box<dyn Future<Output = Result<Response<ResponseBody<B>>, E>> + Send>>;

impl<F, B: Body, E> ResponseFuture<F, B, E> {
    pub(crate) fn pass(future: F, policy: Arc<Policy>) -> Self {
        let kind = Kind::Pass {
            future,
            policy: Some(policy),
        };
        Self { kind }
    }

    /// The answer exactly as the inner service gives it.
    pub(crate) fn untouched(future: F) -> Self {
        let kind = Kind::Pass {
            future,
            policy: None,
        };
        Self { kind }
    }

    pub(crate) fn keyed(future: KeyedFuture<B, E>) -> Self {
        let kind = Kind::Keyed { future };
        Self { kind }
    }
}

impl<F, B: Body, E> Future for ResponseFuture<F, B, E>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<ResponseBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().kind.project() {
            KindProjection::Pass { future, policy } => {
                let mut response = ready!(future.poll(cx))?;
                // There is nothing to opt out of, and it is still no client's business.
                if let Some(policy) = policy {
                    opts_out(response.headers_mut(), policy);
                }
                Poll::Ready(Ok(response.map(ResponseBody::streamed)))
            }
            KindProjection::Keyed { future } => future.as_mut().poll(cx),
        }
    }
}
