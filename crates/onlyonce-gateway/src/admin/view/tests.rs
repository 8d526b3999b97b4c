use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue, LINK};
use serde_json::json;

use super::*;

fn response(body: &'static [u8]) -> Response {
    let mut response = Response::new(StatusCode::CREATED, body);
    let headers = &mut response.headers;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.append(LINK, HeaderValue::from_static("</a>"));
    headers.append(LINK, HeaderValue::from_static("</b>"));
    response
}

#[test]
fn headers_are_a_map_and_repeated_ones_keep_all_their_values() {
    let view = ResponseView::of(&response(b"made"), true);

    let shown = serde_json::to_value(&view).unwrap();
    assert_eq!(
        shown["headers"],
        json!({"content-type": "text/plain", "link": ["</a>", "</b>"]})
    );
    let read: ResponseView = serde_json::from_value(shown).unwrap();
    assert_eq!(read.headers, view.headers);
    assert_eq!(read.headers["link"].lines(), ["</a>", "</b>"]);
}

#[test]
fn a_body_is_shown_on_request_as_base64_and_as_text_if_it_is_text() {
    let brief = ResponseView::of(&response(b"made"), false);
    let text = ResponseView::of(&response(b"made"), true);
    let bytes = ResponseView::of(&response(b"\xff\x00"), true);

    let bodies = |view: ResponseView| (view.body, view.body_b64);
    assert_eq!(bodies(brief), (None, None));
    let both = (Some("made".to_owned()), Some("bWFkZQ==".to_owned()));
    assert_eq!(bodies(text), both);
    assert_eq!(bodies(bytes), (None, Some("/wA=".to_owned())));
}

#[test]
fn every_state_has_the_documents_word_where_there_is_one() {
    let words = StateName::ALL.map(document_state);

    assert_eq!(
        words,
        [
            Some("RUNNING"),
            Some("RUNNING"),
            Some("COMPLETED"),
            Some("FAILED"),
            None
        ]
    );
}
