//! Which parts of a request count, and how each is brought to its one spelling.
//! A part that is switched off is not hashed at all; a body that cannot be read as what its type
//! says counts by its bytes, under another tag, so that the two readings never meet.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName};
use serde_json::value::RawValue;

use super::media::MediaType;
use super::{Fingerprint, FingerprintBuilder, Part, form, json, multipart};
use crate::policy::pointer::{self, Pointer};

/// The borrowed parts of a request that a fingerprint may cover.
///
/// It has no `Debug`: it borrows a body and a credential, and neither belongs in a log.
#[derive(Clone, Copy)]
pub struct RequestParts<'a> {
    /// The method, as sent.
    pub method: &'a str,
    /// The path, without the query.
    pub path: &'a str,
    /// The query, without its question mark.
    pub query: Option<&'a str>,
    /// All request headers.
    pub headers: &'a HeaderMap,
    /// The whole body, as received.
    pub body: &'a [u8],
    /// What the caller proved its identity with, if that is to count.
    pub credential: Option<&'a [u8]>,
}

/// Which parts of a request count. The default counts everything but headers.
///
/// ```
/// use onlyonce_core::fingerprint::{FingerprintRule, RequestParts};
///
/// let mut headers = http::HeaderMap::new();
/// headers.insert("content-type", http::HeaderValue::from_static("application/json"));
/// let first = RequestParts {
///     method: "POST",
///     path: "/payments",
///     query: None,
///     headers: &headers,
///     body: br#"{"amount": 5, "to": "bob"}"#,
///     credential: None,
/// };
/// let reordered = RequestParts { body: br#"{"to":"bob","amount":5}"#, ..first };
/// let other = RequestParts { body: br#"{"to":"bob","amount":6}"#, ..first };
///
/// let rule = FingerprintRule::default();
/// assert_eq!(rule.apply(&first), rule.apply(&reordered));
/// assert_ne!(rule.apply(&first), rule.apply(&other));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FingerprintRule {
    /// Whether the method counts.
    pub method: bool,
    /// Whether the canonical path counts.
    pub path: bool,
    /// Whether the sorted query counts.
    pub query: bool,
    /// Whether `Content-Type`, and `Content-Encoding` other than `identity`, count.
    pub content_type: bool,
    /// Headers of which every line counts, hashed in this order.
    pub headers: Vec<HeaderName>,
    /// How the body counts.
    pub body: BodyRule,
    /// What of a JSON body counts, if not all of it. A place where there is nothing counts as empty.
    pub only: Vec<Pointer>,
    /// What of a JSON body does not count, there or not.
    pub except: Vec<Pointer>,
    /// How the numbers of a JSON body count.
    pub numbers: Numbers,
}

/// How the numbers of a JSON body count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbers {
    /// By their digits: `1.0` is not `1`, as a receiver may tell them apart.
    #[default]
    Digits,
    /// By their value, exactly: `1.0`, `1` and `10e-1` are the same.
    Value,
}

/// How a body counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyRule {
    /// By meaning for JSON, forms and multipart; by bytes for anything else and whatever is
    /// malformed or carries a `Content-Encoding`.
    #[default]
    Canonical,
    /// By bytes, whatever the media type.
    Bytes,
    /// Not at all, and neither does its content type.
    Ignore,
}

impl Default for FingerprintRule {
    fn default() -> Self {
        Self {
            method: true,
            path: true,
            query: true,
            content_type: true,
            headers: Vec::new(),
            body: BodyRule::Canonical,
            only: Vec::new(),
            except: Vec::new(),
            numbers: Numbers::Digits,
        }
    }
}

impl FingerprintRule {
    /// The fingerprint of a request under this rule.
    pub fn apply(&self, request: &RequestParts<'_>) -> Fingerprint {
        let mut builder = FingerprintBuilder::new();
        if self.method {
            builder.part(Part::Method, request.method.as_bytes());
        }
        if self.path {
            builder.part(Part::Path, &form::canonical_path(request.path.as_bytes()));
        }
        if self.query
            && let Some(query) = request.query.filter(|query| !query.is_empty())
        {
            builder.part(Part::Query, &form::canonical_query(query.as_bytes()));
        }
        for name in &self.headers {
            add_lines(&mut builder, request.headers, name);
        }
        if let Some(credential) = request.credential {
            builder.part(Part::Credential, credential);
        }
        self.add_content(&mut builder, request);
        builder.finish()
    }

    fn add_content(&self, builder: &mut FingerprintBuilder, request: &RequestParts<'_>) {
        let media = MediaType::sole(request.headers);
        let encoded = is_encoded(request.headers);
        let (tag, body) = match self.body {
            BodyRule::Ignore => return,
            BodyRule::Canonical if !encoded => self.canonical(media.as_ref(), request.body),
            BodyRule::Canonical | BodyRule::Bytes => (Part::Body, Cow::Borrowed(request.body)),
        };
        if self.content_type {
            match media {
                // Bytes mean nothing without their boundary; parts mean the same under any.
                Some(media) => media.add_to(builder, tag != Part::MultipartBody),
                // Absent, or several lines of which receivers may take either: all count.
                None => add_lines(builder, request.headers, &CONTENT_TYPE),
            }
            if encoded {
                add_lines(builder, request.headers, &CONTENT_ENCODING);
            }
        }
        let places = Some(&self.only).filter(|only| tag == Part::JsonBody && !only.is_empty());
        match places.and_then(|only| found(only, &body)) {
            Some(found) => add_places(builder, found),
            None => {
                builder.part(tag, &body);
            }
        }
    }

    /// The body by its meaning, or by its bytes where it has none that we can read.
    fn canonical<'a>(
        &self,
        media: Option<&MediaType<'_>>,
        body: &'a [u8],
    ) -> (Part, Cow<'a, [u8]>) {
        let canonical = media.and_then(|media| {
            if media.is_json() {
                Some((Part::JsonBody, self.canonical_json(body)?))
            } else {
                canonical_form(media, body)
            }
        });
        canonical.unwrap_or((Part::Body, Cow::Borrowed(body)))
    }

    fn canonical_json<'a>(&self, body: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let canonical = json::spelled(body, false, self.numbers)?;
        if self.except.is_empty() {
            return Some(canonical);
        }
        pointer::without(&canonical, &self.except).map(Cow::Owned)
    }
}

/// A place, and what is there.
type Found<'a> = (&'a Pointer, Vec<&'a RawValue>);

/// Each place, and what is there in the canonical `body`.
fn found<'a>(places: &'a [Pointer], body: &'a [u8]) -> Option<Vec<Found<'a>>> {
    let found = places.iter().map(|place| Some((place, place.find(body)?)));
    found.collect()
}

fn add_places(builder: &mut FingerprintBuilder, found: Vec<Found<'_>>) {
    for (place, values) in found {
        builder.part(Part::JsonPlace, place.to_string().as_bytes());
        for value in values {
            builder.part(Part::JsonBody, value.get().as_bytes());
        }
    }
}

fn canonical_form<'a>(media: &MediaType<'_>, body: &'a [u8]) -> Option<(Part, Cow<'a, [u8]>)> {
    if media.is_form() {
        return Some((Part::FormBody, form::canonicalise(body)?.into()));
    }
    let digest = multipart::digest(body, media.multipart_boundary()?)?;
    Some((Part::MultipartBody, digest.to_vec().into()))
}

fn add_lines(builder: &mut FingerprintBuilder, headers: &HeaderMap, name: &HeaderName) {
    for value in headers.get_all(name) {
        builder.header(name.as_str().as_bytes(), value.as_bytes());
    }
}

/// Whether the body's bytes are not those of its media type, as a `Content-Encoding` of `gzip` or the like says.
pub fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().any(|value| {
        let coding = value.as_bytes().trim_ascii();
        !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity")
    })
}
