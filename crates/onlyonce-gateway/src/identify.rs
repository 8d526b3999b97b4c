//! Identity travels to the effect: a keyed request carries a stable id of its operation and the
//! number of its attempt to the upstream, and where the upstream takes keys of its own, the id as
//! that key.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderName};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use onlyonce_core::DerivedId;
use onlyonce_tower::{Execution, PathParams, with_member};
use tower_service::Service;

use crate::config::{Identity, KeyPlace, UpstreamHeader};
use crate::failure::{Failure, Sent};
use crate::lookup::{Asking, Via};
use crate::settings::defaults;
use crate::upstream::{AnswerBody, Upstream, UpstreamBody, UpstreamError};

/// What a client cannot say: upstreams trust the gateway alone for it.
const OWN_START: &str = "onlyonce-";
/// Headers that vouch for the body as it was sent. With another member they would be wrong.
const VOUCHES: [HeaderName; 4] = [
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("repr-digest"),
];

/// The names of the headers that tell an upstream which operation it is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) operation: HeaderName,
    pub(crate) attempt: HeaderName,
    pub(crate) are_sent: bool,
}

impl Names {
    /// Says which operation is meant, and which attempt at it, where that is said at all.
    pub(crate) fn put_into(&self, headers: &mut HeaderMap, operation: &DerivedId, attempt: u32) {
        if self.are_sent {
            headers.insert(&self.operation, value(operation));
            headers.insert(&self.attempt, attempt.into());
        }
    }

    /// Removes what is said between us and the service alone.
    pub(crate) fn take_from(&self, headers: &mut HeaderMap) {
        headers.remove(&self.operation);
        headers.remove(&self.attempt);
    }

    /// Which operation an answer says that it is about: whether it names this one; nothing if it names
    /// none.
    pub(crate) fn is_about(&self, headers: &HeaderMap, operation: &DerivedId) -> Option<bool> {
        let mut named = headers.get_all(&self.operation).iter().peekable();
        named.peek()?;
        let wanted = value(operation);
        Some(named.all(|it| *it == wanted))
    }

    pub(crate) fn of(identity: &Identity) -> Self {
        let name = |given: &Option<UpstreamHeader>, usual| {
            given.as_ref().map_or(usual, |it| it.name().clone())
        };
        Self {
            operation: name(&identity.operation_header, defaults::OPERATION_HEADER),
            attempt: name(&identity.attempt_header, defaults::ATTEMPT_HEADER),
            are_sent: identity.headers.unwrap_or(defaults::IDENTITY_HEADERS),
        }
    }

    /// Removes what a client cannot say. Many servers read `_` in a header's name as `-`, so that is
    /// no way around it.
    pub(crate) fn remove_from(&self, headers: &mut HeaderMap) {
        let is_own = |name: &HeaderName| {
            let plain = name.as_str();
            let folded = plain.contains('_').then(|| plain.replace('_', "-"));
            let read = folded.as_deref().unwrap_or(plain);
            read.starts_with(OWN_START)
                || read == self.operation.as_str()
                || read == self.attempt.as_str()
        };
        let found: Vec<HeaderName> = headers.keys().filter(|it| is_own(it)).cloned().collect();
        for name in found {
            headers.remove(name);
        }
    }
}

/// What a route tells its upstream.
pub(crate) struct Naming {
    pub(crate) names: Names,
    pub(crate) place: Option<KeyPlace>,
    /// How it is found out whether an operation happened.
    pub(crate) asking: Option<Arc<Asking>>,
}

impl Naming {
    /// Refuses what could not be looked up later, before anything is sent.
    fn can_be_asked(
        &self,
        request: &Request<UpstreamBody>,
        execution: &Execution,
    ) -> Result<(), UpstreamError> {
        let Some(asking) = &self.asking else {
            return Ok(());
        };
        let params = request.extensions().get::<PathParams>();
        let param = |name: &str| params.and_then(|params| params.get(name));
        let body = request.body().data().cloned().unwrap_or_default();
        asking
            .check(execution, param, &body)
            .map_err(UpstreamError::NotAskable)
    }

    /// Puts the id and the attempt where the upstream expects them.
    fn name(&self, request: &mut Request<UpstreamBody>) -> Result<(), UpstreamError> {
        let Some(execution) = request.extensions().get::<Execution>().cloned() else {
            return Ok(());
        };
        self.can_be_asked(request, &execution)?;
        let id = execution.operation();
        let headers = request.headers_mut();
        self.names.put_into(headers, &id, execution.attempt());
        match &self.place {
            None => {}
            Some(KeyPlace::Header(header)) => {
                headers.insert(header.name(), value(&id));
            }
            Some(KeyPlace::Member(member)) => put_into_body(request, member, &id)?,
        }
        Ok(())
    }
}

pub(crate) fn value(id: &DerivedId) -> HeaderValue {
    HeaderValue::from_maybe_shared(Bytes::from(id.to_string()))
        .expect("a UUID is made of characters that a header may have")
}

/// Whether this is what something in between says when it has lost the service, or waited too long for it.
fn is_from_between(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT
    )
}

/// Sets a member of the JSON object that a request's body must then be.
fn put_into_body(
    request: &mut Request<UpstreamBody>,
    member: &str,
    id: &DerivedId,
) -> Result<(), UpstreamError> {
    let vouched = VOUCHES
        .into_iter()
        .find(|name| request.headers().contains_key(name));
    if let Some(name) = vouched {
        let why = format!("it has the header {name}, which would not fit the body any more");
        return Err(UpstreamError::NoPlace(why));
    }
    let data = request.body().data().cloned().unwrap_or_default();
    let Some(data) = with_member(&data, member, &id.to_string()) else {
        return Err(UpstreamError::NoPlace("it is not a JSON object".into()));
    };
    request
        .headers_mut()
        .insert(CONTENT_LENGTH, data.len().into());
    let body = std::mem::replace(request.body_mut(), crate::body::ClientBody::empty().into());
    *request.body_mut() = body.with_data(data);
    Ok(())
}

/// An upstream that hears which operation it is asked for.
#[derive(Clone)]
pub(crate) struct Identified {
    pub(crate) upstream: Upstream,
    pub(crate) naming: Arc<Naming>,
}

impl Identified {
    /// What a look needs, where the route looks before it runs again.
    pub(crate) fn via(&self) -> Option<Via> {
        let asking = self.naming.asking.as_ref();
        asking.map(|_| Via(self.upstream.clone()))
    }

    /// Notices answers that need not be the service's own: it may be at work still.
    fn call_that_is_asked_about(
        &mut self,
        request: Request<UpstreamBody>,
    ) -> <Self as Service<Request<UpstreamBody>>>::Future {
        let execution = request.extensions().get::<Execution>().cloned();
        let answering = self.upstream.call(request);
        Box::pin(async move {
            let answer = answering.await?;
            if let (Some(execution), true) = (execution, is_from_between(answer.status())) {
                execution.may_go_on();
            }
            Ok(answer)
        })
    }

    /// The same over other connections.
    pub(crate) fn over(&self, upstream: Upstream) -> Self {
        Self {
            upstream,
            naming: Arc::clone(&self.naming),
        }
    }
}

impl Service<Request<UpstreamBody>> for Identified {
    type Response = Response<AnswerBody>;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Failure>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.upstream.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<UpstreamBody>) -> Self::Future {
        match self.naming.name(&mut request) {
            Ok(()) if self.naming.asking.is_some() => self.call_that_is_asked_about(request),
            Ok(()) => self.upstream.call(request),
            Err(error) => {
                let sent = Sent::of(&request);
                Box::pin(std::future::ready(Err(Failure { error, sent })))
            }
        }
    }
}
