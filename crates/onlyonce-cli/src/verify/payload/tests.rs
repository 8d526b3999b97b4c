//! What the variations of a body keep and what they change.

use http::HeaderValue;
use serde_json::Value;

use super::Payload;

fn json(text: &'static str) -> Payload {
    Payload::new(text, None)
}

fn value(payload: &Payload) -> Value {
    serde_json::from_slice(&payload.bytes).unwrap()
}

#[test]
fn another_spelling_means_the_same_in_other_bytes() {
    let written = json(r#"{"a":{"x":1,"y":"\u00e9"},"b":[1,2],"c":9007199254740993}"#);

    let respelled = written.respelled().unwrap();

    assert_ne!(respelled.bytes, written.bytes);
    assert_eq!(value(&respelled), value(&written));
    let text = std::str::from_utf8(&respelled.bytes).unwrap();
    assert!(text.find("\"c\"") < text.find("\"a\""));
    assert!(text.find("\"y\"") < text.find("\"x\""));
}

#[test]
fn what_is_no_json_object_has_no_other_spelling() {
    for payload in [json("[1,2]"), json("7"), json("a=1"), Payload::empty()] {
        assert!(payload.respelled().is_none());
    }
    let form = Some(HeaderValue::from_static("text/plain"));
    assert!(Payload::new("{\"a\":1}", form).respelled().is_none());
}

#[test]
fn another_payload_changes_one_value_within_its_type() {
    for (written, other) in [
        (r#"{"to":"bob","amount":5}"#, r#"{"to":"bob","amount":6}"#),
        (r#"{"to":"bob","ok":true}"#, r#"{"to":"bob 2","ok":true}"#),
        (r#"{"ok":true}"#, r#"{"ok":false}"#),
        (r#"{"price":9.99}"#, r#"{"price":1.5}"#),
        (r#"{"list":[]}"#, r#"{"list":[],"onlyonceVerify":true}"#),
        ("[1]", "[[1]]"),
    ] {
        assert_eq!(json(written).altered(&[]).bytes, other);
    }
}

#[test]
fn another_payload_keeps_the_members_that_address_a_record() {
    let written = json(r#"{"contextId":7,"note":"n"}"#);

    let other = written.altered(&["contextId".into()]);

    assert_eq!(other.bytes, r#"{"contextId":7,"note":"n 2"}"#);
}

#[test]
fn another_payload_of_a_form_is_a_form_and_of_anything_else_other_bytes() {
    let form = HeaderValue::from_static("application/x-www-form-urlencoded; charset=utf-8");

    assert_eq!(
        Payload::new("a=1", Some(form)).altered(&[]).bytes,
        "a=1&onlyonce=verify"
    );
    assert_eq!(
        Payload::new(&b"\xff"[..], None).altered(&[]).bytes,
        &b"\xffx"[..]
    );
    assert_eq!(Payload::empty().altered(&[]).bytes, "x");
}

#[test]
fn a_named_member_can_be_changed() {
    let written = json(r#"{"contextId":"s","formData":{"amount":1}}"#);

    let other = written.altered_in("formData").unwrap();

    assert_eq!(other.bytes, r#"{"contextId":"s","formData":{"amount":2}}"#);
    assert!(written.altered_in("absent").is_none());
}

#[test]
fn the_type_is_json_or_bytes_unless_given() {
    let given = |payload: &Payload| payload.content_type.clone();

    assert_eq!(given(&json("{}")).unwrap(), "application/json");
    assert_eq!(given(&json("a=1")).unwrap(), "application/octet-stream");
    assert_eq!(given(&Payload::empty()), None);
}

#[test]
fn binary_payloads_differ_only_where_text_would_lose_it() {
    let (one, other) = (Payload::binary().bytes, Payload::other_binary().bytes);

    assert_eq!(one.len(), 256);
    assert_ne!(one, other);
    assert_eq!(
        String::from_utf8_lossy(&one),
        String::from_utf8_lossy(&other)
    );
}

#[test]
fn padding_keeps_json_what_it_is() {
    let padded = json(r#"{"a":1}"#).padded(4096);

    assert_eq!(padded.bytes.len(), 4096);
    assert_eq!(value(&padded), serde_json::json!({"a": 1}));
}
