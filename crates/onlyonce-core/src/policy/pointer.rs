//! Where in a JSON body a value is: RFC 6901, or the plain name of a top-level member.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The most steps of a pointer; bounds the recursion.
const STEPS_MAX: usize = 16;

/// A place in a JSON text: `/order/id` (RFC 6901), or the name of a top-level member, which must
/// not begin with a slash. Numbers address elements of an array.
///
/// ```
/// use onlyonce_core::policy::Pointer;
///
/// let pointer: Pointer = "/order/id".parse().unwrap();
/// let found = pointer.find(br#"{"order": {"id": 7}}"#).unwrap();
/// assert_eq!(found[0].get(), "7");
/// assert_eq!("id".parse::<Pointer>().unwrap().to_string(), "/id");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// One at least.
    steps: Vec<String>,
}

impl Pointer {
    /// Every value at this place: none, one, or, where member names are repeated, several. `None`
    /// for what is not JSON, and where the names on the way cannot be read: others might read them.
    pub fn find<'a>(&self, body: &'a [u8]) -> Option<Vec<&'a RawValue>> {
        let whole: &RawValue = serde_json::from_slice(body).ok()?;
        let mut found = vec![whole];
        for step in &self.steps {
            let mut below = Vec::new();
            for value in found {
                let named = children(value)?.into_iter();
                below.extend(named.filter_map(|(name, it)| (name == *step).then_some(it)));
            }
            found = below;
        }
        Some(found)
    }

    /// The JSON object in `body` with `value`, a string, in this place, before its other members; it
    /// replaces every value that was there. `None` where the place is not within objects.
    pub fn put(&self, body: &[u8], value: &str) -> Option<Vec<u8>> {
        let mut out = String::with_capacity(body.len() + value.len());
        put(
            &self.steps,
            serde_json::from_slice(body).ok()?,
            value,
            &mut out,
        )?;
        Some(out.into_bytes())
    }

    /// The name of the top-level member that it is, or is within.
    pub fn root(&self) -> &str {
        &self.steps[0]
    }

    pub(crate) fn steps(&self) -> &[String] {
        &self.steps
    }
}

/// `canonical` without what is at `places`, which may be nowhere. What is left keeps its spelling.
pub(crate) fn without(canonical: &[u8], places: &[Pointer]) -> Option<Vec<u8>> {
    let whole = serde_json::from_slice(canonical).ok()?;
    let places: Vec<&[String]> = places.iter().map(Pointer::steps).collect();
    let mut out = String::with_capacity(canonical.len());
    copy(whole, &places, &mut out)?;
    Some(out.into_bytes())
}

fn copy(value: &RawValue, places: &[&[String]], out: &mut String) -> Option<()> {
    let is_object = match value.get().as_bytes().first() {
        Some(b'{') if !places.is_empty() => true,
        Some(b'[') if !places.is_empty() => false,
        _ => {
            out.push_str(value.get());
            return Some(());
        }
    };
    let (open, close) = if is_object { ('{', '}') } else { ('[', ']') };
    out.push(open);
    let start = out.len();
    for (name, child) in children(value)? {
        let below = places.iter().filter(|steps| steps[0] == name);
        let below: Vec<&[String]> = below.map(|steps| &steps[1..]).collect();
        if below.iter().any(|steps| steps.is_empty()) {
            continue;
        }
        if out.len() > start {
            out.push(',');
        }
        if is_object {
            out.push_str(&quoted(&name));
            out.push(':');
        }
        copy(child, &below, out)?;
    }
    out.push(close);
    Some(())
}

fn put(steps: &[String], into: &RawValue, value: &str, out: &mut String) -> Option<()> {
    let (step, below) = steps.split_first()?;
    if !into.get().starts_with('{') {
        return None;
    }
    let members = children(into)?;
    out.push('{');
    out.push_str(&quoted(step));
    out.push(':');
    if below.is_empty() {
        out.push_str(&quoted(value));
    } else {
        let inner = members.iter().find(|(name, _)| name == step);
        let empty = RawValue::from_string("{}".to_owned()).ok()?;
        put(below, inner.map_or(&*empty, |(_, inner)| inner), value, out)?;
    }
    for (name, other) in members.iter().filter(|(name, _)| name != step) {
        out.push(',');
        out.push_str(&quoted(name));
        out.push(':');
        out.push_str(other.get());
    }
    out.push('}');
    Some(())
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// What is within a value, by name or number. `None` for names that are no text, such as half of a
/// surrogate pair.
fn children(value: &RawValue) -> Option<Vec<(String, &RawValue)>> {
    let Some(b'{' | b'[') = value.get().as_bytes().first() else {
        return Some(Vec::new());
    };
    let Children(children) = serde_json::from_str(value.get()).ok()?;
    Some(children)
}

/// Members and elements as they were written: repeated names all stay, numbers keep their digits.
struct Children<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Children<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Each;

        impl<'de> Visitor<'de> for Each {
            type Value = Children<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object or an array")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Children(members))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = items.next_element()? {
                    elements.push((elements.len().to_string(), element));
                }
                Ok(Children(elements))
            }
        }

        from.deserialize_any(Each)
    }
}

impl FromStr for Pointer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why| format!("`{text}` is not a place in a JSON body: {why}, like /order/id");
        if text.is_empty() {
            return Err(wrong("write a JSON Pointer"));
        }
        let Some(path) = text.strip_prefix('/') else {
            let steps = vec![text.to_owned()];
            return Ok(Self { steps });
        };
        let steps: Option<Vec<String>> = path.split('/').map(unescaped).collect();
        match steps {
            Some(steps) if steps.len() <= STEPS_MAX => Ok(Self { steps }),
            Some(_) => Err(wrong("write at most 16 steps")),
            None => Err(wrong("write ~ as ~0 and / within a name as ~1")),
        }
    }
}

/// A step as RFC 6901 writes it, read; nothing if a `~` is not followed by 0 or 1.
fn unescaped(step: &str) -> Option<String> {
    let mut parts = step.split('~');
    let mut read = parts.next()?.to_owned();
    for part in parts {
        let (meant, rest) = match part.as_bytes().first()? {
            b'0' => ('~', &part[1..]),
            b'1' => ('/', &part[1..]),
            _ => return None,
        };
        read.push(meant);
        read.push_str(rest);
    }
    Some(read)
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            write!(f, "/{}", step.replace('~', "~0").replace('/', "~1"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
