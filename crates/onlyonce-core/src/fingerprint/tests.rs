//! What a fingerprint must tell apart and what it must not.
//! The parsers of single parts have their cases in the files below this one.

mod bodies;
mod derived;
mod json;
mod members;
mod properties;

use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::*;

/// A request that a test changes in one place.
#[derive(Clone)]
struct Request {
    method: &'static str,
    path: &'static str,
    query: Option<&'static str>,
    headers: HeaderMap,
    body: Vec<u8>,
    credential: Option<&'static [u8]>,
}

impl Request {
    fn new() -> Self {
        let request = Self {
            method: "POST",
            path: "/payments",
            query: Some("a=1&b=2"),
            headers: HeaderMap::new(),
            body: br#"{"amount":5}"#.to_vec(),
            credential: None,
        };
        request.header("content-type", "application/json")
    }

    fn of(content_type: &'static str, body: impl AsRef<[u8]>) -> Self {
        Self::new().content_type(content_type).body(body)
    }

    fn header(mut self, name: &'static str, value: &'static str) -> Self {
        let name = HeaderName::from_static(name);
        self.headers.append(name, HeaderValue::from_static(value));
        self
    }

    fn content_type(mut self, value: &'static str) -> Self {
        self.headers
            .insert(CONTENT_TYPE, HeaderValue::from_static(value));
        self
    }

    fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_vec();
        self
    }

    fn query(self, query: &'static str) -> Self {
        let query = Some(query);
        Self { query, ..self }
    }

    fn under(&self, rule: &FingerprintRule) -> Fingerprint {
        rule.apply(&RequestParts {
            method: self.method,
            path: self.path,
            query: self.query,
            headers: &self.headers,
            body: &self.body,
            credential: self.credential,
        })
    }

    fn fingerprint(&self) -> Fingerprint {
        self.under(&FingerprintRule::default())
    }
}

/// Asserts that a rule with `off` sees no difference which the default rule, or `on`, does see.
fn assert_switches(on: FingerprintRule, off: FingerprintRule, a: &Request, b: &Request) {
    assert_ne!(a.under(&on), b.under(&on), "switched on");
    assert_eq!(a.under(&off), b.under(&off), "switched off");
}

fn rule() -> FingerprintRule {
    FingerprintRule::default()
}

#[test]
fn a_fingerprint_survives_its_bytes() {
    let fingerprint = Fingerprint::new(7, [9; 32]);

    let bytes = fingerprint.to_bytes();

    assert_eq!(Fingerprint::from_bytes(&bytes), Some(fingerprint));
    assert_eq!((fingerprint.recipe(), fingerprint.digest()), (7, &[9; 32]));
}

#[test]
fn a_fingerprint_of_another_length_is_refused() {
    for length in [0, 1, 32, 34] {
        assert_eq!(Fingerprint::from_bytes(&vec![1; length]), None, "{length}");
    }
}

#[test]
fn a_fingerprint_shows_eight_digits_only() {
    let fingerprint = Fingerprint::new(1, [0xab; 32]);

    assert_eq!(fingerprint.to_string(), "fp:abababab");
    assert_eq!(format!("{fingerprint:?}"), "fp:abababab");
}

#[test]
fn equal_digests_of_two_recipes_are_two_fingerprints() {
    assert_ne!(Fingerprint::new(1, [0; 32]), Fingerprint::new(2, [0; 32]));
}

#[test]
fn the_builder_stamps_the_recipe_in_force() {
    let fingerprint = FingerprintBuilder::new().finish();

    assert_eq!(fingerprint.recipe(), Fingerprint::RECIPE);
}

/// A record outlives a deployment: if this fails, the recipe needs the next number.
#[test]
fn the_recipe_in_force_hashes_as_it_always_did() {
    let request = Request::new().header("accept", "text/plain");
    let every_part = FingerprintRule {
        headers: vec![ACCEPT],
        ..rule()
    };

    let digest = hex(request.under(&every_part).digest());

    let pinned = "1ec3e36c2277bd112232cb386f84d41899d40ff250f6ae112d12dba436cf2d92";
    assert_eq!(digest, pinned);
}

#[test]
fn bytes_do_not_move_between_parts_unseen() {
    let digest = |parts: &[(Part, &[u8])]| {
        let mut builder = FingerprintBuilder::new();
        for (tag, bytes) in parts {
            builder.part(*tag, bytes);
        }
        builder.finish()
    };
    let whole = digest(&[(Part::Path, b"ab"), (Part::Path, b"c")]);

    assert_ne!(whole, digest(&[(Part::Path, b"a"), (Part::Path, b"bc")]));
    assert_ne!(whole, digest(&[(Part::Path, b"abc")]));
    assert_ne!(whole, digest(&[(Part::Path, b"abc"), (Part::Path, b"")]));
    assert_ne!(whole, digest(&[(Part::Path, b"ab"), (Part::Query, b"c")]));
}

#[test]
fn the_same_request_has_the_same_fingerprint() {
    assert_eq!(Request::new().fingerprint(), Request::new().fingerprint());
}

#[test]
fn the_method_switch_switches_the_method() {
    let post = Request::new();
    let put = Request {
        method: "PUT",
        ..Request::new()
    };
    let off = FingerprintRule {
        method: false,
        ..rule()
    };

    assert_switches(rule(), off, &post, &put);
}

#[test]
fn the_path_switch_switches_the_path() {
    let payments = Request::new();
    let refunds = Request {
        path: "/refunds",
        ..Request::new()
    };
    let off = FingerprintRule {
        path: false,
        ..rule()
    };

    assert_switches(rule(), off, &payments, &refunds);
}

#[test]
fn the_query_switch_switches_the_query() {
    let off = FingerprintRule {
        query: false,
        ..rule()
    };

    assert_switches(rule(), off, &Request::new(), &Request::new().query("a=2"));
}

#[test]
fn the_content_type_switch_switches_the_content_type() {
    let off = FingerprintRule {
        content_type: false,
        ..rule()
    };
    let html = Request::of("text/html", "x");

    assert_switches(rule(), off, &html, &Request::of("text/plain", "x"));
}

#[test]
fn the_content_type_switch_switches_the_content_encoding() {
    let off = FingerprintRule {
        content_type: false,
        body: BodyRule::Bytes,
        ..rule()
    };
    let gzip = Request::new().header("content-encoding", "gzip");

    assert_switches(rule(), off, &gzip, &Request::new());
}

#[test]
fn a_header_counts_once_it_is_chosen() {
    let on = FingerprintRule {
        headers: vec![ACCEPT],
        ..rule()
    };
    let text = Request::new().header("accept", "text/plain");

    assert_switches(on.clone(), rule(), &text, &Request::new());
    let html = Request::new().header("accept", "text/html");
    assert_switches(on, rule(), &text, &html);
}

#[test]
fn every_line_of_a_chosen_header_counts_in_its_order() {
    let on = FingerprintRule {
        headers: vec![ACCEPT, HeaderName::from_static("x")],
        ..rule()
    };
    let accept = |lines: &[&'static str]| {
        let request = lines.iter().fold(Request::new(), |request, line| {
            request.header("accept", line)
        });
        request.under(&on)
    };

    assert_ne!(accept(&["a", "b"]), accept(&["b", "a"]));
    assert_ne!(accept(&["a", "b"]), accept(&["a"]));
    assert_ne!(accept(&["a", "b"]), accept(&["ab"]));
    assert_ne!(accept(&["a", ""]), accept(&["a"]));
}

#[test]
fn lines_do_not_move_between_chosen_headers_unseen() {
    let on = FingerprintRule {
        headers: vec![HeaderName::from_static("x"), HeaderName::from_static("y")],
        ..rule()
    };
    let two_and_one = Request::new()
        .header("x", "v")
        .header("x", "y")
        .header("y", "w");
    let one_and_two = Request::new()
        .header("x", "v")
        .header("y", "y")
        .header("y", "w");

    assert_ne!(two_and_one.under(&on), one_and_two.under(&on));
}

#[test]
fn a_credential_counts_if_it_is_given() {
    let with = |credential| Request {
        credential,
        ..Request::new()
    };
    let ada = with(Some(b"ada".as_slice())).fingerprint();

    assert_ne!(ada, with(Some(b"bob".as_slice())).fingerprint());
    assert_ne!(ada, with(None).fingerprint());
}

#[test]
fn an_ignored_body_takes_its_content_type_along_but_not_the_route() {
    let off = FingerprintRule {
        body: BodyRule::Ignore,
        ..rule()
    };
    let other_body = Request::of("text/plain", "other").header("content-encoding", "br");
    let other_path = Request {
        path: "/refunds",
        ..Request::new()
    };
    let other_method = Request {
        method: "PUT",
        ..Request::new()
    };

    assert_switches(rule(), off.clone(), &Request::new(), &other_body);
    assert_ne!(Request::new().under(&off), other_path.under(&off));
    assert_ne!(Request::new().under(&off), other_method.under(&off));
}

#[test]
fn a_body_counted_by_bytes_sees_whitespace() {
    let by_bytes = FingerprintRule {
        body: BodyRule::Bytes,
        ..rule()
    };
    let spaced = Request::new().body(r#"{"amount": 5}"#);

    assert_switches(by_bytes, rule(), &Request::new(), &spaced);
}

#[test]
fn a_path_has_one_spelling_per_escape() {
    let path = |path| Request {
        path,
        ..Request::new()
    };
    let same = |a, b| path(a).fingerprint() == path(b).fingerprint();

    assert!(same("/%61%7E-b", "/a~-b"));
    assert!(same("/caf%c3%a9", "/caf%C3%A9"));
    assert!(!same("/a%2Fb", "/a/b"), "a reserved byte keeps its escape");
    assert!(!same("/%2561", "/%61"), "nothing is decoded twice");
    assert!(!same("/%fe", "/%ff"), "bytes that are no text stay apart");
    assert!(!same("/%zz", "/%ZZ"), "what is no escape stays as it is");
    assert!(!same("/a", "/a/"));
    assert!(same("/%", "/%") && !same("/%", "/%4"));
}

#[test]
fn a_query_may_come_in_any_order_of_names() {
    let same =
        |a, b| Request::new().query(a).fingerprint() == Request::new().query(b).fingerprint();

    assert!(same("a=1&b=2", "b=2&a=1"));
    assert!(same("b=2&%61=1", "a=1&b=2"), "names sort by what they mean");
    assert!(same("a=1&b=2&a=3", "b=2&a=1&a=3"));
    assert!(!same("a=1&a=2", "a=2&a=1"), "a list keeps its order");
    assert!(!same("a=1&b=2", "a=2&b=1"));
    assert!(!same("a=1%26b=2", "a=1&b=2"));
    assert!(!same("a", "a="));
    assert!(!same("a=b", "a%3Db"));
}

#[test]
fn an_absent_query_is_an_empty_one() {
    let absent = Request {
        query: None,
        ..Request::new()
    };

    assert_eq!(absent.fingerprint(), Request::new().query("").fingerprint());
}

#[test]
fn a_canonical_path_or_query_is_not_copied() {
    use std::borrow::Cow;

    for text in [b"/a/b%2F%C3%A9".as_slice(), b"a=1&b=%20&b=1&c", b"%zz"] {
        assert!(matches!(form::canonical_path(text), Cow::Borrowed(_)));
        assert!(matches!(form::canonical_query(text), Cow::Borrowed(_)));
    }
}
