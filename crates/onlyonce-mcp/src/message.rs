//! JSON-RPC messages, read no further than a proxy needs.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::members::{Members, raw};

/// A request's id. Compared as a value: `1` and ` 1` are one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id(String);

impl Id {
    pub(crate) fn of(id: &RawValue) -> Option<Self> {
        let value: Value = serde_json::from_str(id.get()).ok()?;
        Some(Self(value.to_string()))
    }

    /// An id of our own.
    pub(crate) fn ours(number: u64) -> Self {
        Self(format!("\"onlyonce-{number}\""))
    }

    fn to_raw(&self) -> Box<RawValue> {
        RawValue::from_string(self.0.clone()).expect("it was written by serde_json")
    }
}

pub(crate) enum Message<'a> {
    Request {
        id: Id,
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    Notification {
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    Response {
        id: Id,
        reply: Reply,
    },
    /// Nothing we know: it is passed on, as everything else is.
    Other,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    result: Option<Box<RawValue>>,
    error: Option<Box<RawValue>>,
}

impl<'a> Message<'a> {
    pub(crate) fn read(line: &'a str) -> Self {
        let Ok(envelope) = serde_json::from_str::<Envelope<'_>>(line) else {
            return Self::Other;
        };
        let params = envelope.params;
        match (envelope.id.and_then(Id::of), envelope.method) {
            (Some(id), Some(method)) => Self::Request { id, method, params },
            (None, Some(method)) => Self::Notification { method, params },
            (Some(id), None) => {
                let reply = match (envelope.result, envelope.error) {
                    (_, Some(error)) => Reply::Error(error),
                    (Some(result), None) => Reply::Result(result),
                    (None, None) => Reply::Result(raw(&())),
                };
                Self::Response { id, reply }
            }
            (None, None) => Self::Other,
        }
    }
}

/// What is on one line: a message, or a batch of them, which older versions of the protocol have.
/// They go on one by one, for each may be a call.
pub(crate) fn each(line: String) -> Vec<String> {
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
pub(crate) enum Reply {
    Result(Box<RawValue>),
    Error(Box<RawValue>),
}

impl Reply {
    /// As it is sent.
    pub(crate) fn message(&self, id: &Id) -> String {
        let mut message = Members::default();
        message.set("jsonrpc", raw("2.0"));
        message.set("id", id.to_raw());
        self.put_into(&mut message);
        message.to_raw().get().to_owned()
    }

    /// As it is stored: without the id, which belongs to one request.
    pub(crate) fn stored(&self) -> Vec<u8> {
        let mut stored = Members::default();
        self.put_into(&mut stored);
        stored.to_raw().get().as_bytes().to_vec()
    }

    /// What [`stored`](Self::stored) wrote.
    pub(crate) fn restored(stored: &[u8]) -> Option<Self> {
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

/// A request of our own.
pub(crate) fn request(id: &Id, method: &str, params: &Members) -> String {
    let mut message = Members::default();
    message.set("jsonrpc", raw("2.0"));
    message.set("id", id.to_raw());
    message.set("method", raw(method));
    message.set("params", params.to_raw());
    message.to_raw().get().to_owned()
}
