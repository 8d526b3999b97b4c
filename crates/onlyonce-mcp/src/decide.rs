//! What a message of a client is to us: the one place that tells a call that runs once from everything
//! else, for every transport.

use serde_json::value::RawValue;

use crate::answer::unreadable;
use crate::call::{Ambiguous, CALL_ID, SentKey, ToolCall};
use crate::catalog::KEY;
use crate::keys;
use crate::message::{Id, Message, cancels};
use crate::rules::Rules;

pub(crate) const TOOLS_CALL: &str = "tools/call";
pub(crate) const TOOLS_LIST: &str = "tools/list";

/// What to do with a message of a client.
#[derive(Debug)]
pub enum Decision {
    /// Not ours: it goes on as it came.
    Pass,
    /// It asks for the list of tools, which is changed on its way back.
    List(Id),
    /// A call to look at. Without an id it is a notification, and nobody waits for its answer.
    Call {
        /// Its id.
        id: Option<Id>,
        /// What it calls.
        call: Box<ToolCall>,
    },
    /// The client gives up its request of this id.
    Cancel(Id),
    /// It cannot be read, may be such a call, and is not passed on: this is the answer.
    Refuse(String),
}

/// Decides what a message is. `header` is a key that came beside it, and counts if there is none in it.
pub fn decide(message: &str, rules: &Rules, header: Option<&str>) -> Decision {
    let judge = Judge { rules, header };
    let read = Message::read(message);
    if let Some(id) = cancels(&read) {
        return Decision::Cancel(id);
    }
    match read {
        Message::Request { id, method, params } if method == TOOLS_CALL => {
            judge.called(message, Some(id), params)
        }
        Message::Notification { method, params } if method == TOOLS_CALL => {
            judge.called(message, None, params)
        }
        Message::Request { id, method, .. } if method == TOOLS_LIST => Decision::List(id),
        // A server may read what we cannot, and would run it as often as it is sent.
        Message::Unreadable if judge.may_have_key(message) || may_be_spelled_otherwise(message) => {
            Decision::Refuse(unreadable(&Id::null()))
        }
        Message::Request { .. }
        | Message::Notification { .. }
        | Message::Response { .. }
        | Message::Other
        | Message::Unreadable => Decision::Pass,
    }
}

/// Whether a message may have names in it that are not seen in its text: in UTF-16, or escaped.
fn may_be_spelled_otherwise(message: &str) -> bool {
    message.contains('\0') || message.contains("\\u")
}

struct Judge<'a> {
    rules: &'a Rules,
    header: Option<&'a str>,
}

impl Judge<'_> {
    fn called(&self, message: &str, id: Option<Id>, params: Option<&RawValue>) -> Decision {
        let Some(params) = params else {
            return Decision::Pass;
        };
        let mut call = match ToolCall::read(message, params) {
            Err(Ambiguous) if self.may_have_key(message) => {
                return Decision::Refuse(unreadable(&id.unwrap_or_else(Id::null)));
            }
            Err(Ambiguous) | Ok(None) => return Decision::Pass,
            Ok(Some(call)) => Box::new(call),
        };
        if let (SentKey::Nothing | SentKey::Null, Some(header)) = (&call.key, self.header) {
            call.key = SentKey::Text(header.to_owned());
        }
        // What says "no key" is ours too: the server must not see it.
        let is_ours = call.key == SentKey::Null || keys::has_key(&call, self.rules);
        if is_ours {
            Decision::Call { id, call }
        } else {
            Decision::Pass
        }
    }

    /// Whether a message that cannot be read may be a call that is to be looked at.
    fn may_have_key(&self, message: &str) -> bool {
        let may_be_called = || message.contains(TOOLS_CALL);
        let mut call_ids = self.rules.call_ids.iter().map(String::as_str);
        message.contains(KEY)
            || message.contains(CALL_ID)
            || call_ids.any(|name| message.contains(name))
            || ((self.rules.derive.is_some() || self.header.is_some()) && may_be_called())
    }
}
