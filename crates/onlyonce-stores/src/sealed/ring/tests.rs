use std::error::Error as _;

use onlyonce_core::OsEntropy;

use super::*;

const KEY: &str = "uXkWzYGHK9nCGFwtcTz6HcJpTPtdCgb4SfTc0ULuYsA=";
const OTHER: &str = "XnFwOqxiVZSDsXGBzcz8dTq9C4zZgzlL5FZOZQxjBYY";

fn refusal(text: &str) -> String {
    KeyRing::parse(text).unwrap_err().to_string()
}

#[test]
fn the_first_line_seals_and_every_line_opens() {
    let ring = KeyRing::parse(&format!("new {KEY}\nold {OTHER}")).unwrap();

    assert_eq!(ring.first().id(), "new");
    assert!(ring.get("new").is_some() && ring.get("old").is_some());
    assert!(ring.get("New").is_none());
}

#[test]
fn comments_blank_lines_and_padding_do_not_matter() {
    let text = format!("# a ring\r\n\r\n  a\t{OTHER}=  # since March\r\nb retired\n");

    let ring = KeyRing::parse(&text).unwrap();
    let same = KeyRing::parse(&format!("a {OTHER}")).unwrap();

    assert_eq!(ring.first().check(), same.first().check());
    assert_eq!(ring.retired(), ["b"]);
}

#[test]
fn what_is_wrong_with_a_line_is_said_without_repeating_the_key() {
    for (text, expected) in [
        (
            format!("\na {KEY} b"),
            "line 2 of the key ring: it should be two words",
        ),
        (
            KEY.to_owned(),
            "line 1 of the key ring: it should be two words",
        ),
        (
            format!("{KEY} a"),
            "line 1 of the key ring: the id should be",
        ),
        (format!("a {}", &KEY[4..]), "32 bytes in base64"),
        (format!("a {KEY}{KEY}"), "32 bytes in base64"),
        (
            format!("a {KEY}\na {OTHER}"),
            "line 2 of the key ring: there is a key `a` already",
        ),
        (format!("a {KEY}\na retired"), "there is a key `a` already"),
        ("a retired".to_owned(), "the key ring has no key"),
        (String::new(), "the key ring has no key"),
    ] {
        let refusal = refusal(&text);

        assert!(refusal.contains(expected), "{refusal}");
        assert!(!refusal.contains(&KEY[4..20]), "{refusal}");
    }
}

#[test]
fn a_ring_has_a_bound() {
    let text: String = (0..=KEYS_MAX).map(|n| format!("k{n} {KEY}\n")).collect();

    assert!(refusal(&text).contains("more than 64"));
}

#[test]
fn keys_are_never_shown() {
    let ring = KeyRing::parse(&format!("new {KEY}\nold {OTHER}")).unwrap();

    assert_eq!(format!("{ring:?}"), "KeyRing(new, old)");
    assert_eq!(format!("{ring:#?}"), "KeyRing(new, old)");
}

#[test]
fn new_keys_differ_and_so_do_their_names() {
    let entropy = OsEntropy::new();
    let (one, two) = (KeyRing::generate(&entropy), KeyRing::generate(&entropy));

    assert_ne!(one.first().check(), two.first().check());
    assert_ne!(one.first().id(), two.first().id());
    assert!(is_key_id(one.first().id()));
}

#[test]
fn the_text_of_a_new_ring_can_be_read_back() {
    let key = RingKey::named_by_itself(&[7; KEY_BYTES]);

    let ring = KeyRing::parse(&new_text(key.id(), &[7; KEY_BYTES])).unwrap();

    assert_eq!(ring.first().id(), key.id());
    assert_eq!(ring.first().check(), key.check());
}

#[test]
fn an_error_about_a_file_keeps_its_source() {
    let error = KeyRing::from_file("no such file").unwrap_err();

    assert_eq!(
        error.to_string(),
        "the key file no such file cannot be read"
    );
    assert!(error.source().is_some());
}
