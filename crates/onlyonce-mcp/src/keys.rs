//! Under which key a call runs: the one that was sent, the client's own name of the call, or a guess.

use onlyonce_core::{Key, KeyRule, Reason, Refusal};

use crate::call::{SentKey, ToolCall};
use crate::rules::Rules;

/// Where a key comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrigin {
    /// The arguments, `_meta` or the header.
    Sent,
    /// The client's own name of the call: a retry has the same one, though its arguments may differ.
    CallId,
    /// What the call means, within a window.
    Derived,
}

impl KeyOrigin {
    /// What keeps keys of this origin apart from others; nothing for sent ones.
    pub fn mark(self) -> Option<&'static str> {
        match self {
            Self::Sent => None,
            Self::CallId => Some("called"),
            Self::Derived => Some("derived"),
        }
    }
}

/// Whether a call has a key under these rules.
pub fn has_key(call: &ToolCall, rules: &Rules) -> bool {
    match call.key {
        SentKey::Text(_) | SentKey::NotText => true,
        SentKey::Nothing | SentKey::Null => {
            rules.derive.is_some() || call.call_id(&rules.call_ids).is_some()
        }
    }
}

/// The key of a call as text, and where it comes from.
pub fn text(call: &ToolCall, rules: &Rules) -> Result<(String, KeyOrigin), Refusal> {
    match &call.key {
        SentKey::Text(text) => return Ok((text.clone(), KeyOrigin::Sent)),
        SentKey::NotText => return Err(bad(&"it is not text")),
        SentKey::Nothing | SentKey::Null => {}
    }
    let none = || bad(&"none can be derived");
    if let Some(id) = call.call_id(&rules.call_ids) {
        let key = call.key_of_id(&id).ok_or_else(none)?;
        return Ok((key, KeyOrigin::CallId));
    }
    let Some(derive) = &rules.derive else {
        return Err(Refusal::new(Reason::MissingKey));
    };
    let conversation = call.conversation.as_deref();
    let conversation = conversation.unwrap_or(&derive.conversation);
    let key = call.derived_key(conversation).ok_or_else(none)?;
    Ok((key, KeyOrigin::Derived))
}

/// The same under a rule for keys.
pub(crate) fn choose(
    call: &ToolCall,
    rules: &Rules,
    rule: &KeyRule,
) -> Result<(Key, KeyOrigin), Refusal> {
    let (text, origin) = text(call, rules)?;
    let key = Key::new(&text, rule).map_err(|error| bad(&error))?;
    Ok((key, origin))
}

fn bad(why: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(Reason::BadKey).because(why)
}
