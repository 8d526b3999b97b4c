//! The connections to one HTTP/1.1 upstream that nothing uses, kept for the next request.
//!
//! Nothing polls them meanwhile. The next request on one reads before it writes, and so notices if the
//! upstream has closed it. All of them are looked at once a second, so that those that the upstream
//! closed, or that were idle for too long, are closed here too.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use http::{Request, Response, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use tower_service::Service;

use super::answer::AnswerBody;
use super::connection::UpstreamStream;
use super::line::Line;
use super::{Patience, UpstreamBody, UpstreamError, ends_badly};

/// Connections kept open to one upstream while nothing needs them.
pub(super) const IDLE_CONNECTIONS_MAX: usize = 1024;
/// How often idle connections are looked at, at least.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(1);
/// How often at least within the time that they may be idle.
const LOOKS_MIN: u32 = 4;

/// Makes connections to one upstream, and keeps those that nothing uses.
pub(super) struct Pool {
    connector: HttpConnector,
    /// Where it is.
    address: Uri,
    idle_max: Duration,
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    /// The one used last comes last, and is taken first.
    lines: Vec<IdleLine>,
    /// Whether somebody looks at them.
    is_watched: bool,
}

struct IdleLine {
    line: Box<Line>,
    /// How often it was looked at since it was used.
    looks: u32,
}

impl Pool {
    pub(super) fn new(connector: HttpConnector, address: Uri, patience: Patience) -> Arc<Self> {
        Arc::new(Self {
            connector,
            address,
            idle_max: patience.idle_max,
            idle: Mutex::default(),
        })
    }

    /// Sends a request, on a connection that stands already if there is one.
    pub(super) async fn send(
        self: Arc<Self>,
        mut request: Request<UpstreamBody>,
    ) -> Result<Response<AnswerBody>, UpstreamError> {
        while let Some(mut line) = self.take() {
            match line.exchange(request).await {
                Ok(response) => return Ok(self.answered(line, response)),
                // The upstream had closed it: no byte of the request was sent.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(error.into_error().into()),
                },
            }
        }
        let mut line = self.connect().await?;
        match line.exchange(request).await {
            Ok(response) => Ok(self.answered(line, response)),
            Err(error) => Err(error.into_error().into()),
        }
    }

    async fn connect(&self) -> Result<Box<Line>, UpstreamError> {
        let connecting = self.connector.clone().call(self.address.clone());
        let stream = connecting
            .await
            .map_err(|error| UpstreamError::Unreachable(error.into()))?;
        let line = Line::start(UpstreamStream::new(stream)).await?;
        Ok(Box::new(line))
    }

    /// The answer with the rest of its body. Most are read whole by now, and their connection is free
    /// for the next request.
    fn answered(
        self: Arc<Self>,
        line: Box<Line>,
        response: Response<hyper::body::Incoming>,
    ) -> Response<AnswerBody> {
        let is_last = ends_badly(&response);
        if line.is_ready() {
            if !is_last {
                self.put(line);
            }
            return response.map(AnswerBody::Read);
        }
        response.map(|body| AnswerBody::arriving(body, line, (!is_last).then_some(self)))
    }

    /// Takes back a connection whose answer has been read.
    pub(super) fn give_back(self: Arc<Self>, mut line: Box<Line>, cx: &mut Context<'_>) {
        line.poll_progress(cx);
        if line.is_ready() {
            self.put(line);
            return;
        }
        // The upstream answered before it had the whole request: it gets the rest.
        tokio::spawn(async move {
            if line.settled().await {
                self.put(line);
            }
        });
    }

    fn put(self: &Arc<Self>, line: Box<Line>) {
        let mut idle = self.idle();
        if idle.lines.len() < IDLE_CONNECTIONS_MAX {
            idle.lines.push(IdleLine { line, looks: 0 });
        }
        if !idle.is_watched {
            idle.is_watched = true;
            tokio::spawn(watch(Arc::downgrade(self), self.look_every()));
        }
    }

    fn take(&self) -> Option<Box<Line>> {
        self.idle().lines.pop().map(|idle| idle.line)
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look_every(&self) -> Duration {
        LOOK_EVERY_MAX.min(self.idle_max / LOOKS_MIN)
    }

    /// Drops what ended, or was idle for too long. Returns whether anything is left to look at.
    fn look(&self) -> bool {
        let (every, idle_max) = (self.look_every(), self.idle_max);
        let mut idle = self.idle();
        idle.lines.retain_mut(|IdleLine { line, looks }| {
            *looks += 1;
            every.saturating_mul(*looks) <= idle_max
                && !line.is_over(&mut Context::from_waker(Waker::noop()))
        });
        idle.is_watched = !idle.lines.is_empty();
        idle.is_watched
    }
}

/// Looks at the idle connections for as long as there are any.
async fn watch(pool: Weak<Pool>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        if !pool.upgrade().is_some_and(|pool| pool.look()) {
            return;
        }
    }
}
