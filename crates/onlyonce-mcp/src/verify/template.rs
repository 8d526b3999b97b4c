//! Arguments with places in them, and what stands there for one call. Values are data: none can make
//! another place.

use serde_json::Value;

/// The same with values in their places; nothing if one is missing.
pub(super) fn fill(template: &Value, at: &dyn Fn(&str) -> Option<Value>) -> Option<Value> {
    Some(match template {
        Value::String(text) => fill_text(text, at)?,
        Value::Array(items) => {
            let items = items.iter().map(|item| fill(item, at));
            Value::Array(items.collect::<Option<_>>()?)
        }
        Value::Object(members) => {
            let filled = members.iter().map(|(name, value)| {
                let value = fill(value, at)?;
                Some((name.clone(), value))
            });
            Value::Object(filled.collect::<Option<_>>()?)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => template.clone(),
    })
}

/// A text that is one place alone becomes what stands there, whatever its type.
fn fill_text(text: &str, at: &dyn Fn(&str) -> Option<Value>) -> Option<Value> {
    let found = places(text);
    if let [place] = found[..]
        && text.len() == place.len() + 2
    {
        return at(place);
    }
    let (mut filled, mut rest) = (String::new(), text);
    while let Some((before, (place, after))) = next_place(rest) {
        filled.push_str(before);
        match at(place)? {
            Value::String(text) => filled.push_str(&text),
            Value::Number(number) => filled.push_str(&number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
        }
        rest = after;
    }
    filled.push_str(rest);
    Some(Value::String(filled))
}

/// The names between braces.
pub(super) fn places(mut text: &str) -> Vec<&str> {
    let mut places = Vec::new();
    while let Some((_, (place, after))) = next_place(text) {
        places.push(place);
        text = after;
    }
    places
}

/// What stands before the next place, its name, and what stands after it.
fn next_place(text: &str) -> Option<(&str, (&str, &str))> {
    let (before, rest) = text.split_once('{')?;
    Some((before, rest.split_once('}')?))
}

/// Shows every text.
pub(super) fn visit(value: &Value, see: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => see(text),
        Value::Array(items) => items.iter().for_each(|item| visit(item, see)),
        Value::Object(members) => members.values().for_each(|member| visit(member, see)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
