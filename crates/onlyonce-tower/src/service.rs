//! The service: what is not covered passes; what is becomes a call of the engine, with the inner
//! service as its handler.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body::Body;
use onlyonce_core::policy::{Fate, Policy};
use onlyonce_core::{self as core, Answer, Execution, Lease, Outcome, Reason, Refusal, Release};
use tower_service::Service;

use crate::answer::{Answering, BrokenOff, Own, OwnBody};
use crate::body::{Gathered, RequestBody, ResponseBody, Resumed, Whole, gather};
use crate::buffer::Room;
use crate::future::ResponseFuture;
use crate::layer::{ClassifyError, Settings};
use crate::linger::waits_for_leave;
use crate::request::{self, Covered, Head, ask_for_identity};
use crate::{grpc, headers, status};

mod observed;

/// A service whose keyed requests run once. Made by [`IdempotencyLayer`](crate::IdempotencyLayer).
#[derive(Clone)]
pub struct Idempotent<S, C> {
    inner: S,
    settings: Arc<Settings>,
    classify: C,
}

impl<S, C> Idempotent<S, C> {
    pub(crate) fn new(inner: S, settings: Arc<Settings>, classify: C) -> Self {
        Self {
            inner,
            settings,
            classify,
        }
    }

    /// The route of a request that has a key, or may have one in its body, by its head; `*` where
    /// none is configured.
    pub fn keyed_route<B>(&self, request: &Request<B>) -> Option<Arc<str>> {
        self.is_keyed(request).then(|| match &self.settings.route {
            Some(route) => Arc::clone(&route.pattern),
            None => "*".into(),
        })
    }

    /// Whether a request has a key, or may have one in its body, by its head.
    pub fn is_keyed<B>(&self, request: &Request<B>) -> bool {
        let http = &self.settings.policy.http;
        http.is_keyed(request.method(), request.headers())
    }

    /// The path of the operation that a request asks the status of, if it is such a request.
    pub fn status_target<'p>(&self, method: &http::Method, path: &'p str) -> Option<&'p str> {
        status::target(&self.settings.policy.http, method, path)
    }

    /// Whether the layer reads or refuses a request with this head. Any other passes through: the
    /// layer only takes the opt-out header off its response.
    pub fn covers(&self, head: &http::request::Parts) -> bool {
        !matches!(request::head(head, &self.settings), Head::Pass)
    }

    /// The service behind the layer.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The service behind the layer, for what shall not pass through it.
    pub fn into_inner(self) -> S {
        self.inner
    }

    /// The same layer around another service.
    pub fn around<T>(&self, inner: T) -> Idempotent<T, C>
    where
        C: Clone,
    {
        Idempotent::new(inner, Arc::clone(&self.settings), self.classify.clone())
    }
}

impl<S, C, B, R> Service<Request<B>> for Idempotent<S, C>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    C: ClassifyError<S::Error>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Send,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, R, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        if let Some(name) = &self.settings.lease_header {
            request.headers_mut().remove(name);
        }
        if let Some(route) = &self.settings.observed {
            let observed = observed::Observed {
                route,
                settings: &self.settings,
            };
            return observed.call(&mut self.inner, self.classify.clone(), request);
        }
        let (parts, body) = request.into_parts();
        match request::head(&parts, &self.settings) {
            Head::Pass => {
                let request = Request::from_parts(parts, RequestBody::streamed(body));
                let policy = Arc::clone(&self.settings.policy);
                ResponseFuture::pass(self.inner.call(request), policy)
            }
            Head::Refuse(refusal) => {
                let policy = &self.settings.policy;
                let is_grpc = grpc::is_grpc(&parts.headers);
                let refusal = counted(refusal, &parts, &self.settings);
                let response = refuse(policy, None, is_grpc, &refusal);
                if !waits_for_leave(&parts.headers) {
                    self.settings.linger.read_on(body);
                }
                ResponseFuture::keyed(Box::pin(std::future::ready(Ok(response))))
            }
            Head::Status(asked) => {
                let settings = Arc::clone(&self.settings);
                let is_grpc = grpc::is_grpc(&parts.headers);
                let answering = async move {
                    let policy = Arc::clone(&settings.policy);
                    let answer = status::answer(settings, parts, asked).await;
                    Ok(match answer {
                        Ok(status) => status.map(ResponseBody::whole),
                        Err(refusal) => refuse(&policy, None, is_grpc, &refusal),
                    })
                };
                ResponseFuture::keyed(Box::pin(answering))
            }
            Head::Read(covered) => {
                // The clone takes our place; the one that is ready serves this request.
                let clone = self.inner.clone();
                let handling = Box::new(Handling {
                    inner: std::mem::replace(&mut self.inner, clone),
                    classify: self.classify.clone(),
                    policy: Arc::clone(&self.settings.policy),
                    parts,
                    whole: Whole::default(),
                    lease_header: self.settings.lease_header.clone(),
                    room: Room::within(self.settings.buffers.as_ref()),
                });
                let settings = Arc::clone(&self.settings);
                ResponseFuture::keyed(Box::pin(keyed(settings, covered, handling, body)))
            }
        }
    }
}

fn refuse<R: Body>(
    policy: &Policy,
    echo: Option<HeaderValue>,
    is_grpc: bool,
    refusal: &Refusal,
) -> Response<ResponseBody<R>> {
    let answering = Answering {
        policy,
        echo,
        is_grpc,
    };
    answering.refused(refusal).map(ResponseBody::whole)
}

/// A refusal before there was a call, counted for its caller.
fn counted(refusal: Refusal, parts: &http::request::Parts, settings: &Settings) -> Refusal {
    match &settings.allowance {
        Some(allowance) => {
            let asker = settings.scope.asker(parts, &settings.engine);
            allowance.counted(refusal, &asker, &settings.engine)
        }
        None => refusal,
    }
}

/// The life of a covered request.
async fn keyed<S, C, B, R>(
    settings: Arc<Settings>,
    mut covered: Covered,
    mut handling: Box<Handling<S, C>>,
    body: B,
) -> Result<Response<ResponseBody<R>>, S::Error>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    C: ClassifyError<S::Error>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Send,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send,
{
    let policy = &settings.policy;
    let is_grpc = grpc::is_grpc(&handling.parts.headers);
    let mut body = Box::pin(body);
    let bytes_max = policy.limits.request_bytes_max;
    match gather(body.as_mut(), bytes_max, &mut handling.room).await {
        Gathered::Whole(whole) => handling.whole = whole,
        Gathered::Over(start) => {
            if !(start.is_empty() && waits_for_leave(&handling.parts.headers)) {
                settings.linger.read_on(body);
            }
            let refusal = if handling.room.is_short() {
                Refusal::new(Reason::TooMuchBuffered).retry_after(policy.retry_after)
            } else {
                let bound = format!("at most {bytes_max} bytes");
                Refusal::new(Reason::RequestTooLarge).because(bound)
            };
            return Ok(refuse(policy, covered.echo.take(), is_grpc, &refusal));
        }
        Gathered::Broken(..) => {
            let refusal = Refusal::new(Reason::RequestUnreadable);
            return Ok(refuse(policy, covered.echo.take(), is_grpc, &refusal));
        }
    }
    let request = request::body(&handling.parts, &covered, &handling.whole.data, &settings);
    let (call, asker) = match request {
        request::Body::Call(call, asker) => (call, asker),
        request::Body::Refuse(refusal) => {
            let refusal = counted(refusal, &handling.parts, &settings);
            return Ok(refuse(policy, covered.echo.take(), is_grpc, &refusal));
        }
        request::Body::Pass => {
            let (mut inner, request) = handling.into_request();
            let mut response = Box::pin(inner.call(request)).await?;
            opts_out(response.headers_mut(), policy);
            return Ok(response.map(ResponseBody::streamed));
        }
    };
    let call = match &settings.reconciler {
        Some(reconciler) => {
            let (parts, body) = (&handling.parts, &handling.whole.data);
            let reconcile = reconciler.about(parts, body, &covered.params, policy);
            Arc::new(Arc::unwrap_or_clone(call).reconcile(reconcile))
        }
        None => call,
    };
    let share = settings.allowance.as_ref().zip(asker);
    let mut taking = None;
    if let Some((allowance, asker)) = &share {
        match allowance.admit(&settings.engine, &call, asker).await {
            Ok(admitted) => taking = admitted,
            Err(refusal) => {
                settings.engine.refused(&call, &refusal);
                return Ok(refuse(policy, covered.echo.take(), is_grpc, &refusal));
            }
        }
    }
    ask_for_identity(&mut handling.parts.headers, policy);

    let keep_for = covered.keep_for.unwrap_or(policy.keep_for);
    let work = move |execution: Execution| async move {
        let taken = taking.map(|taking| taking.take(keep_for));
        let (outcome, own) = handling.run(&execution).await;
        if let Some(taken) = taken {
            taken.end(&outcome, &execution);
        }
        (outcome, own)
    };
    let (answer, own) = settings.engine.once_returning(call, work).await;
    let answer = match (answer, &share) {
        (Answer::Refused(refusal), Some((allowance, asker))) => {
            Answer::Refused(allowance.counted(refusal, asker, &settings.engine))
        }
        (answer, _) => answer,
    };
    let answering = Answering {
        policy,
        echo: covered.echo.take(),
        is_grpc,
    };
    answering.answer(answer, own)
}

/// A request on its way to the inner service, which is ready for it.
struct Handling<S, C> {
    inner: S,
    classify: C,
    policy: Arc<Policy>,
    parts: http::request::Parts,
    whole: Whole,
    lease_header: Option<HeaderName>,
    room: Room,
}

impl<S, C> Handling<S, C> {
    fn into_request<B>(self) -> (S, Request<RequestBody<B>>) {
        let body = RequestBody::buffered(self.whole, self.room);
        (self.inner, Request::from_parts(self.parts, body))
    }

    /// Calls the inner service and reads all of its body; gives what to store and what to send.
    async fn run<B, R>(self: Box<Self>, execution: &Execution) -> (Outcome, Own<R, S::Error>)
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>>,
        C: ClassifyError<S::Error>,
        R: Body<Data = Bytes>,
    {
        let (policy, classify) = (Arc::clone(&self.policy), self.classify.clone());
        let (mut parts, body) = match (*self).call(execution).await {
            Ok(response) => response.into_parts(),
            Err(error) => {
                let outcome = match classify.classify(&error) {
                    Release::NotRun => Outcome::NotRun,
                    Release::Unknown => Outcome::Unknown,
                };
                return (outcome, Own::Error(error));
            }
        };
        if opts_out(&mut parts.headers, &policy) {
            execution.do_not_store();
        }
        let mut body = Box::pin(body);
        let mut room = Room::within(None);
        let gathered = gather(body.as_mut(), policy.limits.response_bytes_max, &mut room).await;
        outcome(parts, body, gathered, &policy, execution)
    }

    fn call<B>(mut self, execution: &Execution) -> S::Future
    where
        S: Service<Request<RequestBody<B>>>,
    {
        let lent = self.lease_header.take().zip(execution.lease());
        let (mut inner, mut request) = self.into_request();
        if let Some((name, lease)) = lent {
            request.headers_mut().insert(name, lent_value(lease));
        }
        request.extensions_mut().insert(execution.clone());
        inner.call(request)
    }
}

/// The right to complete a claim, as a header that neither logs nor compression tables keep.
fn lent_value(lease: &Lease) -> HeaderValue {
    let value = HeaderValue::from_str(lease.capability().expose());
    let mut value = value.expect("hexadecimal digits are a header's value");
    value.set_sensitive(true);
    value
}

/// What to store of a response that was read, and what to send.
fn outcome<R: Body, E>(
    mut parts: http::response::Parts,
    body: Pin<Box<R>>,
    gathered: Gathered<R::Error>,
    policy: &Policy,
    execution: &Execution,
) -> (Outcome, Own<R, E>) {
    let trailers = match &gathered {
        Gathered::Whole(whole) => whole.trailers.as_ref(),
        Gathered::Over(_) | Gathered::Broken(..) => None,
    };
    let status = grpc::effective_status(parts.status, &parts.headers, trailers);
    // What the service itself said about its answer counts first.
    if execution.fate() == Fate::Stored {
        match policy.stored.fate(status, policy.on_lapse) {
            Fate::Stored => {}
            Fate::Released => execution.do_not_store(),
            Fate::InDoubt => execution.leave_in_doubt(),
        }
    }
    let (outcome, own) = match gathered {
        Gathered::Whole(whole) => {
            let response = storable(&parts, &whole, policy);
            (response.into(), OwnBody::Whole(whole))
        }
        Gathered::Over(start) => {
            let rest = body.size_hint().exact();
            if let Some(rest) = rest.and_then(|rest| usize::try_from(rest).ok()) {
                execution.too_large(start.len().saturating_add(rest));
            }
            let resumed = Resumed {
                start,
                broken: None,
                rest: body,
            };
            let marker = core::Response::too_large();
            (marker.into(), OwnBody::Resumed(resumed))
        }
        Gathered::Broken(start, error) => {
            parts.extensions.insert(BrokenOff::of(execution));
            let resumed = Resumed {
                start,
                broken: Some(error),
                rest: body,
            };
            (Outcome::Unknown, OwnBody::Resumed(resumed))
        }
    };
    (outcome, Own::Response(parts, own))
}

/// The response as it is stored: filtered, or a marker where its head is over the bound.
pub(crate) fn storable(
    parts: &http::response::Parts,
    whole: &Whole,
    policy: &Policy,
) -> core::Response {
    let response = core::Response {
        headers: headers::storable(&parts.headers, &policy.http),
        trailers: whole.trailers.clone(),
        ..core::Response::new(parts.status, whole.data.clone())
    };
    let bytes =
        headers::bytes(&response.headers) + response.trailers.as_ref().map_or(0, headers::bytes);
    if bytes > policy.limits.header_bytes_max {
        core::Response::too_large()
    } else {
        response
    }
}

/// Takes the opt-out header off; says whether it was there to opt out.
pub(crate) fn opts_out(headers: &mut http::HeaderMap, policy: &Policy) -> bool {
    let is_opt_out = is_opt_out(headers, policy);
    headers.remove(&policy.http.opt_out_header);
    is_opt_out
}

/// Whether these headers keep an answer from being stored.
pub(crate) fn is_opt_out(headers: &http::HeaderMap, policy: &Policy) -> bool {
    headers
        .get(&policy.http.opt_out_header)
        .is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(b"yes"))
}
