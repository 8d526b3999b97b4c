//! The response of the layer: the inner service's own future, or the life of a keyed call.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;

use crate::body::ResponseBody;

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
        Pass { #[pin] future: F },
        Keyed { future: KeyedFuture<B, E> },
    }
}

pub(crate) type KeyedFuture<B, E> =
    Pin<Box<dyn Future<Output = Result<Response<ResponseBody<B>>, E>> + Send>>;

impl<F, B: Body, E> ResponseFuture<F, B, E> {
    pub(crate) fn pass(future: F) -> Self {
        let kind = Kind::Pass { future };
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
            KindProjection::Pass { future } => {
                let response = ready!(future.poll(cx))?;
                Poll::Ready(Ok(response.map(ResponseBody::streamed)))
            }
            KindProjection::Keyed { future } => future.as_mut().poll(cx),
        }
    }
}
