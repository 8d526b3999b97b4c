//! A statement on its way, in its place. One that nobody waits for any more keeps its place until
//! the server has ended it: a closed connection alone would leave it running, and the next one
//! beside it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;

/// How long a statement that was given up keeps its place if its end is not seen.
pub(crate) const GIVEN_UP_MAX: Duration = Duration::from_secs(60);

/// A statement, and the connection it is asked on.
pub(crate) type Asking<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What is done about a statement that nobody waits for.
pub(crate) trait GivenUp<T>: Send + Unpin + 'static {
    /// Returns when it has ended, or when there is nothing to wait for.
    fn see_off(self, asking: Asking<T>) -> impl Future<Output = ()> + Send;
}

/// A statement on its way, and its place. Dropped before its end, it is given up.
pub(crate) struct Running<T: Send + 'static, G: GivenUp<T>> {
    /// There until it has ended.
    left: Option<(Asking<T>, OwnedSemaphorePermit, G)>,
}

impl<T: Send + 'static, G: GivenUp<T>> Running<T, G> {
    pub(crate) fn new(
        turn: OwnedSemaphorePermit,
        given_up: G,
        asking: impl Future<Output = T> + Send + 'static,
    ) -> Self {
        Self {
            left: Some((Box::pin(asking), turn, given_up)),
        }
    }
}

impl<T: Send + 'static, G: GivenUp<T>> Future for Running<T, G> {
    type Output = (T, OwnedSemaphorePermit);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some((asking, ..)) = &mut self.left else {
            return Poll::Pending;
        };
        let Poll::Ready(ended) = asking.as_mut().poll(context) else {
            return Poll::Pending;
        };
        match self.left.take() {
            Some((_, turn, _)) => Poll::Ready((ended, turn)),
            None => Poll::Pending,
        }
    }
}

impl<T: Send + 'static, G: GivenUp<T>> Drop for Running<T, G> {
    fn drop(&mut self) {
        if let Some((asking, turn, given_up)) = self.left.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(async move {
                given_up.see_off(asking).await;
                drop(turn);
            });
        }
    }
}
