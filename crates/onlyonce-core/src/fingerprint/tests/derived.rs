//! Derived keys: what a form is called by when its sender has no key.

use crate::fingerprint::{derive_key, json};

#[test]
fn a_derived_key_is_the_same_whatever_the_order_and_whitespace() {
    let key = derive_key("checkout", br#"{"to":"bob","amount":5}"#, false).unwrap();

    let reordered = derive_key(
        "checkout",
        b"{ \"amount\": 5,\n\"t\\u006f\": \"bob\" }",
        false,
    );

    assert_eq!(Some(&key), reordered.as_ref());
    assert!(key.len() == 64 && key.bytes().all(|byte| b"0123456789abcdef".contains(&byte)));
}

#[test]
fn a_derived_key_depends_on_context_and_form() {
    let key = |context, form: &str| derive_key(context, form.as_bytes(), false).unwrap();

    assert_ne!(key("checkout", "[1]"), key("refund", "[1]"));
    assert_ne!(key("checkout", "[1]"), key("checkout", "[2]"));
    assert_ne!(key("a1", "2"), key("a", "12"));
}

#[test]
fn a_derived_key_trims_values_only_if_asked() {
    let padded = "{\"name\":[\"\\t Ada \\u00a0\u{2003}\\n\"]}".as_bytes();
    let bare = br#"{"name":["Ada"]}"#;

    assert_ne!(derive_key("c", padded, false), derive_key("c", bare, false));
    assert_eq!(derive_key("c", padded, true), derive_key("c", bare, true));
}

#[test]
fn trimming_leaves_member_names_and_inner_whitespace_alone() {
    let trimmed = |text: &str| {
        let canonical = json::canonicalise(text.as_bytes(), true);
        canonical.unwrap().into_owned()
    };

    assert_eq!(
        trimmed(r#"{" b ":" x  y ","a":" "}"#),
        br#"{" b ":"x  y","a":""}"#
    );
    assert_eq!(trimmed(r#"[" \"\\ \u0001\u000b"]"#), br#"["\"\\ \u0001"]"#);
}

#[test]
fn no_key_is_derived_from_what_is_not_json() {
    assert_eq!(derive_key("c", b"a=1", false), None);
    assert_eq!(derive_key("c", b"", true), None);
}
