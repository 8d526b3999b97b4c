//! What a program may give as the headers of an answer, and what is refused.

use onlyonce_core::Response;

/// Headers that are fine, a body of every byte, and what is replayed of them.
pub(crate) const HEADERS: &str = r#"{"content-type": "text/plain; note=\"a'b\"", "LINK": ["<a>", "<b>"],
    "x-sql": "'); DROP TABLE payments; --", "x-text": "na\u00efve \ud83d\ude00",
    "set-cookie": "session=1", "content-length": "7", "x-none": []}"#;

pub(crate) fn every_byte() -> Vec<u8> {
    (0..=255).cycle().take(1000).collect()
}

/// Checks the answer that was stored with [`HEADERS`] and [`every_byte`].
pub(crate) fn check(response: &Response) {
    assert_eq!(response.status, 201);
    assert_eq!(response.body, every_byte());
    let values = |name: &str| -> Vec<Vec<u8>> {
        let values = response.headers.get_all(name).iter();
        values.map(|value| value.as_bytes().to_vec()).collect()
    };
    assert_eq!(
        values("content-type"),
        [b"text/plain; note=\"a'b\"".to_vec()]
    );
    assert_eq!(values("link"), [b"<a>".to_vec(), b"<b>".to_vec()]);
    assert_eq!(values("x-sql"), [b"'); DROP TABLE payments; --".to_vec()]);
    assert_eq!(
        values("x-text"),
        ["na\u{ef}ve \u{1f600}".as_bytes().to_vec()]
    );
    assert_eq!(response.headers.len(), 5, "{:?}", response.headers);
}

/// Headers that make no answer.
pub(crate) const WRONG: [&str; 13] = [
    "[]",
    "\"text\"",
    "null",
    "7",
    r#"{"a b": "c"}"#,
    r#"{"": "c"}"#,
    r#"{"na\u00efve": "c"}"#,
    r#"{"a": 1}"#,
    r#"{"a": null}"#,
    r#"{"a": ["b", ["c"]]}"#,
    r#"{"a": {"b": "c"}}"#,
    r#"{"a": "split\r\nset-cookie: b=c"}"#,
    r#"{"a": ["b", "c\u007f"]}"#,
];

/// The largest body that is taken.
pub(crate) const BODY_BYTES_MAX: usize = 16 << 20;
