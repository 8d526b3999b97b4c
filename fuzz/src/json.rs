//! Canonical JSON: what serde_json reads is taken, keeps its value, and has one spelling.

use onlyonce_core::fingerprint::{canonical_json, derive_key};
use serde_json::Value;

/// The bytes are a JSON text, or nearly one.
pub fn json(data: &[u8]) {
    let read = serde_json::from_slice::<Value>(data);
    let Some(canonical) = canonical_json(data) else {
        // Ours takes more: numbers beyond a double, 128 levels. It never takes less.
        assert!(read.is_err(), "refused what serde_json takes");
        assert_eq!(derive_key("c", data, false), None);
        return;
    };
    assert!(canonical.len() <= data.len());
    assert_eq!(canonical_json(&canonical).as_ref(), Some(&canonical));
    assert_eq!(
        derive_key("c", data, false),
        derive_key("c", &canonical, false)
    );
    assert_ne!(derive_key("c", data, false), derive_key("d", data, false));
    assert_eq!(
        derive_key("c", data, true),
        derive_key("c", &canonical, true)
    );

    let padded = [b" \n", data, b"\t\r"].concat();
    assert_eq!(canonical_json(&padded).as_ref(), Some(&canonical));
    assert_eq!(canonical_json(&[data, b","].concat()), None);
    if let Ok(value) = read {
        let again = serde_json::from_slice::<Value>(&canonical).expect("canonical JSON is JSON");
        assert_eq!(again, value);
        respelt(&value);
    }
}

/// Order and white space do not count.
fn respelt(value: &Value) {
    let compact = canonical_json(value.to_string().as_bytes());
    let pretty = canonical_json(format!("{value:#}").as_bytes());
    assert!(compact.is_some());
    assert_eq!(compact, pretty);
    let mut turned = String::new();
    turn(value, &mut turned);
    assert_eq!(canonical_json(turned.as_bytes()), compact);
}

/// Writes a value with the members of its objects from last to first.
fn turn(value: &Value, text: &mut String) {
    match value {
        Value::Object(members) => {
            text.push('{');
            for (index, (name, value)) in members.iter().rev().enumerate() {
                text.push_str(if index > 0 { " , " } else { "" });
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push_str(" : ");
                turn(value, text);
            }
            text.push('}');
        }
        Value::Array(values) => {
            text.push('[');
            for (index, value) in values.iter().enumerate() {
                text.push_str(if index > 0 { ", " } else { "" });
                turn(value, text);
            }
            text.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            text.push_str(&value.to_string());
        }
    }
}
