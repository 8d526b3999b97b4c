//! JSON that this layer cannot read and a service behind it can: where the key is in the body, or made of it,
//! it must not be taken for a body without one.

use onlyonce_core::policy::KeyFirst;
use onlyonce_core::{Policy, Profile};

use crate::support::{App, Ask, post};

/// How lenient parsers are met: a byte order mark, other encodings, values and names that RFC 8259 does not
/// have, something behind the end.
fn spellings(text: &str) -> Vec<(&'static str, Vec<u8>)> {
    let utf16 = |bytes: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(bytes).collect::<Vec<_>>();
    let members = &text[1..];
    let with = |more: &[u8]| [b"{", more, b",", members.as_bytes()].concat();
    let utf32: Vec<u8> = text
        .chars()
        .flat_map(|it| u32::from(it).to_le_bytes())
        .collect();
    vec![
        (
            "byte order mark",
            [b"\xef\xbb\xbf", text.as_bytes()].concat(),
        ),
        ("UTF-16LE", utf16(u16::to_le_bytes)),
        ("UTF-16BE", utf16(u16::to_be_bytes)),
        (
            "UTF-16LE, marked",
            [&b"\xff\xfe"[..], &utf16(u16::to_le_bytes)].concat(),
        ),
        (
            "UTF-16BE, marked",
            [&b"\xfe\xff"[..], &utf16(u16::to_be_bytes)].concat(),
        ),
        ("UTF-32LE", utf32),
        ("NaN", with(br#""a":NaN"#)),
        ("Infinity", with(br#""a":-Infinity"#)),
        ("lone surrogate in a name", with(br#""\ud800":1"#)),
        ("Latin-1", with(b"\"a\":\"\xe9\"")),
        ("single quotes", with(b"'a':1")),
        ("comment", with(b"/* a */\"a\":1")),
        ("control character", with(b"\"a\":\"\t\x01\"")),
        ("more behind it", [text.as_bytes(), b"\n{}"].concat()),
        (
            "white space before it",
            [b"\r\n \t\x0b", text.as_bytes(), b"\0"].concat(),
        ),
        (
            "comma at the end",
            [&text.as_bytes()[..text.len() - 1], b",}"].concat(),
        ),
    ]
}

/// Every place that a key may be in, with a body that has one there.
async fn apps() -> Vec<(&'static str, App, Ask, String)> {
    let body_first = |policy: &mut Policy| {
        policy.http.key_member = "/order/key".parse().ok();
        policy.http.key_first = KeyFirst::Body;
    };
    let (form, uuid) = (
        "/api/forms/a/submit",
        "6f1ed002-ab5a-4a5b-8d2f-0f4b1e9d3c11",
    );
    vec![
        (
            "aip-155",
            App::under(Profile::Aip155).open().await,
            post("/orders"),
            format!(r#"{{"request_id":"{uuid}"}}"#),
        ),
        (
            "square",
            App::under(Profile::Square).open().await,
            post("/orders"),
            r#"{"idempotency_key":"k"}"#.into(),
        ),
        (
            "broker",
            App::under(Profile::Broker).open().await,
            post(form),
            r#"{"contextId":"c","formData":{"n":1}}"#.into(),
        ),
        (
            "pointer",
            App::under(Profile::Standard).but(body_first).open().await,
            post("/orders").key("in-the-header"),
            r#"{"order":{"key":"k"}}"#.into(),
        ),
    ]
}

#[tokio::test]
async fn json_that_cannot_be_read_is_refused_and_never_taken_for_a_body_without_a_key() {
    for (profile, app, ask, text) in apps().await {
        for (how, body) in spellings(&text) {
            for media in [
                "application/json",
                "application/vnd.a+json",
                "text/plain",
                "application/x-www-form-urlencoded",
            ] {
                let answer = app.send(&ask.clone().body(media, body.clone())).await;

                let what = format!("{profile}, {how}, {media}: {}", answer.text());
                assert_eq!((answer.status, app.runs()), (400, 0), "{what}");
                assert!(answer.text().contains("cannot be read as JSON"), "{what}");
            }
        }
        assert_eq!(app.send(&ask.json(&text)).await.run(), 1, "{profile}");
    }
}

/// Also where the name on the way to the key is fine, and the one below is not.
#[tokio::test]
async fn an_object_on_the_way_to_the_key_that_cannot_be_read_is_refused() {
    let nested = |policy: &mut Policy| policy.http.key_member = "/order/key".parse().ok();
    let app = App::under(Profile::Standard).but(nested).open().await;
    let body = r#"{"order":{"\udfff":1,"key":"k"}}"#;

    let answer = app.send(&post("/orders").json(body)).await;

    assert_eq!((answer.status, app.runs()), (400, 0), "{}", answer.text());
    // What is beside the way is not looked at.
    let beside = r#"{"other":{"\udfff":1},"order":{"key":"k"}}"#;
    for _ in 0..2 {
        assert_eq!(app.send(&post("/orders").json(beside)).await.run(), 1);
    }
}

/// It says that it is JSON, and does not begin like it.
#[tokio::test]
async fn what_claims_to_be_json_is_held_to_it() {
    let app = App::under(Profile::Square).open().await;

    for body in ["// a comment\n{}", "idempotency_key: k", "+AHs-}"] {
        for media in [
            "application/json; charset=utf-7",
            "Text/JSON",
            "application/json5",
        ] {
            let answer = app.send(&post("/orders").body(media, body)).await;
            assert_eq!((answer.status, app.runs()), (400, 0), "{media}: {body}");
        }
    }
}

#[tokio::test]
async fn bodies_that_are_no_json_and_json_without_a_key_run_as_before() {
    let app = App::under(Profile::Square).open().await;
    let bodies: [(&str, &[u8]); 10] = [
        ("application/json", b""),
        ("application/json", b" \r\n"),
        ("application/json", b"[1,2]"),
        ("application/json", b"7"),
        ("application/json", br#"{"a":{"idempotency_key":1}}"#),
        ("application/x-www-form-urlencoded", b"a=b&c=%7B"),
        ("text/plain", b"idempotency_key: k"),
        (
            "multipart/form-data; boundary=x",
            b"--x\r\n\r\n{\r\n--x--\r\n",
        ),
        ("application/octet-stream", b"\x00\x01\x02{"),
        // A field of 123 bytes, of a message that begins like JSON after a line break.
        ("application/x-protobuf", b"\n{a field"),
    ];

    for (at, (media, body)) in (1..).zip(bodies) {
        let run = app.send(&post("/orders").body(media, body)).await.run();
        assert_eq!(run, at, "{media}: {body:?}");
    }
}
