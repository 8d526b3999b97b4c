use http::{HeaderMap, HeaderName};

use super::take_apart;

const KEY: HeaderName = HeaderName::from_static("idempotency-key");

fn apart(values: &[&'static str]) -> Vec<String> {
    let mut headers = HeaderMap::new();
    for value in values {
        headers.append(KEY, value.parse().unwrap());
    }
    headers.insert("accept", "a, b".parse().unwrap());

    take_apart(&mut headers, &KEY);

    assert_eq!(headers["accept"], "a, b");
    let lines = headers.get_all(KEY).iter();
    lines.map(|it| it.to_str().unwrap().to_owned()).collect()
}

#[test]
fn lines_that_were_joined_are_lines_again() {
    for joined in ["a,b", "a, b", "a\t,\tb"] {
        assert_eq!(apart(&[joined]), ["a", "b"], "{joined:?}");
    }
    assert_eq!(apart(&["a,a,b"]), ["a", "a", "b"]);
    assert_eq!(apart(&["\"a\",\"b\""]), ["\"a\"", "\"b\""]);
    assert_eq!(apart(&["\"a\";v=1, b"]), ["\"a\";v=1", "b"]);
    assert_eq!(apart(&["a,"]), ["a", ""]);
    assert_eq!(apart(&[",a"]), ["", "a"]);
    assert_eq!(apart(&["a", "b,c"]), ["a", "b", "c"]);
}

#[test]
fn a_quoted_comma_is_the_keys_own() {
    for key in [
        "\"a,b\"",
        "\"a\\\",b\"",
        " \"a,b\"",
        "a",
        "",
        "\"never closed, at all",
    ] {
        assert_eq!(apart(&[key]), [key]);
    }
    assert_eq!(apart(&["\"a,b\",c"]), ["\"a,b\"", "c"]);
}

#[test]
fn a_quote_inside_of_a_bare_key_hides_no_comma() {
    assert_eq!(apart(&["a\"b,c\"d"]), ["a\"b", "c\"d"]);
}

#[test]
fn no_key_stays_none() {
    assert!(apart(&[]).is_empty());
}
