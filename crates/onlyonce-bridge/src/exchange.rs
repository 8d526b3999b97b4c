//! One covered request: the layer's future, and the steps that its host has to take for it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use onlyonce_core::Execution;
use onlyonce_tower::{RequestBody, ResponseBody};
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tower_service::Service;

use crate::deadline::{Deadline, Waiting};
use crate::execution::HostExecution;
use crate::pipe::{Pipe, PipeBody, Writer};

/// The handler gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Lost {
    /// It was not called: its host had gone away.
    #[error("the handler was not called: its caller went away before")]
    NotRun,
    /// It was stopped half-way.
    #[error("the handler was cancelled; whether it took effect is not known")]
    Cancelled,
}

/// What the host has to do next.
pub enum Step {
    /// Read more of the request's body, and [`feed`](Exchange::feed) it.
    Read,
    /// Call the handler.
    Handle(Box<Handover>),
    /// Send this status and these headers.
    Head(StatusCode, HeaderMap),
    /// Send this much of the body.
    Data(Bytes),
    /// The response is complete.
    End,
    /// The response broke off: the client must not take it for a whole one.
    Broken,
    /// The handler gave no answer.
    Lost(Lost),
}

/// A request for the handler. It has a body in memory, because the layer has read it.
pub struct Handover {
    /// Method, target and headers.
    pub parts: http::request::Parts,
    /// All of the body.
    pub body: Bytes,
    /// What the handler may know and say; nothing if there was no key after all.
    pub execution: Option<HostExecution>,
    /// Takes the handler's answer.
    pub reply: Reply,
}

type Answer = Result<Response<PipeBody>, Raised>;

/// The handler raised an exception before it answered.
struct Raised;

/// Takes the answer of a handler. Dropped without one, the handler was cancelled.
pub struct Reply {
    sender: Option<oneshot::Sender<Answer>>,
    deadline: Deadline,
}

impl Reply {
    /// Answers with a head; the body follows through the writer.
    pub fn start(&mut self, status: StatusCode, headers: HeaderMap) -> Writer {
        let (writer, body) = Pipe::ends();
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        self.send(Ok(response));
        writer
    }

    /// Says that the handler raised an exception: as a panic in Rust, its policy knows what follows.
    pub fn raised(&mut self) {
        self.send(Err(Raised));
    }

    fn send(&mut self, answer: Answer) {
        if let Some(sender) = self.sender.take() {
            // Nobody may wait any more: then its deadline has passed, and it is in doubt already.
            drop(sender.send(answer));
        }
    }

    /// Wakes `waker` when the handler is past its deadline and has to be stopped.
    pub fn when_abandoned(&self, waker: Waker) {
        self.deadline.when_passed(waker);
    }
}

/// Where the layer leaves a request for the host to take.
#[derive(Clone, Default)]
pub(crate) struct Desk(Arc<Mutex<DeskState>>);

#[derive(Default)]
struct DeskState {
    handover: Option<Handover>,
    /// The host is gone.
    is_closed: bool,
    /// It went away without taking the request that lay here: the handler was not called.
    was_not_taken: bool,
}

impl Desk {
    fn put(&self, handover: Handover) -> Result<(), Lost> {
        let mut state = lock(&self.0);
        if state.is_closed {
            return Err(Lost::NotRun);
        }
        state.handover = Some(handover);
        Ok(())
    }

    fn take(&self) -> Option<Handover> {
        lock(&self.0).handover.take()
    }

    /// From now on nobody takes requests.
    fn close(&self) {
        let mut state = lock(&self.0);
        state.is_closed = true;
        let left = state.handover.take();
        state.was_not_taken = left.is_some();
        drop(state);
        drop(left);
    }

    fn was_not_taken(&self) -> bool {
        lock(&self.0).was_not_taken
    }
}

/// The inner service: hands each request over to the host that asked for it.
#[derive(Clone)]
pub(crate) struct Inner;

type Answering = Pin<Box<dyn Future<Output = Result<Response<PipeBody>, Lost>> + Send>>;

impl Service<Request<RequestBody<PipeBody>>> for Inner {
    type Response = Response<PipeBody>;
    type Error = Lost;
    type Future = Answering;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody<PipeBody>>) -> Answering {
        Box::pin(hand_over(request))
    }
}

async fn hand_over(request: Request<RequestBody<PipeBody>>) -> Result<Response<PipeBody>, Lost> {
    let (mut parts, body) = request.into_parts();
    let desk = parts.extensions.remove::<Desk>().ok_or(Lost::NotRun)?;
    let body = body.collect().await.map_err(|_broken| Lost::NotRun)?;
    let (sender, receiver) = oneshot::channel();
    let (waiting, deadline) = Waiting::start();
    let execution = parts
        .extensions
        .remove::<Execution>()
        .map(HostExecution::new);
    desk.put(Handover {
        parts,
        body: body.to_bytes(),
        execution,
        reply: Reply {
            sender: Some(sender),
            deadline,
        },
    })?;
    let answer = receiver.await;
    waiting.end();
    match answer {
        Ok(Ok(response)) => Ok(response),
        // The engine knows what a handler's panic means under its policy; the hook for panics is not
        // run, since nothing is wrong with us.
        Ok(Err(Raised)) => std::panic::resume_unwind(Box::new("the handler raised an exception")),
        Err(_closed) if desk.was_not_taken() => Err(Lost::NotRun),
        Err(_closed) => Err(Lost::Cancelled),
    }
}

/// The response of the layer.
type Answered = Result<Response<ResponseBody<PipeBody>>, Lost>;

enum Phase {
    Asking(Pin<Box<dyn Future<Output = Answered> + Send>>),
    Answering(Pin<Box<ResponseBody<PipeBody>>>),
    Over,
}

/// One request on its way through the layer. Dropping it leaves a handler that has started running.
pub struct Exchange {
    phase: Phase,
    desk: Desk,
    upload: Writer,
    has_asked: bool,
    runtime: Handle,
}

impl Exchange {
    /// Starts a request: `ask` makes the layer's future of it.
    pub(crate) fn new<F>(
        mut request: Request<PipeBody>,
        upload: Writer,
        runtime: Handle,
        ask: impl FnOnce(Request<PipeBody>) -> F,
    ) -> Self
    where
        F: Future<Output = Answered> + Send + 'static,
    {
        let desk = Desk::default();
        request.extensions_mut().insert(desk.clone());
        let asking = {
            let _entered = runtime.enter();
            ask(request)
        };
        Self {
            phase: Phase::Asking(Box::pin(asking)),
            desk,
            upload,
            has_asked: false,
            runtime,
        }
    }

    /// Adds to the request's body; `more` says whether there is more to come.
    pub fn feed(&mut self, data: Bytes, more: bool) {
        self.has_asked = false;
        self.upload.send(data);
        if !more {
            self.upload.end();
        }
    }

    /// Says that the client went away before its request was complete.
    pub fn hang_up(&mut self) {
        self.upload.break_off();
    }

    /// The next step, once there is one.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let _entered = self.runtime.enter();
        match &mut self.phase {
            Phase::Asking(asking) => match asking.as_mut().poll(cx) {
                Poll::Ready(Ok(response)) => {
                    let (parts, body) = response.into_parts();
                    self.phase = Phase::Answering(Box::pin(body));
                    Poll::Ready(Step::Head(parts.status, parts.headers))
                }
                Poll::Ready(Err(lost)) => {
                    self.phase = Phase::Over;
                    Poll::Ready(Step::Lost(lost))
                }
                Poll::Pending => self.poll_host(),
            },
            Phase::Answering(body) => {
                let step = loop {
                    match std::task::ready!(body.as_mut().poll_frame(cx)) {
                        Some(Ok(frame)) => {
                            // Neither ASGI nor WSGI has a place for trailers.
                            if let Ok(data) = frame.into_data() {
                                return Poll::Ready(Step::Data(data));
                            }
                        }
                        Some(Err(_broken)) => break Step::Broken,
                        None => break Step::End,
                    }
                };
                self.phase = Phase::Over;
                Poll::Ready(step)
            }
            Phase::Over => Poll::Ready(Step::End),
        }
    }

    /// What the layer waits for, if that is the host.
    fn poll_host(&mut self) -> Poll<Step> {
        if let Some(handover) = self.desk.take() {
            return Poll::Ready(Step::Handle(Box::new(handover)));
        }
        if !self.has_asked && self.upload.is_wanted() {
            self.has_asked = true;
            return Poll::Ready(Step::Read);
        }
        Poll::Pending
    }

    /// Lets the runtime poll the layer's future, for a host whose thread is about to run the handler:
    /// deadlines are kept meanwhile.
    pub fn detach(&mut self) {
        if let Phase::Asking(asking) = std::mem::replace(&mut self.phase, Phase::Over) {
            let task = self.runtime.spawn(asking);
            let joined = async move { task.await.unwrap_or(Err(Lost::Cancelled)) };
            self.phase = Phase::Asking(Box::pin(joined));
        }
    }

    /// Blocks this thread until there is a step, `writer` may be written to again, or `at_most` has
    /// passed.
    pub fn wait(&mut self, writer: Option<&Writer>, at_most: Duration) -> Option<Step> {
        let runtime = self.runtime.clone();
        let stepping = poll_fn(|cx| match (self.poll(cx), writer) {
            (Poll::Ready(step), _) => Poll::Ready(Some(step)),
            (Poll::Pending, Some(writer)) => writer.poll_ready(cx).map(|()| None),
            (Poll::Pending, None) => Poll::Pending,
        });
        runtime
            .block_on(async { tokio::time::timeout(at_most, stepping).await })
            .unwrap_or(None)
    }
}

impl Exchange {
    /// Leaves the request, as dropping this does: for hosts that do not know when that will be.
    pub fn leave(&mut self) {
        let _entered = self.runtime.enter();
        self.desk.close();
        self.upload.break_off();
        self.phase = Phase::Over;
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.leave();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
