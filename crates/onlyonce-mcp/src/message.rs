//! JSON-RPC messages, read no further than a proxy needs.

use std::cmp::Ordering;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::members::{Members, raw, read};

/// How a session begins, and what a client says once it has.
pub(crate) const INITIALIZE: &str = "initialize";
pub(crate) const INITIALIZED: &str = "notifications/initialized";
const CANCELLED: &str = "notifications/cancelled";

/// A request's id. Compared as a value, `"a"` and `"\u0061"` are one, and sent back as it was written:
/// a number with more digits than we can hold would be another one.
#[derive(Clone, Debug)]
pub struct Id {
    value: String,
    written: Option<Box<str>>,
}

impl Id {
    /// The id that is written like this.
    pub fn of(id: &RawValue) -> Self {
        let written = id.get();
        // What is no whole number of 64 bits is compared digit by digit. An id that is no value, such
        // as 1e400, still names its request.
        let value = read::<Value>(id).filter(|value| !value.is_f64());
        let value = value.map_or_else(|| written.to_owned(), |value| value.to_string());
        let written = (value != written).then(|| written.into());
        Self { value, written }
    }

    fn ours(value: String) -> Self {
        let written = None;
        Self { value, written }
    }

    /// The id of an answer to a request whose id cannot be read.
    pub fn null() -> Self {
        Self::ours("null".to_owned())
    }

    pub(crate) fn to_raw(&self) -> Box<RawValue> {
        let text = self.written.as_deref().unwrap_or(&self.value);
        RawValue::from_string(text.to_owned()).expect("it is JSON: read as such, or written by us")
    }
}

impl PartialEq for Id {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Eq for Id {}

impl PartialOrd for Id {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Id {
    fn cmp(&self, other: &Self) -> Ordering {
        self.value.cmp(&other.value)
    }
}

/// Makes the ids of requests that the proxy sends. They start with something that no client
/// guesses, so that no request of a client has an id of ours, whatever it sends.
pub(crate) struct Ids {
    prefix: String,
}

impl Ids {
    pub(crate) fn new(random: [u8; 8]) -> Self {
        let prefix = format!("\"onlyonce-{:016x}-", u64::from_le_bytes(random));
        Self { prefix }
    }

    pub(crate) fn make(&self, number: u64) -> Id {
        Id::ours(format!("{}{number}\"", self.prefix))
    }

    pub(crate) fn made(&self, id: &Id) -> bool {
        id.value.starts_with(&self.prefix)
    }
}

pub(crate) enum Message<'a> {
    Request {
        id: Id,
        method: String,
        params: Option<&'a RawValue>,
    },
    Notification {
        method: String,
        params: Option<&'a RawValue>,
    },
    Response {
        id: Id,
        reply: Reply,
    },
    /// Nothing we know: it is passed on, as everything else is.
    Other,
    /// No JSON object, as far as we can tell. Another reader may be less strict.
    Unreadable,
}

/// The members that JSON-RPC knows. Of several with one name the last counts, as for every other
/// reader: a name that is there twice is no way around the proxy.
#[derive(Default)]
struct Envelope<'a> {
    id: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Envelope<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(LastCounts)
    }
}

struct LastCounts;

impl<'de> Visitor<'de> for LastCounts {
    type Value = Envelope<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut envelope = Envelope::default();
        while let Some(name) = map.next_key::<String>()? {
            let member = match name.as_str() {
                "id" => &mut envelope.id,
                "method" => &mut envelope.method,
                "params" => &mut envelope.params,
                "result" => &mut envelope.result,
                "error" => &mut envelope.error,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            *member = Some(map.next_value()?);
        }
        Ok(envelope)
    }
}

impl<'a> Message<'a> {
    pub(crate) fn read(line: &'a str) -> Self {
        let Ok(envelope) = serde_json::from_str::<Envelope<'_>>(line) else {
            return Self::Unreadable;
        };
        let params = envelope.params;
        match (envelope.id.map(Id::of), envelope.method.and_then(read)) {
            (Some(id), Some(method)) => Self::Request { id, method, params },
            (None, Some(method)) => Self::Notification { method, params },
            (Some(id), None) => {
                let error = envelope.error.filter(|error| error.get() != "null");
                let reply = match (envelope.result, error) {
                    (_, Some(error)) => Reply::Error(error.to_owned()),
                    (Some(result), None) => Reply::Result(result.to_owned()),
                    (None, None) => Reply::Result(raw(&())),
                };
                Self::Response { id, reply }
            }
            (None, None) => Self::Other,
        }
    }
}

/// Whether a client says here that its session has begun.
pub(crate) fn is_initialized(line: &str) -> bool {
    matches!(Message::read(line), Message::Notification { method, .. } if method == INITIALIZED)
}

/// What is on one line: a message, or a batch of them, which older versions of the protocol have.
/// They go on one by one, for each may be a call.
pub fn each(line: String) -> Vec<String> {
    if !line.trim_start().starts_with('[') {
        return vec![line];
    }
    match serde_json::from_str::<Vec<&RawValue>>(&line) {
        Ok(batch) => batch.into_iter().map(|one| one.get().to_owned()).collect(),
        Err(_) => vec![line],
    }
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// What was asked for.
    Result(Box<RawValue>),
    /// Why not.
    Error(Box<RawValue>),
}

impl Reply {
    /// As it is sent.
    pub fn message(&self, id: &Id) -> String {
        let mut message = Members::default();
        message.set("jsonrpc", raw("2.0"));
        message.set("id", id.to_raw());
        self.put_into(&mut message);
        message.to_raw().get().to_owned()
    }

    /// The answer in a response; nothing if the message is none.
    pub fn of(message: &str) -> Option<Self> {
        match Message::read(message) {
            Message::Response { reply, .. } => Some(reply),
            Message::Request { .. }
            | Message::Notification { .. }
            | Message::Other
            | Message::Unreadable => None,
        }
    }

    /// The answer in the response to the request of this id; nothing if the message is another.
    pub fn to(message: &str, id: &Id) -> Option<Self> {
        match Message::read(message) {
            Message::Response { id: of, reply } if of == *id => Some(reply),
            Message::Response { .. }
            | Message::Request { .. }
            | Message::Notification { .. }
            | Message::Other
            | Message::Unreadable => None,
        }
    }

    /// As it is stored: without the id, which belongs to one request.
    pub fn stored(&self) -> Vec<u8> {
        let mut stored = Members::default();
        self.put_into(&mut stored);
        stored.to_raw().get().as_bytes().to_vec()
    }

    /// What [`stored`](Self::stored) wrote.
    pub fn restored(stored: &[u8]) -> Option<Self> {
        let mut stored: Members = serde_json::from_slice(stored).ok()?;
        match (stored.take("result"), stored.take("error")) {
            (_, Some(error)) => Some(Self::Error(error)),
            (Some(result), None) => Some(Self::Result(result)),
            (None, None) => None,
        }
    }

    fn put_into(&self, members: &mut Members) {
        match self {
            Self::Result(result) => members.set("result", result.clone()),
            Self::Error(error) => members.set("error", error.clone()),
        }
    }
}

/// Which request this cancels, if it is such a notification.
pub(crate) fn cancels(message: &Message<'_>) -> Option<Id> {
    let Message::Notification { method, params } = message else {
        return None;
    };
    let params = params.filter(|_| method == CANCELLED).and_then(Members::of);
    params.and_then(|params| params.get("requestId").map(Id::of))
}

/// The notification that a request is cancelled.
pub(crate) fn cancelled(id: &Id) -> String {
    let mut params = Members::default();
    params.set("requestId", id.to_raw());
    let mut message = Members::default();
    message.set("jsonrpc", raw("2.0"));
    message.set("method", raw(CANCELLED));
    message.set("params", params.to_raw());
    message.to_raw().get().to_owned()
}

/// A notification of our own, without parameters.
pub(crate) fn notification(method: &str) -> String {
    let mut message = Members::default();
    message.set("jsonrpc", raw("2.0"));
    message.set("method", raw(method));
    message.to_raw().get().to_owned()
}

/// A request of our own.
pub(crate) fn request(id: &Id, method: &str, params: &Members) -> String {
    let mut message = Members::default();
    message.set("jsonrpc", raw("2.0"));
    message.set("id", id.to_raw());
    message.set("method", raw(method));
    message.set("params", params.to_raw());
    message.to_raw().get().to_owned()
}
