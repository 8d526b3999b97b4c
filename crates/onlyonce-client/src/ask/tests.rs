//! What counts as an answer to a status request.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

fn read(status: u16, body: &str) -> Option<KeyState> {
    let status = StatusCode::from_u16(status).unwrap();
    let reply = Reply::new(status, http::HeaderMap::new(), body.to_owned().into());
    KeyState::read(&reply, None)
}

#[test]
fn only_the_contract_s_own_answers_count() {
    let running = KeyState::Running { retry_after: None };
    assert_eq!(read(200, r#"{"state":"running"}"#), Some(running));
    assert_eq!(
        read(200, r#"{"state":"done","status":201}"#),
        Some(KeyState::Done)
    );
    assert_eq!(
        read(200, r#"{"state":"in-doubt"}"#),
        Some(KeyState::InDoubt)
    );
    assert_eq!(read(404, r#"{"state":"unknown"}"#), Some(KeyState::Unknown));

    for (status, body) in [
        (200, "<html>sign in</html>"),
        (200, r#"{"state":"unknown"}"#),
        (200, r#"{"state":"shipped"}"#),
        (200, r#"{"status":"done"}"#),
        (302, r#"{"state":"done"}"#),
        (404, r#"{"state":"done"}"#),
        (404, "not found"),
        (500, r#"{"state":"in-doubt"}"#),
    ] {
        assert_eq!(read(status, body), None, "{status} {body}");
    }
}

#[test]
fn an_answer_from_elsewhere_does_not_count() {
    let mut reply = Reply::new(
        StatusCode::OK,
        http::HeaderMap::new(),
        r#"{"state":"in-doubt"}"#.into(),
    );
    reply.was_redirected = true;

    assert_eq!(KeyState::read(&reply, None), None);
}

#[test]
fn the_address_is_the_operation_s_behind_the_status_path() {
    let operation = Operation::post("https://api.test/v1/orders?shop=7").unwrap();

    let at = StatusPath::new("/status/").unwrap().of(&operation).unwrap();

    assert_eq!(at, "https://api.test/status/v1/orders?shop=7");
    for wrong in ["", "status", "/a b", "/a?b", "https://other.test/"] {
        assert!(StatusPath::new(wrong).is_err(), "{wrong}");
    }
}
