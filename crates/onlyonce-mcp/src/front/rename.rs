//! Ids and progress tokens are the client's to choose, and two clients may choose the same: on the way to a
//! server that several requests share they get names of ours, and their own on the way back.

use serde_json::value::RawValue;

use crate::members::{Members, raw};
use crate::message::{Id, Reply};

const TOKEN: &str = "progressToken";
/// The request that a notification of a subscription belongs to (2026-07-28).
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// A request under another name.
pub(super) struct Renamed {
    pub(super) line: String,
    /// The client's progress token, if it wants to hear of progress.
    pub(super) token: Option<Box<RawValue>>,
}

/// A client's request with an id of ours, which is its progress token too; nothing if it cannot be read.
pub(super) fn request(line: &str, ours: &Id) -> Option<Renamed> {
    let mut message = Members::parse(line)?.without_repeated();
    message.set("id", ours.to_raw());
    let mut token = None;
    if let Some(params) = message.object("params") {
        let mut params = params.without_repeated();
        if let Some(meta) = params.object("_meta") {
            let mut meta = meta.without_repeated();
            token = meta.get(TOKEN).map(ToOwned::to_owned);
            if token.is_some() {
                meta.set(TOKEN, ours.to_raw());
                params.set("_meta", meta.to_raw());
                message.set("params", params.to_raw());
            }
        }
    }
    let line = message.to_raw().get().to_owned();
    Some(Renamed { line, token })
}

/// The same notification of a cancellation for a request under our name.
pub(super) fn cancellation(line: &str, ours: &Id) -> Option<String> {
    with_params(line, |params| params.set("requestId", ours.to_raw()))
}

/// A server's answer under the client's own id.
pub(super) fn response(line: &str, reply: &Reply, theirs: &Id) -> String {
    let Some(mut message) = Members::parse(line).map(Members::without_repeated) else {
        return reply.message(theirs);
    };
    message.set("id", theirs.to_raw());
    if line.contains(SUBSCRIPTION)
        && let Some(mut result) = message.object("result")
        && let Some(mut meta) = result.object("_meta")
    {
        meta.set(SUBSCRIPTION, theirs.to_raw());
        result.set("_meta", meta.to_raw());
        message.set("result", result.to_raw());
    }
    message.to_raw().get().to_owned()
}

/// What a notification of a server names: a progress token, or a subscription.
pub(super) fn named(params: &RawValue) -> Option<Id> {
    let params = Members::of(params)?;
    if let Some(token) = params.get(TOKEN) {
        return Some(Id::of(token));
    }
    params.object("_meta")?.get(SUBSCRIPTION).map(Id::of)
}

/// A server's notification with the client's own names.
pub(super) fn notification(line: &str, token: Option<&RawValue>, theirs: &Id) -> Option<String> {
    with_params(line, |params| {
        if params.get(TOKEN).is_some() {
            let token = token.map_or_else(|| theirs.to_raw(), ToOwned::to_owned);
            params.set(TOKEN, token);
        } else if let Some(mut meta) = params.object("_meta") {
            meta.set(SUBSCRIPTION, theirs.to_raw());
            params.set("_meta", meta.to_raw());
        }
    })
}

/// The answer to a request of a server that no client can take.
pub(super) fn no_client(id: &Id) -> String {
    let why = "onlyonce: a client of this revision of the protocol takes no requests";
    let error = raw(&serde_json::json!({"code": -32601, "message": why}));
    Reply::Error(error).message(id)
}

fn with_params(line: &str, change: impl FnOnce(&mut Members)) -> Option<String> {
    let mut message = Members::parse(line)?.without_repeated();
    let mut params = message.object("params")?.without_repeated();
    change(&mut params);
    message.set("params", params.to_raw());
    Some(message.to_raw().get().to_owned())
}
