//! A request that can be sent again, and the answer to it.

use std::collections::BTreeMap;

use axum::body::Body;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use http_body_util::BodyExt;
use onlyonce_tower::{ClientAddress, Principal};
use serde_json::Value;

use super::bodies::BodyError;

pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A request, as often as it takes.
#[derive(Clone)]
pub(crate) struct Ask {
    method: Method,
    uri: String,
    headers: HeaderMap,
    body: Bytes,
    principal: Option<Principal>,
    address: Option<ClientAddress>,
}

/// A POST to `uri` with a small JSON body.
pub(crate) fn post(uri: &str) -> Ask {
    ask("POST", uri)
}

/// A request to `uri` with a small JSON body.
pub(crate) fn ask(method: &str, uri: &str) -> Ask {
    let ask = Ask {
        method: method.parse().expect("a method"),
        uri: uri.into(),
        headers: HeaderMap::new(),
        body: Bytes::new(),
        principal: None,
        address: None,
    };
    ask.json(r#"{"amount":5}"#)
}

impl Ask {
    /// With this idempotency key.
    pub(crate) fn key(self, key: impl AsRef<[u8]>) -> Self {
        self.header(IDEMPOTENCY_KEY, key)
    }

    /// With one more header line.
    pub(crate) fn header<N>(mut self, name: N, value: impl AsRef<[u8]>) -> Self
    where
        N: TryInto<HeaderName, Error: std::fmt::Debug>,
    {
        let value = HeaderValue::from_bytes(value.as_ref()).expect("a header value");
        let name = name.try_into().expect("a header name");
        self.headers.append(name, value);
        self
    }

    /// As the bearer of this token.
    pub(crate) fn bearer(self, token: &str) -> Self {
        self.header(AUTHORIZATION, format!("Bearer {token}"))
    }

    /// As somebody whom something in front has verified.
    pub(crate) fn principal(mut self, name: &str) -> Self {
        self.principal = Some(Principal::new(name));
        self
    }

    /// From this address.
    pub(crate) fn from(mut self, address: &str) -> Self {
        self.address = Some(ClientAddress(address.parse().expect("an address")));
        self
    }

    /// With this JSON body.
    pub(crate) fn json(self, body: &str) -> Self {
        self.body("application/json", body.as_bytes().to_vec())
    }

    /// With this body.
    pub(crate) fn body(mut self, media_type: &str, body: impl Into<Bytes>) -> Self {
        let media_type = HeaderValue::from_str(media_type).expect("a media type");
        self.headers.insert(CONTENT_TYPE, media_type);
        self.body = body.into();
        self
    }

    /// To somewhere else.
    pub(crate) fn to(mut self, uri: &str) -> Self {
        self.uri = uri.into();
        self
    }

    /// The request itself.
    pub(crate) fn request(&self) -> Request<Body> {
        let mut request = Request::new(Body::from(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.parse().expect("a URI");
        *request.headers_mut() = self.headers.clone();
        if let Some(principal) = &self.principal {
            request.extensions_mut().insert(principal.clone());
        }
        if let Some(address) = self.address {
            request.extensions_mut().insert(address);
        }
        request
    }
}

/// A response, read to its end.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
    /// What cut the body off, if something did.
    pub(crate) broke_off: Option<String>,
}

/// Every header by which some profile tells of a key or a replay.
const MARKS: [&str; 8] = [
    "idempotency-key",
    "idempotency-expires",
    "idempotent-replay",
    "idempotent-replayed",
    "repeatability-result",
    "x-idempotent-expires",
    "x-idempotent-replayed",
    "x-original-request-time",
];

impl Answer {
    pub(super) async fn of(response: Response<Body>) -> Self {
        let (parts, mut body) = response.into_parts();
        let mut answer = Self {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: Bytes::new(),
            trailers: None,
            broke_off: None,
        };
        let mut data = Vec::new();
        while let Some(frame) = body.frame().await {
            match frame.map(http_body::Frame::into_data) {
                Ok(Ok(piece)) => data.extend_from_slice(&piece),
                Ok(Err(frame)) => answer.trailers = frame.into_trailers().ok(),
                Err(error) => {
                    answer.broke_off = Some(BodyError::find(&error));
                    break;
                }
            }
        }
        answer.body = data.into();
        answer
    }

    /// The one value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.headers.get_all(name).iter();
        let value = lines.next()?;
        assert!(lines.next().is_none(), "{name} is there more than once");
        Some(value.to_str().expect("a readable header"))
    }

    /// Every value of a header, in order.
    pub(crate) fn headers_named(&self, name: &str) -> Vec<&str> {
        let lines = self.headers.get_all(name).iter();
        lines
            .map(|value| value.to_str().expect("a readable header"))
            .collect()
    }

    /// The body as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a text")
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    /// Which run of the handler this is the answer of.
    pub(crate) fn run(&self) -> u64 {
        let json = self.json();
        json["run"]
            .as_u64()
            .unwrap_or_else(|| panic!("no run's answer: {json}"))
    }

    /// The marks it carries, by name.
    pub(crate) fn marks(&self) -> BTreeMap<&'static str, String> {
        MARKS
            .into_iter()
            .filter_map(|name| Some((name, self.header(name)?.to_owned())))
            .collect()
    }
}
