//! Canonical JSON, case by case; the vectors are those of the RFC 8785 reference implementation.

use crate::fingerprint::canonical_json;

fn canonical(text: &str) -> Option<String> {
    canonical_json(text.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
}

fn same(a: &str, b: &str) -> bool {
    canonical(a).unwrap() == canonical(b).unwrap()
}

macro_rules! vector {
    ($file:literal) => {
        (
            include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/tests/vectors/json-canonicalization/input/",
                $file
            )),
            include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/tests/vectors/json-canonicalization/output/",
                $file
            )),
        )
    };
}

#[test]
fn the_published_vectors_without_reformatted_numbers_hold() {
    let vectors = [
        vector!("arrays.json"),
        vector!("french.json"),
        vector!("unicode.json"),
        vector!("weird.json"),
    ];
    for (input, output) in vectors {
        assert_eq!(canonical(input).as_deref(), Some(output.trim_end()));
    }
}

/// RFC 8785 writes every number as the double it rounds to, by which integers beyond 2^53 collide.
/// Here numbers keep their digits, so the expected output has them put back as the input has them.
#[test]
fn the_published_vectors_with_numbers_hold_but_for_the_written_digits() {
    let (structures, expected) = vector!("structures.json");
    let expected = expected.replace("\"\\n\":56", "\"\\n\":56.0");
    assert_eq!(canonical(structures), Some(expected.trim_end().to_owned()));

    let (values, expected) = vector!("values.json");
    let expected = expected
        .replace("333333333.3333333,", "333333333.33333329,")
        .replace("1e+30", "1E30")
        .replace("4.5,", "4.50,")
        .replace("0.002", "2e-3")
        .replace("1e-27", "0.000000000000000000000000001");
    assert_eq!(canonical(values), Some(expected.trim_end().to_owned()));
}

#[test]
fn big_integers_that_round_alike_stay_apart() {
    assert!(!same("9007199254740993", "9007199254740992"));
    assert!(!same("[1e400]", "[2e400]"));
}

#[test]
fn numbers_keep_their_written_digits() {
    for number in [
        "0",
        "-0",
        "1.0",
        "1E+2",
        "1e2",
        "0.10e-07",
        "123456789012345678901234567890",
    ] {
        assert_eq!(canonical(number).as_deref(), Some(number));
    }
}

#[test]
fn member_order_whitespace_and_escapes_do_not_count() {
    assert!(same(
        r#"{"a":1,"b":[true,null]}"#,
        "\r\n{ \"b\" :\t[ true , null ] , \"a\" : 1 } "
    ));
    assert!(same(
        r#""\u0041\u00e9\ud83d\ude02\/\u000A\u0022\u005C""#,
        r#""Aé😂/\n\"\\""#
    ));
    assert!(same(r#"{"\u0061":1,"b":2}"#, r#"{"b":2,"a":1}"#));
    assert!(same("{ }", "{}") && same("[\n]", "[]"));
}

#[test]
fn array_order_and_types_do_count() {
    assert!(!same("[1,2]", "[2,1]"));
    assert!(!same("1", "\"1\""));
    assert!(!same("{}", "[]"));
    assert!(!same("\"a\"", "\"a \""));
    assert!(!same("null", "\"null\""));
}

#[test]
fn repeated_names_all_stay_in_their_order() {
    assert_eq!(
        canonical(r#"{"b":0,"a":2,"a":1}"#).unwrap(),
        r#"{"a":2,"a":1,"b":0}"#
    );
    assert!(!same(r#"{"a":1,"a":2}"#, r#"{"a":2}"#));
    assert!(!same(r#"{"a":1,"a":2}"#, r#"{"a":2,"a":1}"#));
    assert!(same(r#"{"a":1,"\u0061":2}"#, r#"{"\u0061":1,"a":2}"#));
}

#[test]
fn a_hundred_repeated_names_stay_in_their_order() {
    let mixed: Vec<_> = (0..200).map(|at| format!("\"{}\":{at}", at % 2)).collect();
    let sorted: Vec<_> = (0..2)
        .flat_map(|name| {
            (name..200)
                .step_by(2)
                .map(move |at| format!("\"{name}\":{at}"))
        })
        .collect();

    let expected = format!("{{{}}}", sorted.join(","));

    assert_eq!(
        canonical(&format!("{{{}}}", mixed.join(","))),
        Some(expected)
    );
}

#[test]
fn names_sort_by_utf16_code_units_of_what_they_mean() {
    // U+1F602 is the code units D83D DE02, which sort before FB33, though its UTF-8 sorts after.
    assert_eq!(
        canonical("{\"\u{fb33}\":1,\"😂\":2}").unwrap(),
        "{\"😂\":2,\"\u{fb33}\":1}"
    );
    assert_eq!(
        canonical(r#"{"]":1,"\\":2,"[":3,"\"":4,"!":5,"\t":6,"\u0001":7,"":8,"ab":9,"a":0}"#)
            .unwrap(),
        r#"{"":8,"\u0001":7,"\t":6,"!":5,"\"":4,"[":3,"\\":2,"]":1,"a":0,"ab":9}"#
    );
}

#[test]
fn control_characters_have_their_short_form_or_lower_case_hex() {
    assert_eq!(
        canonical(r#""\u0008\u0009\u000A\u000C\u000D\u0000\u001F\u007f""#).unwrap(),
        "\"\\b\\t\\n\\f\\r\\u0000\\u001f\u{7f}\""
    );
}

#[test]
fn a_hundred_and_twenty_eight_levels_are_read_and_one_more_is_not() {
    let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
    let objects = |depth| "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth);

    assert_eq!(canonical(&nested(128)), Some(nested(128)));
    assert_eq!(canonical(&objects(128)), Some(objects(128)));
    assert_eq!(canonical(&nested(129)), None);
    assert_eq!(canonical(&objects(129)), None);
    assert_eq!(canonical(&"[".repeat(1_000_000)), None);
}

#[test]
fn lone_surrogates_are_refused() {
    for lone in [
        r#""\ud800""#,
        r#""\udc00""#,
        r#""\ud800\ud800""#,
        r#""\ud800x""#,
        r#""\ud800\n""#,
        r#""\udc00\ud800""#,
        r#"{"\ud800":1}"#,
    ] {
        assert_eq!(canonical(lone), None, "{lone}");
    }
}

#[test]
fn what_is_not_json_is_refused() {
    for malformed in [
        "",
        " ",
        "nul",
        "nulll",
        "True",
        "01",
        "-",
        "+1",
        "1.",
        ".5",
        "1e",
        "1e+",
        "--1",
        "NaN",
        "'a'",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[",
        "]",
        "{",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{1:1}",
        "{\"a\":1 \"b\":2}",
        "[1}",
        "{\"a\":1]",
        "\"",
        "\"\\",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\u+123\"",
        "\"a\nb\"",
        "\"\u{0}\"",
        "1 1",
        "[1]x",
        "\u{feff}1",
        "\u{b}1",
        "1\u{a0}",
        "/**/1",
    ] {
        assert_eq!(canonical(malformed), None, "{malformed:?}");
    }
}

#[test]
fn text_that_is_not_utf8_is_refused() {
    for bytes in [
        b"\"\xff\"".as_slice(),
        b"\"\xc3\"",
        b"\"\xed\xa0\x80\"",
        b"\"\xc0\x80\"",
        b"1\0",
    ] {
        assert_eq!(canonical_json(bytes), None, "{bytes:?}");
    }
}

#[test]
fn strings_end_at_any_distance() {
    for length in 0..40 {
        for middle in ["x", "é", "\\n", "\\\"", "\u{7f}"] {
            let text = format!(
                "[\"{}{middle}{}\"]",
                "a".repeat(length),
                "b".repeat(length / 2)
            );

            assert_eq!(canonical(&text).as_ref(), Some(&text));
        }
    }
}
