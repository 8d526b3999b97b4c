//! How an answer shows that it is a replay: headers, and for some policies members of a JSON body.

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG};
use http::{HeaderMap, HeaderName, HeaderValue};
use onlyonce_core::Timestamp;
use onlyonce_core::policy::{BodyMarks, Mark};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// What the marks tell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// The key as its sender wrote it; nothing if it was derived or came in the body.
    pub(crate) key: Option<HeaderValue>,
    pub(crate) original_at: Option<Timestamp>,
    pub(crate) expires_at: Option<Timestamp>,
}

/// Puts `marks` on `headers`.
pub(crate) fn mark(headers: &mut HeaderMap, marks: &[Mark], told: &Told) {
    for mark in marks {
        let (name, value) = match mark {
            Mark::Flag(name) => (name, Some(HeaderValue::from_static("true"))),
            Mark::Text(name, text) => (name, Some(text.clone())),
            Mark::Key(name) => (name, told.key.clone()),
            Mark::Expires(name) => (name, told.expires_at.and_then(date)),
            Mark::OriginalTime(name) => (name, told.original_at.and_then(date)),
        };
        if let Some(value) = value {
            headers.insert(name.clone(), value);
        }
    }
}

fn date(moment: Timestamp) -> Option<HeaderValue> {
    HeaderValue::try_from(moment.to_rfc3339()).ok()
}

/// What no longer holds once a body has changed.
const TIED_TO_THE_BODY: [HeaderName; 8] = [
    CONTENT_LENGTH,
    ETAG,
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("signature"),
    HeaderName::from_static("signature-input"),
];

/// Removes what no longer holds once a body has changed: its length, tag, digests and signatures.
pub fn without_body_marks(headers: &mut HeaderMap) {
    for name in TIED_TO_THE_BODY {
        headers.remove(name);
    }
}

/// Puts the members into `body` if it is a JSON object; leaves anything else alone.
pub(crate) fn mark_body(
    headers: &mut HeaderMap,
    body: &Bytes,
    marks: &BodyMarks,
    told: &Told,
) -> Bytes {
    if !is_plain_json(headers) {
        return body.clone();
    }
    let Ok(Members(mut members)) = serde_json::from_slice::<Members<'_>>(body) else {
        return body.clone();
    };
    let original_at = told.original_at.map(Timestamp::to_rfc3339);
    members.retain(|(name, _)| {
        *name != marks.flag && *name != marks.message && *name != marks.submitted_at
    });

    let mut object: Vec<(&str, String)> = members
        .iter()
        .map(|(name, value)| (name.as_str(), value.get().to_owned()))
        .collect();
    object.push((&marks.message, quoted(&marks.message_text)));
    object.push((&marks.flag, "true".into()));
    if let Some(original_at) = &original_at {
        object.push((&marks.submitted_at, quoted(original_at)));
    }
    let written: Vec<_> = object
        .iter()
        .map(|(name, value)| format!("{}:{value}", quoted(name)))
        .collect();
    without_body_marks(headers);
    format!("{{{}}}", written.join(",")).into()
}

/// A JSON object with one more member, which replaces every one of that name; nothing for what is no
/// JSON object. All other members keep their bytes.
pub fn with_member(body: &[u8], name: &str, value: &str) -> Option<Bytes> {
    let Members(mut members) = serde_json::from_slice(body).ok()?;
    members.retain(|(found, _)| found != name);
    let mut written = vec![format!("{}:{}", quoted(name), quoted(value))];
    let others = members.iter();
    written.extend(others.map(|(name, value)| format!("{}:{}", quoted(name), value.get())));
    Some(format!("{{{}}}", written.join(",")).into())
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn is_plain_json(headers: &HeaderMap) -> bool {
    let is_json = headers.get(CONTENT_TYPE).is_some_and(|value| {
        let essence = value.to_str().unwrap_or_default().split(';').next();
        let essence = essence.unwrap_or_default().trim().to_ascii_lowercase();
        essence == "application/json" || essence.ends_with("+json")
    });
    is_json && !headers.contains_key(CONTENT_ENCODING)
}

/// An object's members in their order, values as they were written: numbers keep their digits.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry::<String, &'de RawValue>()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}

/// The values of a JSON object's members called `name`: none, one, or, badly, several. Nothing for what is
/// no JSON object, and for one whose names cannot all be read.
pub(crate) fn object_members<'a>(body: &'a [u8], name: &str) -> Option<Vec<&'a RawValue>> {
    let Members(members) = serde_json::from_slice(body).ok()?;
    let called = members
        .into_iter()
        .filter_map(|(found, value)| (found == name).then_some(value));
    Some(called.collect())
}
