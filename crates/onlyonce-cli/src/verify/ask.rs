//! One request to send: the plan's, varied by a check.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use onlyonce_core::policy::Pointer;

use super::args::HeaderLine;
use super::payload::Payload;
use super::plan::Plan;

const SELF: HeaderValue =
    HeaderValue::from_static(concat!("onlyonce-verify/", env!("CARGO_PKG_VERSION")));

/// A request in the making.
#[derive(Clone)]
pub(crate) struct Ask {
    label: String,
    method: Method,
    path: String,
    payload: Payload,
    /// One header line each, or one member each.
    keys: Vec<HeaderValue>,
    headers: Vec<HeaderLine>,
}

impl Ask {
    /// The plan's request without a key; `label` names it in the evidence.
    pub(crate) fn new(label: impl Into<String>, plan: &Plan) -> Self {
        Self {
            label: label.into(),
            method: plan.method.clone(),
            path: plan.target.path().to_owned(),
            payload: plan.payload.clone(),
            keys: Vec::new(),
            headers: plan.headers.clone(),
        }
    }

    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// The same request under another name.
    pub(crate) fn labelled(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Adds a line with a key.
    pub(crate) fn key(mut self, key: &str) -> Self {
        let value = HeaderValue::from_bytes(key.as_bytes());
        self.keys
            .push(value.expect("checks make keys of bytes that a header can hold"));
        self
    }

    pub(crate) fn payload(mut self, payload: Payload) -> Self {
        self.payload = payload;
        self
    }

    pub(crate) fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    pub(crate) fn path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// One more parameter in the query.
    pub(crate) fn more_query(mut self, parameter: &str) -> Self {
        let separator = if self.path.contains('?') { '&' } else { '?' };
        self.path = format!("{}{separator}{parameter}", self.path);
        self
    }

    pub(crate) fn header(mut self, name: &HeaderName, value: impl Into<HeaderValue>) -> Self {
        self.headers.push(HeaderLine {
            name: name.clone(),
            value: value.into(),
        });
        self
    }

    /// As another caller: these headers instead of those of the same name.
    pub(crate) fn caller(mut self, lines: &[HeaderLine]) -> Self {
        let is_other = |name: &HeaderName| lines.iter().any(|line| line.name == *name);
        self.headers.retain(|line| !is_other(&line.name));
        self.headers.extend_from_slice(lines);
        self
    }

    /// The body with the keys in their place, at least as long as it was; nothing where there are no
    /// keys, or the body has no such place.
    fn with_keys(&self, place: &Pointer) -> Option<Bytes> {
        let mut keys = self.keys.iter().map(|key| str::from_utf8(key.as_bytes()));
        let mut body = place.put(&self.payload.bytes, keys.next()?.ok()?)?;
        for key in keys {
            // One more member of the same name before the others.
            let mut more = place.put(b"{}", key.ok()?)?;
            more.pop();
            more.push(b',');
            more.extend_from_slice(&body[1..]);
            body = more;
        }
        body.resize(body.len().max(self.payload.bytes.len()), b' ');
        Some(body.into())
    }

    /// The request as it is sent.
    pub(crate) fn request(&self, plan: &Plan) -> Request<Bytes> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, plan.target.authority.clone());
        headers.insert(USER_AGENT, SELF);
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        for line in &self.headers {
            // Ours are only defaults; what the user repeats is meant to be repeated.
            if line.name == USER_AGENT || line.name == ACCEPT {
                headers.insert(line.name.clone(), line.value.clone());
            } else {
                headers.append(line.name.clone(), line.value.clone());
            }
        }
        if let Some(line) = plan.first_sent.as_ref().filter(|_| !self.keys.is_empty()) {
            headers.insert(line.name.clone(), line.value.clone());
        }
        let keyed = plan.key_place.as_ref().filter(|_| !self.method.is_safe());
        let keyed = keyed.and_then(|place| self.with_keys(place));
        if keyed.is_none() {
            for key in &self.keys {
                headers.append(plan.key_header.clone(), key.clone());
            }
        }
        let mut body = Bytes::new();
        if !self.method.is_safe() {
            body = keyed.unwrap_or_else(|| self.payload.bytes.clone());
            headers.insert(CONTENT_LENGTH, body.len().into());
            if let Some(content_type) = &self.payload.content_type {
                headers.insert(CONTENT_TYPE, content_type.clone());
            }
        }
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = Uri::try_from(&self.path).expect("the target has checked its paths");
        *request.headers_mut() = headers;
        request
    }
}
