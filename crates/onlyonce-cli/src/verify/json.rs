//! JSON by its letters: what a body means, without losing how it was written. Numbers keep their
//! digits and members their order.

use std::collections::BTreeMap;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// An object's members in their order, values as they were written.
pub(crate) struct Members(pub(crate) Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}

impl Members {
    /// The members of an object; nothing if `text` is anything else.
    pub(crate) fn of(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().rfind(|(member, _)| member == name);
        found.map(|(_, value)| value.get())
    }

    /// Every member but those called `names`.
    pub(crate) fn without(self, names: &[&str]) -> BTreeMap<String, String> {
        self.0
            .into_iter()
            .filter(|(name, _)| !names.contains(&name.as_str()))
            .map(|(name, value)| (name, value.get().to_owned()))
            .collect()
    }
}

/// The same object with its members the other way round and more white space.
pub(crate) fn respelled(text: &[u8]) -> Option<String> {
    let Members(members) = Members::of(text)?;
    let written = members.iter().rev().map(|(name, value)| {
        let value = respelled(value.get().as_bytes()).unwrap_or_else(|| value.get().to_owned());
        format!("{} :\t{value}", quoted(name))
    });
    let written: Vec<_> = written.collect();
    Some(format!("{{ {}\n}}", written.join(" ,\n  ")))
}

/// The same object with one value changed within its type, or else with one member more.
pub(crate) fn altered(text: &[u8], keep: &[String]) -> Option<String> {
    let Members(members) = Members::of(text)?;
    let mut members: Vec<_> = members
        .into_iter()
        .map(|(name, value)| (name, value.get().to_owned()))
        .collect();
    // A number takes another value more readily than a name, which may be one of a few.
    let kinds: [fn(&str) -> Option<String>; 3] = [other_number, other_text, other_truth];
    for kind in kinds {
        for (name, value) in &mut members {
            if keep.contains(name) {
                continue;
            }
            if let Some(other) = kind(value) {
                *value = other;
                return Some(write(&members));
            }
        }
    }
    members.push(("onlyonceVerify".into(), "true".into()));
    Some(write(&members))
}

/// The same object with another value of its member `name`.
pub(crate) fn altered_in(text: &[u8], name: &str) -> Option<String> {
    let Members(members) = Members::of(text)?;
    let mut members: Vec<_> = members
        .into_iter()
        .map(|(name, value)| (name, value.get().to_owned()))
        .collect();
    let (_, value) = members.iter_mut().rfind(|(member, _)| member == name)?;
    *value = altered(value.as_bytes(), &[]).unwrap_or_else(|| format!("[{value}]"));
    Some(write(&members))
}

fn other_number(value: &str) -> Option<String> {
    if let Ok(whole) = value.parse::<i64>() {
        return Some(whole.checked_add(1).unwrap_or(0).to_string());
    }
    let number = value.parse::<f64>().ok()?;
    value
        .starts_with(|c: char| c == '-' || c.is_ascii_digit())
        .then(|| if number == 1.5 { "2.5" } else { "1.5" }.into())
}

fn other_text(value: &str) -> Option<String> {
    let text: String = serde_json::from_str(value).ok()?;
    Some(quoted(&format!("{text} 2")))
}

fn other_truth(value: &str) -> Option<String> {
    let truth: bool = serde_json::from_str(value).ok()?;
    Some((!truth).to_string())
}

fn write(members: &[(String, String)]) -> String {
    let written: Vec<_> = members
        .iter()
        .map(|(name, value)| format!("{}:{value}", quoted(name)))
        .collect();
    format!("{{{}}}", written.join(","))
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
