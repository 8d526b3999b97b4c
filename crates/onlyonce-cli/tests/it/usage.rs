//! What makes no plan is said, with what to write instead; what cannot be used, with what to try.

use axum::Router;
use axum::http::StatusCode;
use axum::response::Redirect;
use axum::routing::post;

use crate::support::{plan, serve, try_verify};

const URL: &str = "http://127.0.0.1:8080/orders";

fn refused(url: &str, args: &[&str]) -> String {
    plan(url, args).err().unwrap()
}

#[test]
fn wrong_arguments_are_explained() {
    for (url, args, says) in [
        ("orders", &[][..], "give a whole URL"),
        ("ftp://example.org/", &[], "http:// or https://"),
        ("http://me:pw@example.org/", &[], "--header 'Authorization"),
        (URL, &["--profile=strippe"], "stripe"),
        (URL, &["--method=GET"], "POST, PUT, PATCH, DELETE"),
        (URL, &["--profile=stripe", "--method=PUT"], "may be POST"),
        (URL, &["--only=reply"], "did you mean replay?"),
        (URL, &["--skip=nothing-like-it"], "--list shows them all"),
        (URL, &["--only=replay", "--skip=replay"], "no check to run"),
        (URL, &["--body=no-such-file"], "neither JSON nor a file"),
        (URL, &["--body=@no-such-file"], "cannot read no-such-file"),
        (
            URL,
            &["--body={\"a\":1}", "--other-body={\"a\":1}"],
            "must differ",
        ),
        (URL, &["--header=Authorization"], "'Name: value'"),
        (URL, &["--header=Idempotency-Key: x"], "its own fresh keys"),
        (URL, &["--header=Content-Type: x"], "--content-type"),
        (URL, &["--concurrency=1"], "2..=256"),
        (URL, &["--timeout=0s"], "--timeout"),
        (URL, &["--slow-path=http://example.org/"], "same server"),
        (URL, &["--every=5s"], "--watch"),
    ] {
        let told = refused(url, args);

        assert!(told.contains(says), "{args:?}: {told}");
    }
}

#[test]
fn a_wrong_header_is_explained_without_its_value() {
    for line in [
        "Idempotency-Key: sesame",
        "Bearer sesame",
        "Authori zation: sesame",
        "Authorization: ses\name, sesame",
    ] {
        let told = refused(URL, &["--header", line]);

        assert!(!told.contains("sesame"), "{told}");
    }
}

#[test]
fn a_body_can_be_json_or_a_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "a=1").unwrap();
    let path = file.path().to_str().unwrap();

    assert!(plan(URL, &["--body={\"a\":1}"]).is_ok());
    assert!(plan(URL, &["--body", path]).is_ok());
    assert!(plan(URL, &["--body", &format!("@{path}")]).is_ok());
}

#[test]
fn a_body_file_is_bounded() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(64 << 20).unwrap();

    let told = refused(URL, &["--body", file.path().to_str().unwrap()]);

    assert!(told.contains("at most"), "{told}");
}

#[tokio::test]
async fn an_endpoint_that_cannot_be_used_says_what_to_try() {
    let app = Router::new()
        .route("/401", post(async || StatusCode::UNAUTHORIZED))
        .route(
            "/415",
            post(async || (StatusCode::UNSUPPORTED_MEDIA_TYPE, "send XML")),
        )
        .route("/500", post(async || StatusCode::INTERNAL_SERVER_ERROR))
        .route("/302", post(async || Redirect::to("/orders")))
        .route("/sleep", post(std::future::pending::<()>));
    let url = serve(app).await;
    let base = url.strip_suffix("/orders").unwrap();

    for (path, problem, hint) in [
        ("/401", "401", "--header 'Authorization"),
        ("/404", "404", "is the path right"),
        ("/415", "415: send XML", "--body and --content-type"),
        ("/500", "500", "look at its log"),
        ("/302", "303", "redirects are not followed"),
        ("/sleep", "no answer within 300ms", "--timeout"),
    ] {
        let unusable = try_verify(&format!("{base}{path}"), &["--timeout=300ms"]).await;
        let unusable = unusable.unwrap_err();

        assert!(unusable.problem.contains(problem), "{unusable}");
        assert!(unusable.hint.contains(hint), "{unusable}");
    }
}

#[tokio::test]
async fn an_endpoint_that_cannot_be_reached_says_what_to_try() {
    for (url, hint) in [
        ("http://127.0.0.1:1/orders", "is the server running"),
        ("http://no-such-host.invalid/orders", "host's name"),
        ("http://[::1]:1/orders", "?"),
    ] {
        let unusable = try_verify(url, &[]).await.unwrap_err();

        assert!(unusable.hint.contains(hint), "{unusable}");
    }
}
