//! What a scope asks for and cannot read, or reads in two ways, is refused: its sender is never taken
//! for an anonymous caller, nor for another one.

use http::header::AUTHORIZATION;
use onlyonce_core::Profile;
use onlyonce_tower::ScopePart;

use super::{header, runs_of};
use crate::support::{App, Ask, PATH, post, uuid};

async fn by_cookie() -> App {
    App::under(Profile::Standard)
        .scope([ScopePart::Cookie("sid".into())])
        .open()
        .await
}

fn with(cookies: &[u8]) -> Ask {
    post(PATH).key("k").header("cookie", cookies)
}

/// Asserts that it is refused, for a reason that names `word`.
async fn assert_unscoped(app: &App, request: &Ask, word: &str) {
    let before = app.runs();
    let answer = app.send(request).await;
    assert_eq!((answer.status, app.runs()), (400, before), "{word}");
    assert!(answer.text().contains(word), "{}", answer.text());
}

#[tokio::test]
async fn a_byte_that_is_no_ascii_in_the_cookie_line_does_not_make_its_caller_anonymous() {
    let app = by_cookie().await;
    let alice = with(b"name=J\xfcrgen; sid=a1");
    let alice_elsewhere = with(b"sid=a1; name=J\xc3\xbcrgen");
    let bob = with(b"name=J\xfcrgen; sid=b1");
    let anonymous = post(PATH).key("k");

    let runs = runs_of(&app, [&alice, &bob, &anonymous, &alice_elsewhere]).await;

    assert_eq!(runs, [1, 2, 3, 1]);
}

#[tokio::test]
async fn a_session_of_any_bytes_is_its_own_caller() {
    let app = by_cookie().await;
    let (one, two) = (with(b"sid=\xfc"), with(b"sid=\xe4"));

    assert_eq!(runs_of(&app, [&one, &two, &one]).await, [1, 2, 1]);
}

#[tokio::test]
async fn spaces_around_a_cookie_do_not_hide_it() {
    let app = by_cookie().await;
    let (plain, spaced) = (with(b"sid=a1"), with(b"theme=dark ;  sid = a1 "));

    assert_eq!(runs_of(&app, [&plain, &spaced]).await, [1, 1]);
}

#[tokio::test]
async fn a_cookie_that_was_sent_twice_or_without_a_value_is_refused() {
    let app = by_cookie().await;
    let two_lines = with(b"sid=a1").header("cookie", b"x=\xfc; sid=b1");

    for request in [with(b"sid=a1; sid=a1"), with(b"sid=\xfc; sid=b"), two_lines] {
        assert_unscoped(&app, &request, "more than once").await;
    }
    assert_unscoped(&app, &with(b"theme=dark; sid"), "without a value").await;
}

/// A session that was ended is often an empty cookie: it names nobody, and all who have one would
/// be the same caller.
#[tokio::test]
async fn an_empty_cookie_or_trusted_header_leaves_it_to_the_credential() {
    for (part, name, value) in [
        (ScopePart::Cookie("sid".into()), "cookie", "sid="),
        (header("x-user", true), "x-user", ""),
    ] {
        let app = App::under(Profile::Standard).scope([part]).open().await;
        let empty = post(PATH).key("k").header(name, value);
        let (alice, bob) = (empty.clone().bearer("alice"), empty.bearer("bob"));

        assert_eq!(runs_of(&app, [&alice, &bob, &alice]).await, [1, 2, 1]);
    }
}

#[tokio::test]
async fn an_authorization_without_a_credential_is_refused() {
    for profile in Profile::ALL {
        let app = App::under(profile).open().await;
        for value in ["", "Bearer", "bearer ", "Basic"] {
            let request = post(PATH).key(uuid(1)).header(AUTHORIZATION, value);

            assert_unscoped(&app, &request, "without a credential").await;
        }
    }
}

#[tokio::test]
async fn a_tab_does_not_hide_that_a_credential_differs_with_every_request() {
    let app = App::under(Profile::Standard).open().await;
    let request = post(PATH)
        .key("k")
        .header(AUTHORIZATION, "Digest\tnonce=\"1\"");

    assert_unscoped(&app, &request, "Digest").await;
}

#[tokio::test]
async fn a_member_of_the_body_that_cannot_be_read_is_refused() {
    let app = App::under(Profile::Standard)
        .scope([ScopePart::Body("tenant".into())])
        .open()
        .await;
    let request = post(PATH).key("k");
    let form = request
        .clone()
        .body("application/x-www-form-urlencoded", "tenant=acme");

    for request in [
        form,
        request.clone().json(r#"{"tenant":"acme""#),
        request.clone().json(r#"["tenant"]"#),
        request
            .clone()
            .json(r#"{"tenant":"acme","tenant":"globex"}"#),
    ] {
        assert_unscoped(&app, &request, "tenant").await;
    }
    let empty = request.body("application/json", "");
    assert_eq!(app.send(&empty).await.status, 200);
}

#[tokio::test]
async fn two_host_lines_are_refused() {
    let app = App::under(Profile::Standard).open().await;
    let request = post(PATH)
        .key("k")
        .header("host", "one.example")
        .header("host", "two.example");

    assert_unscoped(&app, &request, "host").await;
}
