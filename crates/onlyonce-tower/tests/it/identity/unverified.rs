//! A JWT that nobody has verified gives the address, and then only its own bearer gets further:
//! another credential of the same issuer and subject neither runs nor replays.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use onlyonce_core::{MemoryStore, OnLapse, Profile, Reason};
use serde_json::{Value, json};

use super::runs_of;
use crate::support::{Answer, App, Broken, Gate, PATH, numbered, post, uuid};

/// A token that says so, signed by whoever it is.
fn token(claims: &Value, signature: &str) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let header = part(&json!({"alg": "RS256", "typ": "JWT"}));
    format!("{header}.{}.{signature}", part(claims))
}

/// Alice's token; and two that are Alice's too, or say so.
fn alice() -> [String; 3] {
    let claims = |exp: u64| json!({"iss": "https://login", "sub": "alice", "exp": exp});
    [
        token(&claims(1), "genuine"),
        token(&claims(1), "forged"),
        token(&claims(2), "refreshed"),
    ]
}

/// Asserts the 409 of another credential, with a hint at what to do.
fn assert_other_credential(profile: Profile, answer: &Answer) {
    let text = answer.text();
    assert_eq!(answer.status, 409, "{profile}: {text}");
    assert!(text.contains("another credential"), "{profile}: {text}");
    assert!(text.contains("the original one"), "{profile}: {text}");
    assert_eq!(answer.header("retry-after"), None, "{profile}");
    let mut marks = answer.marks();
    // The sender of a refused request gets its own key back where the contract says so.
    if !profile.policy().http.refusal_marks.is_empty() {
        marks.remove("idempotency-key");
        marks.remove("repeatability-result");
    }
    assert!(marks.is_empty(), "{profile}: {marks:?}");
}

#[tokio::test]
async fn another_credential_of_the_same_subject_does_not_replay_a_finished_record() {
    for profile in Profile::ALL {
        for status in [200, 404, 500] {
            if !profile.policy().stored.stores(status) {
                continue;
            }
            let app = App::under(profile)
                .answer(move |run| numbered(status, run))
                .open()
                .await;
            let request = post(PATH).key(uuid(1));
            let [own, forged, refreshed] = alice().map(|it| request.clone().bearer(&it));
            app.send(&own).await;

            assert_other_credential(profile, &app.send(&forged).await);
            assert_other_credential(profile, &app.send(&refreshed).await);

            let retry = app.send(&own).await;
            assert_eq!((retry.run(), app.runs()), (1, 1), "{profile}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn another_credential_neither_waits_for_nor_joins_a_running_request() {
    for profile in Profile::ALL {
        let (store, gate) = (Arc::new(MemoryStore::new()), Gate::new());
        let app = App::under(profile)
            .store(store.clone())
            .gate(&gate)
            .open()
            .await;
        let other_process = App::under(profile).store(store).open().await;
        let request = post(PATH).key(uuid(1));
        let [own, forged, refreshed] = alice().map(|it| request.clone().bearer(&it));
        let original = app.spawn(&own);
        gate.entered().await;

        for process in [&app, &other_process] {
            assert_other_credential(profile, &process.send(&forged).await);
            assert_other_credential(profile, &process.send(&refreshed).await);
        }

        gate.open();
        assert_eq!(original.await.unwrap().run(), 1);
        assert_eq!((app.runs(), other_process.runs()), (1, 0), "{profile}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_credential_does_not_take_over_a_lapsed_or_unknown_outcome() {
    for profile in Profile::ALL {
        for on_lapse in [OnLapse::Rerun, OnLapse::Hold] {
            let app = App::under(profile)
                .but(|policy| policy.on_lapse = on_lapse)
                .handler(|run, _| async move {
                    match run {
                        1 => Err(Broken("gone half-way")),
                        _ => Ok(numbered(200, run)),
                    }
                })
                .open()
                .await;
            let request = post(PATH).key(uuid(1));
            let [own, forged, refreshed] = alice().map(|it| request.clone().bearer(&it));
            app.try_send(&own).await.unwrap_err();
            tokio::time::advance(Duration::from_secs(60)).await;

            assert_other_credential(profile, &app.send(&forged).await);
            assert_other_credential(profile, &app.send(&refreshed).await);

            assert_eq!(app.runs(), 1, "{profile}");
            let retry = app.send(&own).await;
            match on_lapse {
                OnLapse::Rerun => assert_eq!((retry.status, retry.run()), (200, 2)),
                OnLapse::Hold => {
                    let refusals = profile.policy().http.refusals;
                    let told = refusals.row(Reason::OutcomeUnknown).status;
                    assert_eq!((retry.status, app.runs()), (told, 1), "{profile}");
                }
            }
        }
    }
}

#[tokio::test]
async fn another_credential_with_another_payload_learns_nothing_more() {
    let app = App::under(Profile::Standard).open().await;
    let request = post(PATH).key("k");
    let [own, forged, _] = alice().map(|it| request.clone().bearer(&it));
    app.send(&own).await;

    let other = app.send(&forged.json(r#"{"amount":6}"#)).await;

    assert_other_credential(Profile::Standard, &other);
}

#[tokio::test]
async fn another_subject_or_issuer_is_another_caller() {
    let app = App::under(Profile::Standard).open().await;
    let by = |claims: Value| post(PATH).key("k").bearer(&token(&claims, "s"));
    let alice = by(json!({"iss": "one", "sub": "alice"}));
    let bob = by(json!({"iss": "one", "sub": "bob"}));
    let elsewhere = by(json!({"iss": "two", "sub": "alice"}));
    let nowhere = by(json!({"sub": "alice"}));

    let requests = [&alice, &bob, &elsewhere, &nowhere];

    assert_eq!(runs_of(&app, requests).await, [1, 2, 3, 4]);
    assert_eq!(runs_of(&app, requests).await, [1, 2, 3, 4]);
}

#[tokio::test]
async fn what_is_no_jwt_or_names_nobody_is_an_opaque_token() {
    let app = App::under(Profile::Standard).open().await;
    let nameless = json!({"iss": "one"});
    let tokens = [
        token(&nameless, "a"),
        token(&nameless, "b"),
        "e30.not-base64!.s".to_owned(),
        "e30.bm90IGpzb24.s".to_owned(),
        format!("{}.five.parts", token(&nameless, "a")),
    ];

    for (run, token) in (1..).zip(&tokens) {
        let request = post(PATH).key("k").bearer(token);

        assert_eq!(runs_of(&app, [&request, &request]).await, [run, run]);
    }
}

#[tokio::test]
async fn a_record_remembers_the_subject_and_only_a_digest_of_the_credential() {
    let app = App::under(Profile::Standard).open().await;
    let [own, ..] = alice();

    app.send(&post(PATH).key("k").bearer(&own)).await;

    let record = app.record().await;
    assert_eq!(record.meta.actor.as_deref(), Some("alice"));
    assert!(record.meta.credential.is_some());
    assert!(!format!("{record:?}").contains("genuine"));
}
