//! Requests whose bodies have a content coding: where members of the body say which key counts, or whose
//! request it is, they are refused; elsewhere their bytes are what is compared.

use http::header::CONTENT_ENCODING;
use onlyonce_core::fingerprint::FingerprintRule;
use onlyonce_core::policy::KeyFirst;
use onlyonce_core::{Policy, Profile, Reason};
use onlyonce_tower::ScopePart;

use crate::support::{App, Ask, post};

/// What nobody but the service reads: with the layer it may as well be no gzip.
const PACKED: &[u8] = b"\x1f\x8b\x08 packed";

fn packed(coding: &str) -> Ask {
    post("/orders")
        .body("application/json", PACKED)
        .header(CONTENT_ENCODING, coding)
}

fn body_key(policy: &mut Policy) {
    policy.http.key_member = "/key".parse().ok();
}

#[tokio::test]
async fn an_encoded_body_that_may_hold_the_key_is_refused_and_nothing_runs() {
    for coding in ["gzip", "br", "identity, GZIP", "x-unheard-of"] {
        let app = App::under(Profile::Standard).but(body_key).open().await;

        let answer = app.send(&packed(coding)).await;

        assert_eq!((answer.status, app.runs()), (415, 0), "{coding}");
        assert_eq!(
            answer.json()["type"],
            "urn:onlyonce:problem:request-encoded"
        );
        assert_eq!(answer.json()["retryable"], false);
    }
    let identity = post("/orders")
        .json(r#"{"key":"k"}"#)
        .header(CONTENT_ENCODING, "identity");
    let app = App::under(Profile::Standard).but(body_key).open().await;
    for _ in 0..2 {
        assert_eq!(app.send(&identity).await.run(), 1);
    }
}

/// Each in its own words.
#[tokio::test]
async fn every_profile_that_reads_the_body_for_the_key_says_so() {
    for profile in Profile::ALL {
        if !profile.policy().http.may_be_in_body() {
            continue;
        }
        let app = App::under(profile).open().await;
        let answer = app.send(&packed("gzip")).await;

        let reason = Reason::named("request-encoded").unwrap();
        let code = profile.policy().http.refusals.row(reason).code.clone();
        assert_eq!((answer.status, app.runs()), (415, 0), "{profile}");
        assert!(
            answer.text().contains(&*code),
            "{profile}: {}",
            answer.text()
        );
    }
}

#[tokio::test]
async fn a_key_in_the_header_that_counts_first_needs_no_body() {
    let app = App::under(Profile::Standard).but(body_key).open().await;
    for _ in 0..2 {
        assert_eq!(app.send(&packed("gzip").key("k")).await.run(), 1);
    }

    let body_first = |policy: &mut Policy| {
        body_key(policy);
        policy.http.key_first = KeyFirst::Body;
    };
    let app = App::under(Profile::Standard).but(body_first).open().await;
    let answer = app.send(&packed("gzip").key("k")).await;
    assert_eq!((answer.status, app.runs()), (415, 0));
}

#[tokio::test]
async fn an_encoded_body_that_says_whose_request_it_is_is_refused() {
    let session = [ScopePart::Caller, ScopePart::Body("session".into())];
    let app = App::under(Profile::Standard).scope(session).open().await;

    let answer = app.send(&packed("gzip").key("k")).await;

    assert_eq!((answer.status, app.runs()), (415, 0));
    // Without a key it is nobody's record.
    assert_eq!(app.send(&packed("gzip")).await.run(), 1);
}

/// Also where only some members of a body count: of an encoded one all bytes do.
#[tokio::test]
async fn encoded_bodies_are_compared_by_their_bytes() {
    let some = |policy: &mut Policy| {
        policy.fingerprint = FingerprintRule {
            only: vec!["/amount".parse().unwrap()],
            ..FingerprintRule::default()
        };
    };
    let app = App::under(Profile::Standard).but(some).open().await;
    let other = post("/orders")
        .body("application/json", &b"\x1f\x8b\x08 packed another time"[..])
        .header(CONTENT_ENCODING, "gzip")
        .key("k");

    for _ in 0..2 {
        assert_eq!(app.send(&packed("gzip").key("k")).await.run(), 1);
    }
    let another = app.send(&other).await;
    let unpacked = post("/orders").body("application/json", PACKED).key("k");

    assert_eq!((another.status, app.runs()), (422, 1));
    assert_eq!(app.send(&unpacked).await.status, 422);
}
