//! Asks an upstream whether an operation happened. Everything that is not a clear yes or a clear no
//! cannot tell.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE,
    HeaderName,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, response};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Limited};
use onlyonce_core::engine::settler::Unsettled;
use onlyonce_core::{DerivedId, Finding, Key, Policy};
use onlyonce_tower::{Execution, Question, Reconciler, RequestBody, without_body_marks};
use serde_json::value::RawValue;
use tower_service::Service as _;

use crate::auth_check;
use crate::body::ClientBody;
use crate::config::{Lookup, Piece, Pointer, Span, Template, Variable};
use crate::forward::Peer;
use crate::identify::Names;
use crate::target::TARGET_BYTES_MAX;
use crate::upstream::{AnswerBody, Upstream};

/// The connections that a request's own worker has: its look goes over them too.
#[derive(Clone)]
pub(crate) struct Via(pub(crate) Upstream);

/// How a route's operations are looked up.
pub(crate) struct Asking {
    lookup: Lookup,
    /// In place of the caller's own credentials; where there is no caller, the only one.
    authorization: Option<HeaderValue>,
    names: Names,
    key_header: HeaderName,
    body_bytes_max: usize,
}

/// A value that cannot stand where it should, and why.
pub(crate) type Unusable = String;

impl Asking {
    pub(crate) fn new(
        lookup: &Lookup,
        authorization: Option<HeaderValue>,
        names: Names,
        policy: &Policy,
    ) -> Self {
        Self {
            lookup: lookup.clone(),
            authorization,
            names,
            key_header: policy.http.key_header.clone(),
            body_bytes_max: policy.limits.response_bytes_max,
        }
    }

    pub(crate) fn reconciler(self: &Arc<Self>) -> Reconciler {
        let asking = Arc::clone(self);
        let mut reconciler = Reconciler::new(move |question| {
            let asking = Arc::clone(&asking);
            async move { asking.ask(&question).await }
        });
        let table = self.lookup.table();
        if let Some(timeout) = table.timeout.map(Span::get) {
            reconciler = reconciler.within(timeout);
        }
        if let Some(after) = table.after.map(Span::get) {
            reconciler = reconciler.after(after);
        }
        reconciler
    }

    /// Whether this request could be looked up later.
    pub(crate) fn check<'a>(
        &self,
        execution: &Execution,
        param: impl Fn(&str) -> Option<&'a str>,
        body: &[u8],
    ) -> Result<(), Unusable> {
        let values = Values {
            key: execution.key(),
            operation: execution.operation(),
            param: &param,
            body,
        };
        target(&self.lookup.table().ask, &values).map(drop)
    }

    /// Asks about an operation of which nothing is known but its id.
    pub(crate) async fn ask_alone(
        &self,
        mut upstream: Upstream,
        unsettled: Unsettled,
        policy: &Policy,
    ) -> Finding {
        let Ok(target) = target_of(&self.lookup.table().ask, unsettled.operation()) else {
            return Finding::CannotTell;
        };
        let operation = unsettled.operation();
        let look = self.look(target, operation, unsettled.attempt(), HeaderMap::new());
        match upstream.call(look).await {
            Ok(answer) => {
                let happened = |parts: &_, body| onlyonce_tower::happened(parts, body, policy);
                self.read(answer, operation, happened).await
            }
            Err(_) => Finding::CannotTell,
        }
    }

    async fn ask(&self, question: &Question) -> Finding {
        let Some(Via(mut upstream)) = question.parts().extensions.get::<Via>().cloned() else {
            return Finding::CannotTell;
        };
        let Ok(request) = self.request(question) else {
            return Finding::CannotTell;
        };
        match upstream.call(request).await {
            Ok(answer) => {
                let happened = |parts: &_, body| question.happened(parts, body);
                self.read(answer, question.execution().operation(), happened)
                    .await
            }
            Err(_) => Finding::CannotTell,
        }
    }

    /// The look: the caller's headers, or the configured credential, without a body.
    fn request(&self, question: &Question) -> Result<Request<RequestBody<ClientBody>>, Unusable> {
        let execution = question.execution();
        let values = Values {
            key: execution.key(),
            operation: execution.operation(),
            param: &|name: &str| question.param(name),
            body: question.body(),
        };
        let target = target(&self.lookup.table().ask, &values)?;
        let parts = question.parts();
        let mut headers = HeaderMap::new();
        // Line by line: `extend` would keep only the last of several.
        for (name, value) in &parts.headers {
            if auth_check::is_sent(name) && *name != self.key_header {
                headers.append(name, value.clone());
            }
        }
        let mut look = self.look(target, values.operation, execution.attempt(), headers);
        if let Some(peer) = parts.extensions.get::<Peer>() {
            look.extensions_mut().insert(peer.clone());
        }
        Ok(look)
    }

    /// The request for this target, with these headers and what every look has.
    fn look(
        &self,
        target: Uri,
        operation: DerivedId,
        attempt: u32,
        mut headers: HeaderMap,
    ) -> Request<RequestBody<ClientBody>> {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(authorization) = &self.authorization {
            headers.remove(COOKIE);
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        // A service may refuse every earlier attempt from now on: then its "no" is for ever.
        self.names.put_into(&mut headers, &operation, attempt);
        let mut look = Request::new(RequestBody::from(ClientBody::empty()));
        *look.method_mut() = self.lookup.table().ask.method.clone();
        *look.uri_mut() = target;
        *look.headers_mut() = headers;
        look
    }

    /// What an answer means. Its body counts only if all of it came.
    async fn read(
        &self,
        answer: Response<AnswerBody>,
        operation: DerivedId,
        happened: impl Fn(&response::Parts, Bytes) -> Finding,
    ) -> Finding {
        let says = self.lookup.says(answer.status());
        let Some(says) = says.filter(|_| self.is_evidence(answer.headers(), &operation)) else {
            return Finding::CannotTell;
        };
        if !says {
            return Finding::DidNot;
        }
        let (mut parts, body) = answer.into_parts();
        let is_large = body.size_hint().lower() > self.body_bytes_max as u64;
        let body = match Limited::new(body, self.body_bytes_max).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if is_large || error.is::<http_body_util::LengthLimitError>() => {
                return self.too_large();
            }
            Err(_) => return Finding::CannotTell,
        };
        if self.lookup.table().ask.method != Method::HEAD && is_broken(&parts, &body) {
            return Finding::CannotTell;
        }
        if let Some(status) = self.lookup.table().status {
            parts.status = status.get();
        }
        // The length that was announced may be another request's: to HEAD there is no body.
        parts.headers.remove(CONTENT_LENGTH);
        // What the service said to us alone.
        self.names.take_from(&mut parts.headers);
        let Some(pointer) = &self.lookup.table().answer else {
            return happened(&parts, body);
        };
        if parts.headers.contains_key(CONTENT_ENCODING) {
            return Finding::CannotTell;
        }
        match answer_at(&body, pointer) {
            At::There(answer) => {
                // What speaks of the whole is not true of a part.
                without_body_marks(&mut parts.headers);
                let json = HeaderValue::from_static("application/json");
                parts.headers.insert(CONTENT_TYPE, json);
                happened(&parts, answer)
            }
            At::Nothing => Finding::DidNot,
            At::Unclear => Finding::CannotTell,
        }
    }

    /// Whether the head of an answer can be the service's own, about this operation. A portal, a login page
    /// or a proxy that knows no such path answers with a page.
    fn is_evidence(&self, headers: &HeaderMap, operation: &DerivedId) -> bool {
        let table = self.lookup.table();
        let is_about = self.names.is_about(headers, operation);
        is_about.unwrap_or(!table.echo) && (table.html || !is_page(headers))
    }

    /// It happened, and its answer cannot be kept. With a pointer into it, not even that is known.
    fn too_large(&self) -> Finding {
        match self.lookup.table().answer {
            Some(_) => Finding::CannotTell,
            None => Finding::happened(onlyonce_core::Response::too_large()),
        }
    }
}

fn media_type(headers: &HeaderMap) -> Option<String> {
    let given = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let (kind, _) = given.split_once(';').unwrap_or((given, ""));
    Some(kind.trim().to_ascii_lowercase())
}

fn is_page(headers: &HeaderMap) -> bool {
    let kind = media_type(headers);
    kind.is_some_and(|it| it == "text/html" || it == "application/xhtml+xml")
}

/// Whether a body says that it is JSON and is not, as one that ends too early without anyone noticing.
fn is_broken(parts: &response::Parts, body: &[u8]) -> bool {
    let is_json = |kind: String| kind == "application/json" || kind.ends_with("+json");
    parts.status != StatusCode::NO_CONTENT
        && !parts.headers.contains_key(CONTENT_ENCODING)
        && media_type(&parts.headers).is_some_and(is_json)
        && serde_json::from_slice::<&RawValue>(body).is_err()
}

/// What stands at a pointer.
enum At {
    There(Bytes),
    /// Nothing, and that is certain: an empty list, or `null`.
    Nothing,
    Unclear,
}

/// Numbers keep their digits. What is there twice is unclear.
fn answer_at(body: &[u8], pointer: &Pointer) -> At {
    match pointer.find(body).as_deref() {
        Some([found]) if found.get() == "null" => At::Nothing,
        Some([found]) => At::There(found.get().to_owned().into()),
        Some([]) => match pointer.find_parent(body).as_deref() {
            Some([parent]) if is_empty_list(parent) => At::Nothing,
            _ => At::Unclear,
        },
        Some(_) | None => At::Unclear,
    }
}

fn is_empty_list(value: &RawValue) -> bool {
    let items = serde_json::from_str::<Vec<&RawValue>>(value.get());
    items.is_ok_and(|items| items.is_empty())
}

/// What the places in a template stand for.
struct Values<'v, 'a> {
    key: &'v Key,
    operation: DerivedId,
    param: &'v dyn Fn(&str) -> Option<&'a str>,
    body: &'v [u8],
}

/// The target of a look. Values are data: none can change which resource is asked for.
fn target(template: &Template, values: &Values<'_, '_>) -> Result<Uri, Unusable> {
    let mut target = String::new();
    for piece in &template.pieces {
        match piece {
            Piece::Text(text) => target.push_str(text),
            Piece::Value { of, is_in_path } => {
                let value = match of {
                    Variable::Key => values.key.expose().to_owned(),
                    Variable::Operation => values.operation.to_string(),
                    Variable::Param(name) => param(values, name)?,
                    Variable::Body(pointer) => member(values.body, pointer)?,
                };
                let is_usable = if *is_in_path {
                    is_segment(&value)
                } else {
                    !value.is_empty()
                };
                if !is_usable {
                    return Err(format!("{} cannot stand in a path", named(of)));
                }
                escape(&value, &mut target);
            }
        }
    }
    if target.len() > TARGET_BYTES_MAX {
        return Err("its values are too long".into());
    }
    target
        .parse()
        .map_err(|_| "its values make no path".to_owned())
}

/// The target of a look at an operation of which nothing else is known.
fn target_of(template: &Template, operation: DerivedId) -> Result<Uri, Unusable> {
    let mut target = String::new();
    for piece in &template.pieces {
        match piece {
            Piece::Text(text) => target.push_str(text),
            Piece::Value {
                of: Variable::Operation,
                ..
            } => escape(&operation.to_string(), &mut target),
            Piece::Value { of, .. } => return Err(format!("{} is not kept", named(of))),
        }
    }
    target
        .parse()
        .map_err(|_| "its values make no path".to_owned())
}

fn named(variable: &Variable) -> String {
    match variable {
        Variable::Key => "its key".into(),
        Variable::Operation => "its operation's id".into(),
        Variable::Param(name) => format!("the parameter {name} of its path"),
        Variable::Body(pointer) => format!("{} in its body", pointer.as_str()),
    }
}

fn param(values: &Values<'_, '_>, name: &str) -> Result<String, Unusable> {
    let raw = (values.param)(name).ok_or_else(|| format!("its path has no {name}"))?;
    let text = percent_encoding::percent_decode_str(raw).decode_utf8();
    text.map(Into::into)
        .map_err(|_| format!("the parameter {name} of its path is not text"))
}

/// A text, or a number with the digits that it has: another spelling may name something else.
fn member(body: &[u8], pointer: &Pointer) -> Result<String, Unusable> {
    let at = pointer.as_str();
    let nothing = || format!("its body has no text or number at {at}");
    let found = pointer.find(body).unwrap_or_default();
    match found[..] {
        [] => Err(nothing()),
        [value] => match value.get().as_bytes().first() {
            Some(b'"') => serde_json::from_str(value.get()).map_err(|_| nothing()),
            Some(b'-' | b'0'..=b'9' | b't' | b'f') => Ok(value.get().to_owned()),
            _ => Err(nothing()),
        },
        _ => Err(format!("its body has more than one value at {at}")),
    }
}

/// Whether a value is one segment of a path for every server: nothing that is read as a slash, as an
/// escape, as a parameter or as another folder.
fn is_segment(value: &str) -> bool {
    let is_plain = |it: char| !matches!(it, '/' | '\\' | '%' | ';') && !it.is_control();
    !value.is_empty() && value.chars().all(is_plain) && value.chars().any(|it| it != '.')
}

fn escape(value: &str, target: &mut String) {
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            target.push(char::from(byte));
        } else {
            write!(target, "%{byte:02X}").expect("a string takes whatever is written");
        }
    }
}
