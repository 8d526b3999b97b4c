//! One request, its handler and its response, as JavaScript sees them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use napi::bindgen_prelude::*;
use napi_derive::napi;

use crate::engine::latin1;
use crate::errors::told;
use crate::execution::Execution;
use crate::signal::Signal;

/// One covered request.
#[napi]
pub struct Exchange {
    inner: Mutex<onlyonce_bridge::Exchange>,
    waker: Waker,
}

/// What to do next, by its `kind`: `read`, `handle`, `head`, `data`, `end`, `broken`, `lost`.
#[napi(object, object_from_js = false)]
#[derive(Default)]
pub struct Step {
    /// Which step it is.
    pub kind: &'static str,
    /// Of `head`.
    pub status: Option<u16>,
    /// Of `head` and `handle`: names and values by turns.
    pub headers: Option<Vec<String>>,
    /// Of `data` and `handle`.
    pub data: Option<Buffer>,
    /// Of `handle`, where there is a key.
    pub execution: Option<Execution>,
    /// Of `handle`.
    pub reply: Option<Reply>,
    /// Of `lost`.
    pub why: Option<String>,
}

impl Step {
    fn of(kind: &'static str) -> Self {
        Self {
            kind,
            ..Self::default()
        }
    }
}

impl Exchange {
    pub(crate) fn new(inner: onlyonce_bridge::Exchange, waker: Waker) -> Self {
        Self {
            inner: Mutex::new(inner),
            waker,
        }
    }

    fn lock(&self) -> MutexGuard<'_, onlyonce_bridge::Exchange> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[napi]
impl Exchange {
    /// The next step; nothing until the number is signalled.
    #[napi]
    pub fn poll(&self) -> Option<Step> {
        match self.lock().poll(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(step) => Some(described(step)),
            Poll::Pending => None,
        }
    }

    /// Adds to the request's body.
    #[napi]
    pub fn feed(&self, data: Uint8Array, more: bool) {
        self.lock().feed(Bytes::copy_from_slice(&data), more);
    }

    /// Says that the client went away before its request was complete.
    #[napi]
    pub fn hang_up(&self) {
        self.lock().hang_up();
    }

    /// Leaves it: a handler that has started goes on.
    #[napi]
    pub fn leave(&self) {
        self.lock().leave();
    }
}

fn described(step: onlyonce_bridge::Step) -> Step {
    match step {
        onlyonce_bridge::Step::Read => Step::of("read"),
        onlyonce_bridge::Step::Handle(handover) => {
            let handover = *handover;
            Step {
                headers: Some(list(&handover.parts.headers)),
                data: Some(handover.body.to_vec().into()),
                execution: handover.execution.map(Execution),
                reply: Some(Reply(Mutex::new(handover.reply))),
                ..Step::of("handle")
            }
        }
        onlyonce_bridge::Step::Head(status, headers) => Step {
            status: Some(status.as_u16()),
            headers: Some(list(&headers)),
            ..Step::of("head")
        },
        onlyonce_bridge::Step::Data(data) => Step {
            data: Some(data.to_vec().into()),
            ..Step::of("data")
        },
        onlyonce_bridge::Step::End => Step::of("end"),
        onlyonce_bridge::Step::Broken => Step::of("broken"),
        onlyonce_bridge::Step::Lost(lost) => Step {
            why: Some(lost.to_string()),
            ..Step::of("lost")
        },
    }
}

fn list(headers: &HeaderMap) -> Vec<String> {
    let pairs = headers.iter();
    pairs
        .flat_map(|(name, value)| {
            let value = value.as_bytes().iter().map(|byte| char::from(*byte));
            [name.as_str().to_owned(), value.collect()]
        })
        .collect()
}

/// Takes the handler's answer.
#[napi]
pub struct Reply(Mutex<onlyonce_bridge::Reply>);

#[napi]
impl Reply {
    fn lock(&self) -> MutexGuard<'_, onlyonce_bridge::Reply> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers with a head; the body goes to the writer.
    #[napi]
    pub fn start(&self, status: u16, headers: Vec<String>) -> Result<Writer> {
        let head = || {
            let mut map = HeaderMap::with_capacity(headers.len() / 2);
            for pair in headers.chunks_exact(2) {
                let name = HeaderName::from_bytes(pair[0].as_bytes())?;
                map.append(name, HeaderValue::from_bytes(&latin1(&pair[1]))?);
            }
            Ok((StatusCode::from_u16(status)?, map))
        };
        let (status, headers) = head().map_err(|error: http::Error| told("response", error))?;
        Ok(Writer(self.lock().start(status, headers)))
    }

    /// Says that the handler threw before it answered.
    #[napi]
    pub fn raised(&self) {
        self.lock().raised();
    }

    /// Signals the number when the handler is past its deadline.
    #[napi]
    pub fn when_abandoned(&self, signal: &Signal, number: u32) {
        self.lock().when_abandoned(signal.waker(number));
    }
}

/// The handler's body.
#[napi]
pub struct Writer(onlyonce_bridge::Writer);

#[napi]
impl Writer {
    /// Adds to it.
    #[napi]
    pub fn send(&self, data: Uint8Array) {
        self.0.send(Bytes::copy_from_slice(&data));
    }

    /// Ends it.
    #[napi]
    pub fn end(&self) {
        self.0.end();
    }

    /// Breaks it off.
    #[napi]
    pub fn break_off(&self) {
        self.0.break_off();
    }

    /// Whether more may be sent; if not, the number is signalled when it may.
    #[napi]
    pub fn is_ready(&self, signal: &Signal, number: u32) -> bool {
        let waker = signal.waker(number);
        self.0
            .poll_ready(&mut Context::from_waker(&waker))
            .is_ready()
    }
}
