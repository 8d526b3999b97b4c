//! Content types, and the bodies they make readable: forms, multipart and the encoded.

use super::*;

fn same(a: &Request, b: &Request) -> bool {
    a.fingerprint() == b.fingerprint()
}

#[test]
fn a_content_type_is_read_without_regard_to_case_order_and_spaces() {
    let one = Request::of("Text/HTML;Charset=utf-8 ; level=1", "x");
    let other = Request::of("text/html; level=1;charset=utf-8;", "x");

    assert!(same(&one, &other));
}

#[test]
fn a_semicolon_within_quotes_ends_no_parameter() {
    let one = Request::of("text/html;b=\"\\\";z\";a=1", "x");
    let other = Request::of("text/html;a=1;b=\"\\\";z\"", "x");

    assert!(same(&one, &other));
}

#[test]
fn content_types_that_differ_make_requests_that_differ() {
    let types = [
        "",
        "text/plain",
        "text/html",
        "text/html;charset=utf-8",
        "text/html;charset=latin1",
        "text/html;charset",
        "text/html;charset=",
        "text/html;a=\"b;c=d\"",
        "text/html;a=b;c=d",
        "text/html;a=\"\\\";c=d\"",
        "text/html;boundary=b",
    ];
    let mut all = types
        .map(|value| Request::of(value, "x").fingerprint())
        .to_vec();
    let mut absent = Request::of("text/plain", "x");
    absent.headers.remove(CONTENT_TYPE);
    all.push(absent.fingerprint());

    all.sort();
    all.dedup();

    assert_eq!(all.len(), types.len() + 1);
}

#[test]
fn of_two_content_types_both_count_and_the_body_by_its_bytes() {
    let two = Request::new().header("content-type", "text/plain");
    let swapped = Request::of("text/plain", &two.body).header("content-type", "application/json");

    assert!(!same(&two, &Request::new()));
    assert!(!same(&two, &swapped));
    assert!(!same(&two, &two.clone().body(r#"{"amount": 5}"#)));
}

#[test]
fn json_counts_by_meaning_under_every_json_type() {
    for json in [
        "application/json",
        "application/JSON; charset=utf-8",
        "application/merge-patch+json",
    ] {
        let compact = Request::of(json, r#"{"a":1,"b":"\u00e9"}"#);
        let spaced = Request::of(json, "{ \"b\": \"é\", \"a\": 1 }");

        assert!(same(&compact, &spaced), "{json}");
    }
}

#[test]
fn json_under_another_type_counts_by_its_bytes() {
    for other in [
        "text/plain",
        "application/jsonp",
        "+json",
        "application/json-seq",
    ] {
        let compact = Request::of(other, "[1]");

        assert!(!same(&compact, &Request::of(other, "[ 1 ]")), "{other}");
    }
}

#[test]
fn what_is_not_json_counts_by_its_bytes() {
    for broken in [
        "{\"a\":1",
        "{ \"a\":1",
        "[\"\\ud800\"]",
        "[ \"\\ud800\"]",
        "",
        " ",
    ] {
        let request = Request::new().body(broken);

        assert!(same(&request, &request.clone()));
        assert!(!same(
            &request,
            &request.clone().body([broken, " "].concat())
        ));
    }
}

#[test]
fn canonical_and_raw_readings_of_the_same_bytes_differ() {
    let by_bytes = FingerprintRule {
        body: BodyRule::Bytes,
        ..rule()
    };

    assert_ne!(
        Request::new().fingerprint(),
        Request::new().under(&by_bytes)
    );
}

#[test]
fn an_encoded_body_counts_by_its_bytes_and_its_encoding() {
    let gzip = Request::new().header("content-encoding", "gzip");
    let brotli = Request::new().header("content-encoding", "br");

    assert!(!same(&gzip, &brotli));
    assert!(!same(&gzip, &Request::new()));
    assert!(!same(&gzip, &gzip.clone().body(r#"{"amount": 5}"#)));
}

#[test]
fn an_identity_encoding_is_none() {
    let identity = Request::new().header("content-encoding", "Identity");

    assert!(same(&identity, &Request::new()));
}

const FORM: &str = "application/x-www-form-urlencoded";

#[test]
fn a_form_may_come_in_any_order_and_spelling() {
    let forms_are_same = |a: &str, b: &str| same(&Request::of(FORM, a), &Request::of(FORM, b));

    assert!(forms_are_same("to=bob&amount=5", "amount=5&to=bob"));
    assert!(forms_are_same("a=b+c", "a=b%20c"));
    assert!(forms_are_same("a=%c3%a9", "a=%C3%A9"));
    assert!(forms_are_same("a=*:%7e", "%61=%2A%3A~"));
    assert!(forms_are_same("a=b=c", "a=b%3dc"));
    assert!(forms_are_same("a=1&&b=2&", "a=1&b=2"));
}

#[test]
fn forms_with_other_fields_are_other_forms() {
    let forms_are_same = |a: &str, b: &str| same(&Request::of(FORM, a), &Request::of(FORM, b));

    assert!(!forms_are_same("a=1&a=2", "a=2&a=1"));
    assert!(!forms_are_same("a=b%2Bc", "a=b+c"));
    assert!(!forms_are_same("a=1%26b=2", "a=1&b=2"));
    assert!(!forms_are_same("a%3D=1", "a==1"));
    assert!(!forms_are_same("a=%fe", "a=%ff"));
    assert!(!forms_are_same("a", "a="));
}

#[test]
fn a_form_with_a_broken_escape_counts_by_its_bytes() {
    for broken in ["b=%zz&a=1", "b=%&a=1", "b=1&a=%4"] {
        assert_eq!(form::canonicalise(broken.as_bytes()), None, "{broken}");
    }
}

/// A body of two parts; `boundary` is what separates them.
fn upload(boundary: &str, file: &str) -> String {
    format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"to\"\r\n\r\nbob\r\n\
         --{boundary}\r\nContent-Disposition: form-data; name=\"file\"\r\nContent-Type: text/plain\
         \r\n\r\n{file}\r\n--{boundary}--\r\n"
    )
}

#[test]
fn a_multipart_body_is_the_same_under_another_boundary() {
    let first = Request::of(
        "multipart/form-data; boundary=one",
        upload("one", "1,2\r\n3"),
    );
    let retry = Request::of(
        "multipart/form-data; boundary=\"t w o\"",
        upload("t w o", "1,2\r\n3"),
    );

    assert!(same(&first, &retry));
}

#[test]
fn a_multipart_body_with_another_part_is_another_body() {
    let one = |body: String| Request::of("multipart/form-data; boundary=one", body).fingerprint();
    let first = one(upload("one", "1,2"));

    assert_ne!(first, one(upload("one", "1,3")));
    assert_ne!(
        first,
        one(upload("one", "1,2").replace("\"to\"", "\"from\""))
    );
    assert_ne!(
        first,
        one(upload("one", "1,2").replace("Content-Type", "X"))
    );
    assert_ne!(first, one(upload("one", "1,2\r\n--one\r\n\r\n")));
    assert_eq!(
        first,
        one(upload("one", "1,2").replace("Content-Type: ", "content-type:"))
    );
}

#[test]
fn bytes_do_not_move_between_the_parts_of_a_multipart_body() {
    let digest = |body: &[u8]| multipart::digest(body, b"b").unwrap();

    let split = digest(b"--b\r\n\r\nab\r\n--b\r\n\r\nc\r\n--b--");

    assert_ne!(split, digest(b"--b\r\n\r\na\r\n--b\r\n\r\nbc\r\n--b--"));
    assert_ne!(split, digest(b"--b\r\n\r\nabc\r\n--b--"));
}

#[test]
fn only_a_plain_multipart_body_is_read_by_its_parts() {
    let malformed = [
        "",
        "--b",
        "--b\r\n",
        "--b\r\n\r\nx",
        "--b\r\n\r\nx\r\n--b",
        "--b\r\n\r\nx\r\n--bc\r\n\r\ny\r\n--b--",
        "--b\r\nno colon\r\n\r\nx\r\n--b--",
        "--b\r\n: no name\r\n\r\nx\r\n--b--",
        "--b\r\nA: 1\r\n folded: 2\r\n\r\nx\r\n--b--",
        "--b\r\nA: 1\nB: 2\r\n\r\nx\r\n--b--",
        "--b\r\nA: 1\r\n--b--",
        "--b\n\nx\n--b--",
        "--b \r\n\r\nx\r\n--b--",
        "preamble\r\n--b\r\n\r\nx\r\n--b--",
        "--b\r\n\r\nx\r\n--b--\r\nepilogue",
    ];
    for body in malformed {
        assert_eq!(multipart::digest(body.as_bytes(), b"b"), None, "{body:?}");
    }
    let plain = [
        "--b--",
        "--b\r\n\r\n\r\n--b--",
        "--b\r\nA:\r\n\r\nx\n--b\r\n--b--\r\n",
    ];
    for body in plain {
        assert!(
            multipart::digest(body.as_bytes(), b"b").is_some(),
            "{body:?}"
        );
    }
}

#[test]
fn a_multipart_body_that_counts_by_its_bytes_counts_with_its_boundary() {
    let body = upload("one", "1,2");
    let other_boundary = Request::of("multipart/form-data; boundary=two", &body);
    let no_boundary = Request::of("multipart/form-data", &body);
    let two_boundaries = Request::of("multipart/form-data; boundary=one; boundary=two", &body);
    let three = Request::of("multipart/form-data; boundary=three", &body);

    assert!(!same(&other_boundary, &three));
    assert!(!same(&other_boundary, &no_boundary));
    assert!(!same(
        &two_boundaries,
        &Request::of("multipart/form-data; boundary=one", &body)
    ));
}
