//! What is to be done at a service: one HTTP request, kept until it is.

use std::fmt;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST, PROXY_AUTHORIZATION};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use onlyonce_core::Fingerprint;
use onlyonce_core::fingerprint::{FingerprintRule, RequestParts};
use reqwest::Url;
use serde::Serialize;
use thiserror::Error;

/// The largest body, in bytes: what a service takes under a key by default.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;
/// All headers of an operation together, in bytes.
const HEADER_BYTES_MAX: usize = 64 * 1024;

/// One request to a service. It holds no credential, unless it is given one with
/// [`credential`](Self::credential): it may wait on disk for days, so the
/// [`Sender`](crate::Sender) adds what proves the caller when it is sent.
///
/// ```
/// use onlyonce_client::Operation;
///
/// # fn main() -> Result<(), onlyonce_client::OperationError> {
/// let operation = Operation::post("https://api.example.org/users")?
///     .json(&serde_json::json!({"email": "john@example.org"}))?;
/// # let _ = operation; Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Operation {
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Bytes,
}

/// Why something is no operation.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OperationError {
    /// Not an address that can be sent to.
    #[error("the address is not valid: write it like https://api.example.org/users ({why})")]
    Url {
        /// What is wrong.
        why: String,
    },
    /// Not a path at which keys are asked about.
    #[error("the status path is not valid: write it like /status")]
    StatusPath,
    /// A header that cannot be sent.
    #[error("the header {name} is not valid: use visible characters")]
    Header {
        /// Which.
        name: String,
    },
    /// A credential, which must not lie on disk.
    #[error(
        "{what} is a credential and does not belong into an operation, which is kept on disk: give it to the sender with Sender::sign_with, or keep it all the same with Operation::credential"
    )]
    Credential {
        /// Where it is.
        what: String,
    },
    /// A value that is no JSON.
    #[error("the body cannot be written as JSON")]
    Json(#[from] serde_json::Error),
    /// More than may be kept.
    #[error("the {part} has {bytes} bytes; at most {bytes_max} are allowed")]
    TooLarge {
        /// Body or headers.
        part: &'static str,
        /// Its size.
        bytes: usize,
        /// The bound.
        bytes_max: usize,
    },
}

impl Operation {
    /// A request without a body.
    pub fn new(method: Method, url: &str) -> Result<Self, OperationError> {
        let url = Url::parse(url).map_err(|error| bad_url(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad_url("only http and https can be sent to"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            let what = "the user or password in the address".to_owned();
            return Err(OperationError::Credential { what });
        }
        Ok(Self {
            method,
            url,
            headers: HeaderMap::new(),
            body: Bytes::new(),
        })
    }

    /// A POST without a body yet.
    pub fn post(url: &str) -> Result<Self, OperationError> {
        Self::new(Method::POST, url)
    }

    /// A DELETE.
    pub fn delete(url: &str) -> Result<Self, OperationError> {
        Self::new(Method::DELETE, url)
    }

    /// The same with this JSON as its body.
    pub fn json(self, value: &impl Serialize) -> Result<Self, OperationError> {
        let body = serde_json::to_vec(value)?;
        self.body("application/json", body)
    }

    /// The same with this body.
    pub fn body(
        mut self,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> Result<Self, OperationError> {
        self.body = body.into();
        within("body", self.body.len(), BODY_BYTES_MAX)?;
        self.header(CONTENT_TYPE, content_type)
    }

    /// The same with this header, instead of another of its name.
    pub fn header(self, name: HeaderName, value: &str) -> Result<Self, OperationError> {
        if is_credential(&name) {
            let what = format!("the header {name}");
            return Err(OperationError::Credential { what });
        }
        self.with(name, value)
    }

    /// The same with a header that proves who is calling. It lies on disk with the operation until
    /// that is done, readable by the queue's owner; the [`Sender`](crate::Sender) can renew it with each
    /// attempt, and this cannot. For programs that end before the operation is sent.
    pub fn credential(self, name: HeaderName, value: &str) -> Result<Self, OperationError> {
        self.with(name, value)
    }

    fn with(mut self, name: HeaderName, value: &str) -> Result<Self, OperationError> {
        let bad = || OperationError::Header {
            name: name.to_string(),
        };
        // The address says where it goes, and each operation has one key: the sender's.
        if name == HOST || name == crate::sender::IDEMPOTENCY_KEY {
            return Err(bad());
        }
        let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
        value.set_sensitive(is_credential(&name));
        self.headers.insert(name, value);
        let bytes = self.headers.iter();
        let bytes = bytes.map(|(name, value)| name.as_str().len() + value.len());
        within("headers", bytes.sum(), HEADER_BYTES_MAX)?;
        Ok(self)
    }

    /// One that was kept.
    pub(crate) fn kept(
        method: Method,
        url: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Self, OperationError> {
        let plain = Self::new(method, url)?;
        let mut headers = headers;
        for (name, value) in &mut headers {
            value.set_sensitive(is_credential(name));
        }
        Ok(Self {
            headers,
            body,
            ..plain
        })
    }

    /// Its method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Where it goes.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Its headers; the sender adds more.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Its body.
    pub fn bytes(&self) -> &Bytes {
        &self.body
    }

    /// What it means: equal for two operations that ask for the same, however they are spelled.
    pub fn content(&self) -> Fingerprint {
        let rule = FingerprintRule {
            // The fingerprint of a service is one service's; we may know several.
            headers: vec![HOST],
            ..FingerprintRule::default()
        };
        let mut headers = self.headers.clone();
        let origin = self.url.origin().ascii_serialization();
        if let Ok(origin) = HeaderValue::from_str(&origin) {
            headers.insert(HOST, origin);
        }
        rule.apply(&RequestParts {
            method: self.method.as_str(),
            path: self.url.path(),
            query: self.url.query(),
            headers: &headers,
            body: &self.body,
            credential: None,
        })
    }
}

impl fmt::Debug for Operation {
    /// Neither the body nor a header's value: they may be anybody's secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.url.host_str().unwrap_or_default();
        let (path, bytes) = (self.url.path(), self.body.len());
        write!(f, "{} {host}{path} ({bytes} bytes)", self.method)
    }
}

fn is_credential(name: &HeaderName) -> bool {
    [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE].contains(name)
}

fn bad_url(why: impl Into<String>) -> OperationError {
    OperationError::Url { why: why.into() }
}

fn within(part: &'static str, bytes: usize, bytes_max: usize) -> Result<(), OperationError> {
    if bytes > bytes_max {
        return Err(OperationError::TooLarge {
            part,
            bytes,
            bytes_max,
        });
    }
    Ok(())
}
