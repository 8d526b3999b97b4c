//! What is a key and what is not, in every spelling and under every rule; what a key shows of
//! itself; and the test vectors of RFC 9651 for the quoted form.

mod vectors;

use super::*;

const UUID: &str = "5f2b0c1e-7a64-4d1c-9d7e-3b8a2f6c4e10";

fn rule(charset: Charset) -> KeyRule {
    KeyRule {
        charset,
        ..KeyRule::default()
    }
}

fn parse(raw: impl AsRef<[u8]>, charset: Charset) -> Result<String, KeyError> {
    let key = Key::parse(raw.as_ref(), &rule(charset))?;
    Ok(key.expose().to_owned())
}

fn bad_character(at: usize) -> impl Fn(&KeyError) -> bool {
    move |error| matches!(error, KeyError::BadCharacter { at: found, .. } if *found == at)
}

#[test]
fn a_bad_key_is_refused_under_every_rule() {
    let long = "k".repeat(300);
    let quoted_long = format!("\"{long}\"");
    let too_long = KeyError::TooLong {
        bytes: 300,
        bytes_max: 255,
    };
    let table: [(&[u8], KeyError); 19] = [
        (b"", KeyError::Empty),
        (b" ", KeyError::Empty),
        (b" \t ", KeyError::Empty),
        (b"\"\"", KeyError::Empty),
        (b"\"   \"", KeyError::Empty),
        (b" \"\" ", KeyError::Empty),
        (long.as_bytes(), too_long.clone()),
        (quoted_long.as_bytes(), too_long),
        (b"\"", KeyError::BadQuoting),
        (b"\"abc", KeyError::BadQuoting),
        (b"\"abc\\\"", KeyError::BadQuoting),
        (b"\"a\"b\"", KeyError::BadQuoting),
        (b"\"abc\"def", KeyError::BadQuoting),
        (b"\"abc\", \"def\"", KeyError::BadQuoting),
        (b"\"a\\bc\"", KeyError::BadQuoting),
        (b"\"a\tc\"", KeyError::BadQuoting),
        (b"\"a\xc3\xa4\"", KeyError::BadQuoting),
        (b"\"abc\";", KeyError::BadQuoting),
        (b"a\xff\xfe", KeyError::NotText),
    ];

    for charset in [
        Charset::UrlSafe,
        Charset::Visible,
        Charset::Text,
        Charset::UuidV4,
    ] {
        for (raw, error) in &table {
            let shown = String::from_utf8_lossy(raw);
            assert_eq!(
                parse(raw, charset).as_ref(),
                Err(error),
                "{charset:?} {shown:?}"
            );
        }
    }
}

#[test]
fn blank_text_of_any_script_is_empty() {
    for blank in ["", " ", "\t", "\n", "\u{a0}", "\u{3000}", " \u{2003} "] {
        assert_eq!(Key::new(blank, &rule(Charset::Text)), Err(KeyError::Empty));
    }
}

#[test]
fn a_key_of_the_greatest_length_is_taken_and_one_byte_more_is_not() {
    let rule = KeyRule {
        bytes_max: 8,
        charset: Charset::Text,
        random: false,
    };

    assert!(Key::new("12345678", &rule).is_ok());
    assert!(Key::parse(b"\"12345678\"", &rule).is_ok());
    assert!(Key::parse(b"  12345678  ", &rule).is_ok());
    for (text, bytes) in [
        ("123456789", 9),
        ("1234567\u{e4}", 9),
        ("\u{1f980}\u{1f980}\u{1f980}", 12),
    ] {
        let bytes_max = 8;
        let error = KeyError::TooLong { bytes, bytes_max };
        assert_eq!(Key::new(text, &rule), Err(error));
    }
}

#[test]
fn a_control_byte_is_refused_under_every_rule() {
    for byte in (0..0x20).chain([0x7f]) {
        let raw = [b'a', byte, b'b'];

        for charset in [Charset::UrlSafe, Charset::Visible, Charset::Text] {
            let error = parse(raw, charset).unwrap_err();
            assert!(bad_character(2)(&error), "{byte:#x} {charset:?}: {error}");
        }
        assert_eq!(parse(raw, Charset::UuidV4), Err(KeyError::NotUuidV4));
    }
    assert!(bad_character(2)(
        &parse("a\u{85}b", Charset::Text).unwrap_err()
    ));
}

#[test]
fn every_byte_of_ascii_is_judged_by_the_charset() {
    for byte in 0x21..0x7f_u8 {
        let raw = [b'k', byte];
        let is_url_safe = byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);

        assert!(parse(raw, Charset::Text).is_ok(), "{byte:#x}");
        assert!(parse(raw, Charset::Visible).is_ok(), "{byte:#x}");
        assert_eq!(
            parse(raw, Charset::UrlSafe).is_ok(),
            is_url_safe,
            "{byte:#x}"
        );
    }
}

#[test]
fn what_is_beyond_visible_ascii_needs_the_charset_of_text() {
    for text in ["gr\u{fc}n", "clé", "鍵", "🔑 ", "two words"] {
        let text = text.trim();
        let at = text.chars().position(|c| !c.is_ascii_graphic()).unwrap() + 1;

        for charset in [Charset::UrlSafe, Charset::Visible] {
            let error = Key::new(text, &rule(charset)).unwrap_err();
            assert!(bad_character(at)(&error), "{text} {charset:?}: {error}");
        }
        assert_eq!(parse(text, Charset::Text).as_deref(), Ok(text));
    }
}

#[test]
fn a_position_counts_characters_from_one() {
    let error = parse("鍵鍵\u{1}", Charset::Text).unwrap_err();

    assert!(bad_character(3)(&error), "{error}");
}

#[test]
fn the_separator_of_many_scopes_is_no_url_safe_character() {
    assert!(bad_character(2)(
        &parse("a:b", Charset::UrlSafe).unwrap_err()
    ));
    assert_eq!(parse("a:b", Charset::Visible).as_deref(), Ok("a:b"));
}

#[test]
fn only_a_uuid_of_version_4_is_one() {
    let good = [
        UUID,
        "550e8400-e29b-41d4-a716-446655440000",
        "550E8400-E29B-41D4-A716-446655440000",
        "550e8400-e29b-41d4-8716-446655440000",
        "550e8400-e29b-41d4-9716-446655440000",
        "550e8400-e29b-41d4-B716-446655440000",
    ];
    let bad = [
        "550e8400-e29b-11d4-a716-446655440000",
        "550e8400-e29b-71d4-a716-446655440000",
        "550e8400-e29b-41d4-7716-446655440000",
        "550e8400-e29b-41d4-c716-446655440000",
        "550e8400e29b41d4a716446655440000",
        "{550e8400-e29b-41d4-a716-446655440000}",
        "urn:uuid:550e8400-e29b-41d4-a716-446655440000",
        "550e8400-e29b-41d4-a716-44665544000",
        "550e8400-e29b-41d4-a716-4466554400000",
        "550e8400-e29b-41d4-a716-44665544000g",
        "550e8400_e29b_41d4_a716_446655440000",
        "550e8400-e29b-41d4-a716-4466554400\u{e4}",
        "00000000-0000-0000-0000-000000000000",
        "abc",
    ];

    for text in good {
        assert_eq!(parse(text, Charset::UuidV4).as_deref(), Ok(text));
        let quoted = format!("\"{text}\"");
        assert_eq!(parse(quoted, Charset::UuidV4).as_deref(), Ok(text));
    }
    for text in bad {
        assert_eq!(
            parse(text, Charset::UuidV4),
            Err(KeyError::NotUuidV4),
            "{text}"
        );
    }
}

#[test]
fn a_quoted_key_and_a_bare_key_are_one_key() {
    let spellings: [&[u8]; 7] = [
        b"abc-123",
        b"\"abc-123\"",
        b"  abc-123 ",
        b" \"abc-123\" ",
        b"\tabc-123\t",
        b"\"abc-123\";v=1",
        b"\"abc-123\"; note=\"x\"; flag",
    ];
    let keys = spellings.map(|raw| Key::parse(raw, &KeyRule::default()).unwrap());

    for key in &keys {
        assert_eq!(*key, keys[0]);
        assert_eq!(key.expose(), "abc-123");
    }
}

#[test]
fn an_escaped_quote_in_a_quoted_key_is_a_quote_in_a_bare_one() {
    let quoted = parse(br#""a\"b\\c""#, Charset::Visible);

    assert_eq!(quoted.as_deref(), Ok(r#"a"b\c"#));
    assert_eq!(quoted, parse(br#"a"b\c"#, Charset::Visible));
}

/// Only a string may be quoted: what other structured fields look like is a bare key.
#[test]
fn a_structured_field_of_another_type_is_a_bare_key_or_none() {
    for bare in ["42", "?1", ":YWJj:", "token", "@1659578233", "(a)"] {
        assert_eq!(parse(bare, Charset::Visible).as_deref(), Ok(bare));
    }
    for quoted in ["%\"abc\"", "'abc'"] {
        assert_eq!(parse(quoted, Charset::Visible).as_deref(), Ok(quoted));
        assert!(parse(quoted, Charset::UrlSafe).is_err());
    }
}

#[test]
fn plain_text_is_not_unquoted() {
    let key = Key::new("\"abc\"", &KeyRule::default()).unwrap();

    assert_eq!(key.expose(), "\"abc\"");
}

#[test]
fn keys_are_case_sensitive() {
    let [lower, upper] = ["abc", "ABC"].map(|it| Key::new(it, &KeyRule::default()).unwrap());

    assert_ne!(lower, upper);
}

#[test]
fn equal_keys_hash_alike() {
    use std::collections::BTreeSet;
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let keys = ["abc", "\"abc\"", "abd"].map(|it| {
        let key = Key::parse(it.as_bytes(), &KeyRule::default()).unwrap();
        hasher.hash_one(key)
    });

    assert_eq!(keys[0], keys[1]);
    assert_eq!(BTreeSet::from(keys).len(), 2);
}

#[test]
fn what_is_printed_of_a_key_is_not_the_key() {
    for text in [
        "abc",
        "order-1",
        UUID,
        "sk_live_0123456789abcdef",
        "鍵鍵鍵鍵鍵鍵鍵鍵鍵鍵",
    ] {
        let key = Key::new(text, &rule(Charset::Text)).unwrap();
        let shown = format!("{key:?} {:#?} {} {:?}", key, key.hint(), key.hint());

        assert!(!shown.contains(text), "{shown}");
        let shown_chars = if text.chars().count() < 28 { 4 } else { 8 };
        let beyond_the_hint: String = text.chars().skip(shown_chars).take(4).collect();
        assert!(
            beyond_the_hint.is_empty() || !shown.contains(&beyond_the_hint),
            "{shown}"
        );
    }
}

#[test]
fn an_error_about_a_key_does_not_show_it() {
    let secret = "secret\u{1}secret";

    for charset in [
        Charset::UrlSafe,
        Charset::Visible,
        Charset::Text,
        Charset::UuidV4,
    ] {
        let error = parse(secret, charset).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("secret"));
    }
    let error = parse("\"secret", Charset::Text).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("secret"));
}

#[test]
fn an_error_about_a_key_says_what_would_be_right() {
    let shown = |raw: &str, charset| parse(raw, charset).unwrap_err().to_string();

    assert_eq!(shown("", Charset::Visible), "the key is empty");
    assert!(shown("a b", Charset::Visible).contains("position 2"));
    assert!(shown("a b", Charset::Visible).contains("without spaces"));
    assert!(shown("a:b", Charset::UrlSafe).contains("letters, digits"));
    assert!(shown("\"a", Charset::Visible).contains("close the quote"));
    assert!(shown("a", Charset::UuidV4).contains("version 4"));
    let long = shown(&"k".repeat(256), Charset::Visible);
    assert!(long.contains("256") && long.contains("255"));
    assert!(
        KeyError::Several { lines: 2 }
            .to_string()
            .contains("2 times")
    );
}

#[test]
fn a_hint_is_the_start_of_a_long_key_and_nothing_of_a_short_one() {
    let hint = |text: &str| {
        Key::new(text, &rule(Charset::Text))
            .unwrap()
            .hint()
            .to_string()
    };

    assert_eq!(hint(UUID), "5f2b0c1e");
    assert_eq!(hint("1234567890123456789012345678"), "12345678");
    assert_eq!(hint("123456789012345678901234567"), "1234");
    assert_eq!(hint("12345 78901234567890123456789"), "1234");
    assert_eq!(hint("12345678901234567890"), "1234");
    assert_eq!(hint("1234567890123456789"), "");
    assert_eq!(hint("a"), "");
    assert_eq!(hint("鍵鍵鍵鍵鍵鍵鍵鍵鍵鍵鍵鍵"), "");
    assert_eq!(hint("a b and more words follow"), "");
    assert_eq!(Hint::default().to_string(), "");
}

#[test]
fn a_record_keeps_four_characters_of_the_eight_that_are_told() {
    let told = Key::new(UUID, &rule(Charset::Text)).unwrap().hint();

    let kept = Hint::from_bytes(told.to_bytes());

    assert_eq!(
        (told.to_string(), kept.to_string()),
        ("5f2b0c1e".into(), "5f2b".into())
    );
    assert_eq!(told, kept, "whoever looks for the one finds the other");
    assert_eq!((told.to_text().len(), told.to_text()), (16, kept.to_text()));
}

#[test]
fn random_keys_do_not_look_weak() {
    for text in [
        UUID,
        "550e8400-e29b-41d4-a716-446655440000",
        "550E8400-E29B-41D4-A716-446655440000",
        "idem_5f2b0c1e-7a64-4d1c-9d7e-3b8a2f6c4e10",
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "01BX5ZZKBKACTAV9WEVGEMMVRZ",
        "V1StGXR8_Z5jdHi6B-myT2xQ",
        "9f86d081884c7d659a2feaa0c55ad015",
    ] {
        let key = Key::new(text, &KeyRule::default()).unwrap();
        assert!(!key.looks_weak(), "{text}");
    }
}

#[test]
fn counters_names_and_dates_look_weak() {
    for text in [
        "1",
        "42",
        "order-1",
        "order-00000000000000000001",
        "order-123456789",
        "00000000000000000000000000000001",
        "alice",
        "payment-for-alice",
        "2025-11-15",
        "2025-11-15T22:10:00.000Z",
        "1763244600000",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "abababababababababababababababababababababab",
        "00000000-0000-4000-8000-000000000000",
        "------------------------------------------",
    ] {
        let key = Key::new(text, &KeyRule::default()).unwrap();
        assert!(key.looks_weak(), "{text}");
    }
}
