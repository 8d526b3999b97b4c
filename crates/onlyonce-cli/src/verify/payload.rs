//! A request body and its type, and the variations of it that checks send.

use bytes::{Bytes, BytesMut};
use http::HeaderValue;

use super::json;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// A request body with its type.
#[derive(Clone)]
pub(crate) struct Payload {
    pub(crate) bytes: Bytes,
    /// Nothing where there is no body.
    pub(crate) content_type: Option<HeaderValue>,
}

impl Payload {
    /// A body whose type, if not given, is JSON or bytes.
    pub(crate) fn new(bytes: impl Into<Bytes>, content_type: Option<HeaderValue>) -> Self {
        let bytes = bytes.into();
        let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok();
        Self {
            content_type: content_type
                .or_else(|| (!bytes.is_empty()).then_some(if is_json { JSON } else { BYTES })),
            bytes,
        }
    }

    /// No body at all.
    pub(crate) fn empty() -> Self {
        Self {
            bytes: Bytes::new(),
            content_type: None,
        }
    }

    /// All 256 byte values: no text survives them.
    pub(crate) fn binary() -> Self {
        Self {
            bytes: (0..=u8::MAX).collect(),
            content_type: Some(BYTES),
        }
    }

    /// [`Payload::binary`] with a last byte that reads as the same text, if read as text at all.
    pub(crate) fn other_binary() -> Self {
        let mut bytes = BytesMut::from(&Self::binary().bytes[..]);
        if let Some(last) = bytes.last_mut() {
            *last = 0xfe;
        }
        Self {
            bytes: bytes.freeze(),
            content_type: Some(BYTES),
        }
    }

    /// The same meaning in other letters, where the body is a JSON object.
    pub(crate) fn respelled(&self) -> Option<Self> {
        if !self.is("json") {
            return None;
        }
        let bytes = Bytes::from(json::respelled(&self.bytes)?);
        (bytes != self.bytes).then(|| Self {
            bytes,
            content_type: self.content_type.clone(),
        })
    }

    /// Another meaning of the same kind, with the members called `keep` as they are.
    pub(crate) fn altered(&self, keep: &[String]) -> Self {
        let bytes: Bytes = match json::altered(&self.bytes, keep).filter(|_| self.is("json")) {
            Some(json) => json.into(),
            None if self.is("json") && !self.bytes.is_empty() => {
                [b"[", &self.bytes[..], b"]"].concat().into()
            }
            None if self.is("x-www-form-urlencoded") && !self.bytes.is_empty() => {
                [&self.bytes[..], b"&onlyonce=verify"].concat().into()
            }
            None => [&self.bytes[..], b"x"].concat().into(),
        };
        Self::new(bytes, self.content_type.clone())
    }

    /// The same body with another value of its member `name`.
    pub(crate) fn altered_in(&self, name: &str) -> Option<Self> {
        Some(Self {
            bytes: json::altered_in(&self.bytes, name)?.into(),
            content_type: self.content_type.clone(),
        })
    }

    /// The same body followed by white space, which JSON does not mind, up to `bytes`.
    pub(crate) fn padded(&self, bytes: usize) -> Self {
        let mut padded = BytesMut::from(&self.bytes[..]);
        padded.resize(bytes.max(padded.len()), b' ');
        Self {
            bytes: padded.freeze(),
            content_type: self.content_type.clone(),
        }
    }

    /// Whether the type's essence ends with `suffix`, as in `application/problem+json`.
    fn is(&self, suffix: &str) -> bool {
        let content_type = self.content_type.as_ref().and_then(|it| it.to_str().ok());
        essence(content_type.unwrap_or_default()).ends_with(suffix)
    }
}

/// A media type without its parameters, in lower case.
pub(crate) fn essence(content_type: &str) -> String {
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests;
