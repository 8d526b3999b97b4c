//! Asks a service what has become of a key, where it answers that (`status_path` of a profile): after a
//! lost answer it is better to know than to send the whole operation once more and wait behind it. Only
//! an answer in the contract's own form counts; after anything else the operation is sent again under
//! its key, which is as safe as ever.

use std::time::Duration;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use onlyonce_core::Key;
use tokio::time::timeout;

use crate::cause::{Cause, Failure};
use crate::counters::add;
use crate::operation::{Operation, OperationError};
use crate::reply::Reply;
use crate::sender::{Sender, Sent};

#[cfg(test)]
mod tests;

const PREFER: HeaderName = HeaderName::from_static("prefer");
/// A service that may answer later is not asked to wait longer than this.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Where a service answers status requests: a path that comes before the operation's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatusPath(String);

/// What a service says of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyState {
    Running { retry_after: Option<Duration> },
    Done,
    InDoubt,
    Unknown,
}

impl StatusPath {
    pub(crate) fn new(path: &str) -> Result<Self, OperationError> {
        let path = path.trim_end_matches('/');
        let is_plain = path.starts_with('/') && !path.contains(['?', '#', ' ']);
        let is_path = is_plain && path.parse::<Uri>().is_ok();
        if !is_path {
            return Err(OperationError::StatusPath);
        }
        Ok(Self(path.to_owned()))
    }

    /// The address at which an operation is asked about.
    fn of(&self, operation: &Operation) -> Option<Uri> {
        let mut url = operation.url().clone();
        url.set_path(&format!("{}{}", self.0, operation.url().path()));
        url.as_str().parse().ok()
    }
}

impl KeyState {
    /// Reads an answer. Nothing if it is not in the contract's form: then something else is there.
    pub(crate) fn read(reply: &Reply, retry_after: Option<Duration>) -> Option<Self> {
        if reply.was_redirected {
            return None;
        }
        let body: serde_json::Value = serde_json::from_slice(&reply.body).ok()?;
        match (reply.status, body.get("state")?.as_str()?) {
            (StatusCode::OK, "running") => Some(Self::Running { retry_after }),
            (StatusCode::OK, "done") => Some(Self::Done),
            (StatusCode::OK, "in-doubt") => Some(Self::InDoubt),
            (StatusCode::NOT_FOUND, "unknown") => Some(Self::Unknown),
            _ => None,
        }
    }
}

impl Sender {
    /// Sends the operation once, after an attempt whose answer was lost. Where the service is known to
    /// answer [status requests](Self::status_path) it is asked first: what still runs is waited for, what
    /// is in doubt is reported, and only the rest is sent, which brings the stored answer if there is one.
    pub async fn attempt_again(&self, operation: &Operation, key: &Key) -> Result<Sent, Failure> {
        let failure = match self.ask(operation, key).await {
            Some(KeyState::Running { retry_after }) => Failure {
                retry_after,
                ..Failure::new(Cause::InProgress, "the service says that it is running")
            },
            Some(KeyState::InDoubt) => Failure::new(
                Cause::OutcomeUnknown,
                "the service says that it is in doubt",
            ),
            Some(KeyState::Done | KeyState::Unknown) | None => {
                return self.attempt(operation, key).await;
            }
        };
        self.count_failure(failure.cause);
        Err(Failure {
            attempts: 1,
            ..failure
        })
    }

    /// What the service says of the key; nothing if it does not say.
    async fn ask(&self, operation: &Operation, key: &Key) -> Option<KeyState> {
        let uri = self.own_status_path()?.of(operation)?;
        let mut request = self.request(operation, key).ok()?;
        *request.method_mut() = Method::GET;
        *request.uri_mut() = uri;
        *request.body_mut() = bytes::Bytes::new();
        request.headers_mut().remove(CONTENT_TYPE);
        request.headers_mut().remove(CONTENT_LENGTH);
        self.prefer_to_wait(&mut request);
        add(&self.own_counters().asked);
        let answered = timeout(
            self.own_retry().attempt_timeout,
            self.own_transport().exchange(request),
        );
        let reply = answered.await.ok()?.ok()?;
        let retry_after = crate::reply::retry_after(&reply.headers, self.own_clock().wall());
        KeyState::read(&reply, retry_after)
    }

    fn prefer_to_wait(&self, request: &mut Request<bytes::Bytes>) {
        let wait = (self.own_retry().attempt_timeout / 2).min(WAIT_MAX);
        if let Ok(value) = HeaderValue::from_str(&format!("wait={}", wait.as_secs())) {
            request.headers_mut().insert(PREFER, value);
        }
    }
}
