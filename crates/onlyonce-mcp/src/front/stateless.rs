//! Requests of the revisions without sessions: each says all that is to be known of it, in its message and
//! once more in its headers.

use http::{Response, StatusCode};

use super::budget::Whole;
use super::head::{HANDSHAKES, Head, STATELESS_SINCE, Takes};
use super::stream::Reader;
use super::table::Table;
use super::words::{
    self, Form, FrontBody, HEADER_MISMATCH, INVALID_REQUEST, METHOD_NOT_FOUND, SILENCE_MAX,
    UNSUPPORTED_VERSION,
};
use super::{answers, in_one, refused_message, refused_server};
use crate::call::ToolCall;
use crate::decide::TOOLS_CALL;
use crate::members::Members;
use crate::message::{Message, Reply};
use crate::session::Caller;

const FORM: Form = Form {
    has_ids: false,
    is_primed: false,
};
/// A client lacks something that a request needs.
const MISSING_CAPABILITY: i32 = -32021;

/// What a request asks for beside its message.
pub(super) struct Asked<'a> {
    pub(super) head: Head<'a>,
    pub(super) takes: Takes,
    pub(super) key: Option<String>,
}

pub(super) async fn answer(
    table: &Table,
    asked: Asked<'_>,
    messages: &[String],
    is_batch: bool,
    caller: Option<Caller>,
) -> Response<FrontBody> {
    let bad = |why: &str| words::refused(StatusCode::BAD_REQUEST, INVALID_REQUEST, why);
    let (false, [message]) = (is_batch, messages) else {
        return bad("this revision of the protocol has no batches");
    };
    let (id, method, params) = match Message::read(message) {
        Message::Request { id, method, params } => (id, method, params),
        // The revision has none that a client sends: a request is cancelled by closing its stream.
        Message::Notification { .. } => return words::empty(StatusCode::ACCEPTED),
        Message::Response { .. } => {
            return bad("this revision of the protocol has no responses of a client");
        }
        Message::Other => return bad("this is no message of JSON-RPC"),
        Message::Unreadable => return refused_message(super::NotTaken::Unreadable),
    };
    let mismatch =
        |why: &str| words::refused_as(StatusCode::BAD_REQUEST, HEADER_MISMATCH, why, &id);
    if let Some(why) = asked.head.mismatch(&method, params) {
        return mismatch(&why);
    }
    // It is what the message says too, by now.
    let version = asked.head.version().unwrap_or_default();
    if version < STATELESS_SINCE {
        let known = [&[STATELESS_SINCE][..], &HANDSHAKES[..]].concat();
        return words::unsupported(version, &known, &id);
    }
    let line = match table.stateless(&caller).await {
        Ok(line) => line,
        Err(no_server) => return refused_server(&no_server),
    };
    if method == TOOLS_CALL
        && let Some(params) = params
        && let Ok(Some(call)) = ToolCall::read(message, params)
    {
        // Which arguments are repeated is in the list of tools, which this asks for if need be.
        line.core().covers(&call).await;
        let repeated = line.core().headers_of(call.tool());
        if let Some(why) = asked.head.mismatched_argument(&repeated, Some(params)) {
            return mismatch(&why);
        }
    }
    let said = line.say(vec![message.clone()], asked.key, asked.takes.events);
    let reader = match said.await {
        Ok(Some(reader)) => reader,
        Ok(None) => return words::empty(StatusCode::ACCEPTED),
        Err(not_taken) => return refused_message(not_taken),
    };
    told(reader, asked.takes).await
}

/// The answer in one piece if nothing comes before it, which has a status of its own; else a stream.
async fn told(mut reader: Reader, takes: Takes) -> Response<FrontBody> {
    if !takes.events {
        let answer = in_one(answers(&mut reader).await, false);
        return words::json(status_of(&answer), answer);
    }
    let first = match tokio::time::timeout(SILENCE_MAX, reader.next()).await {
        Ok(Some((number, message))) => Some((number, Whole::from(message))),
        Ok(None) | Err(_) => None,
    };
    match first {
        Some((_, answer)) if is_last(&reader, &answer) && takes.json => {
            words::json(status_of(&answer), answer)
        }
        first => words::events(reader, first, FORM),
    }
}

fn is_last(reader: &Reader, message: &str) -> bool {
    reader.is_at_end() && Reply::of(message).is_some()
}

/// What the revision wants an error's status to be.
fn status_of(answer: &str) -> StatusCode {
    let Some(Reply::Error(error)) = Reply::of(answer) else {
        return StatusCode::OK;
    };
    let code =
        Members::of(&error).and_then(|error| crate::members::read::<i32>(error.get("code")?));
    match code {
        Some(METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        Some(HEADER_MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_VERSION) => StatusCode::BAD_REQUEST,
        Some(_) | None => StatusCode::OK,
    }
}
