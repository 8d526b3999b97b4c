//! Places in JSON bodies: read, found, left out and filled.

use super::*;

fn pointer(text: &str) -> Pointer {
    text.parse().unwrap()
}

fn found(place: &str, body: &str) -> Option<Vec<String>> {
    let found = pointer(place).find(body.as_bytes())?;
    Some(found.iter().map(|it| it.get().to_owned()).collect())
}

#[test]
fn a_pointer_is_written_as_it_is_read() {
    for (text, shown) in [
        ("/a/b", "/a/b"),
        ("a", "/a"),
        ("a/b", "/a~1b"),
        ("a~b", "/a~0b"),
        ("/a~1b/~0", "/a~1b/~0"),
        ("/~01", "/~01"),
        ("/", "/"),
        ("a \"quoted\" name", "/a \"quoted\" name"),
    ] {
        assert_eq!(pointer(text).to_string(), shown, "{text}");
        assert_eq!(pointer(shown), pointer(text));
    }
    let long = "/a".repeat(STEPS_MAX + 1);
    for wrong in ["", "/a~", "/a~2b", &long] {
        let told = wrong.parse::<Pointer>().unwrap_err();
        assert!(told.contains("like /order/id"), "{told}");
    }
}

#[test]
fn a_value_is_found_where_it_is_and_repeated_names_are_all_found() {
    let body = r#"{"a": {"b": [10, 1.0]}, "n": null, "t": "x", "a/b": 1e999, "a": {"b": 5}}"#;

    for (place, values) in [
        ("/a/b/1", vec!["1.0"]),
        ("/a/b", vec!["[10, 1.0]", "5"]),
        ("/n", vec!["null"]),
        ("a/b", vec!["1e999"]),
        ("/t/0", vec![]),
        ("/a/b/2", vec![]),
        ("/x", vec![]),
    ] {
        let values = values.into_iter().map(str::to_owned).collect();
        assert_eq!(found(place, body), Some(values), "{place}");
    }
    assert_eq!(found("/a", "no JSON"), None);
    assert_eq!(found("/a", "7"), Some(vec![]));
}

/// Half a surrogate pair is no text here, and a name like any other to many parsers.
#[test]
fn names_that_cannot_be_read_are_not_taken_for_absent() {
    let body = r#"{"\ud800":1,"a":{"b":1},"c":{"\udc00":2,"d":1}}"#;

    assert_eq!(found("/a", body), None);
    assert_eq!(found("/c/d", r#"{"c":{"\udc00":2,"d":1}}"#), None);
    assert_eq!(
        found("/a", r#"{"a":1,"c":{"\udc00":2}}"#),
        Some(vec!["1".into()])
    );
    assert_eq!(pointer("/c/d").put(body.as_bytes(), "x"), None);
    assert_eq!(without(body.as_bytes(), &[pointer("/a")]), None);
}

#[test]
fn what_is_left_out_is_gone_and_the_rest_keeps_its_spelling() {
    let body = r#"{"a":{"b":1.0,"c":[1,2,3]},"d":"é","d":2}"#;

    for (places, rest) in [
        (vec!["/a/b"], r#"{"a":{"c":[1,2,3]},"d":"é","d":2}"#),
        (vec!["/a/b", "/a/c"], r#"{"a":{},"d":"é","d":2}"#),
        (vec!["/a", "/a/b"], r#"{"d":"é","d":2}"#),
        (vec!["/d"], r#"{"a":{"b":1.0,"c":[1,2,3]}}"#),
        (vec!["/a/c/1"], r#"{"a":{"b":1.0,"c":[1,3]},"d":"é","d":2}"#),
        (vec!["/x", "/d/e"], body),
        (vec!["/a", "/d"], "{}"),
    ] {
        let places: Vec<Pointer> = places.into_iter().map(pointer).collect();

        let left = without(body.as_bytes(), &places).unwrap();

        assert_eq!(String::from_utf8(left).unwrap(), rest, "{places:?}");
    }
    let at_a = [pointer("/a")];
    assert_eq!(without(b"7", &at_a), Some(b"7".to_vec()));
}

#[test]
fn a_value_is_put_in_its_place_and_replaces_what_was_there() {
    for (place, body, filled) in [
        ("/k", r#"{"a":1}"#, r#"{"k":"v","a":1}"#),
        ("/k", r#"{"k":1,"a":1,"k":2}"#, r#"{"k":"v","a":1}"#),
        ("/o/k", r#"{"a":1}"#, r#"{"o":{"k":"v"},"a":1}"#),
        (
            "/o/k",
            r#"{"a":1,"o":{"b":1.0}}"#,
            r#"{"o":{"k":"v","b":1.0},"a":1}"#,
        ),
    ] {
        let put = pointer(place).put(body.as_bytes(), "v").unwrap();

        assert_eq!(String::from_utf8(put).unwrap(), filled);
    }
    assert_eq!(pointer("/k").put(b"[1]", "v"), None);
    assert_eq!(pointer("/o/k").put(br#"{"o":7}"#, "v"), None);
    assert_eq!(pointer("/k").put(b"no JSON", "v"), None);
}
