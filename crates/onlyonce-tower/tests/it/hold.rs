//! `hold`: an operation that may have begun is not run again, whatever it was answered with.

use onlyonce_core::policy::Fate;
use onlyonce_core::{OnLapse, Profile, Reason, Release, State};

use crate::support::{App, Broken, PATH, numbered, post, uuid};

/// What a client sees of its first answer and of a retry, and what is kept in between.
#[tokio::test]
async fn under_hold_only_an_answer_from_before_the_work_gives_the_key_back() {
    for profile in Profile::ALL {
        for status in [200, 400, 401, 404, 408, 409, 422, 429, 500, 502, 503, 504] {
            let app = App::under(profile)
                .but(|policy| policy.on_lapse = OnLapse::Hold)
                .answer(move |run| numbered(status, run))
                .open()
                .await;
            let request = post(PATH).key(uuid(1));
            let first = app.send(&request).await;
            let records = app.records().await;

            let retry = app.send(&request).await;

            let rule = profile.policy().stored;
            let what = format!("{profile} {status}");
            assert_eq!((first.status, first.run()), (status, 1), "{what}");
            match rule.fate(status, OnLapse::Hold) {
                Fate::Stored => assert_eq!((retry.run(), app.runs()), (1, 1), "{what}"),
                Fate::Released => {
                    assert!(rule.except.contains(&status), "{what}");
                    assert_eq!((retry.run(), records.len()), (2, 0), "{what}");
                }
                Fate::InDoubt => {
                    assert!(matches!(records[0].state, State::Unknown), "{what}");
                    let refusals = profile.policy().http.refusals;
                    let told = refusals.row(Reason::OutcomeUnknown).status;
                    assert_eq!((retry.status, app.runs()), (told, 1), "{what}");
                    assert!(retry.text().contains("operator"), "{what}");
                }
            }
        }
    }
}

#[tokio::test]
async fn under_rerun_every_answer_that_is_not_stored_gives_the_key_back() {
    for profile in Profile::ALL {
        let rule = profile.policy().stored;
        for status in 100..600 {
            let fate = rule.fate(status, OnLapse::Rerun);
            let is_stored = rule.stores(status);
            assert_eq!(fate == Fate::Stored, is_stored, "{profile} {status}");
            assert_eq!(fate == Fate::Released, !is_stored, "{profile} {status}");
        }
    }
}

/// The service itself says that it may run again.
#[tokio::test]
async fn under_hold_an_answer_that_opts_out_gives_the_key_back() {
    let app = App::under(Profile::Standard)
        .but(|policy| policy.on_lapse = OnLapse::Hold)
        .answer(|run| {
            let mut response = numbered(500, run);
            let no = http::HeaderValue::from_static("no");
            response.headers_mut().insert("idempotency-store", no);
            response
        })
        .open()
        .await;
    let request = post(PATH).key("k");

    assert_eq!(app.send(&request).await.run(), 1);
    assert_eq!(app.send(&request).await.run(), 2);
}

/// The first attempt may have taken effect. That a later one did not start does not change that.
#[tokio::test]
async fn an_attempt_that_did_not_start_does_not_forget_the_one_before() {
    let app = App::under(Profile::Standard)
        .handler(|run, _| async move {
            match run {
                1 => Err(Broken("gone half-way")),
                2 => Err(Broken("not reached")),
                3 => Ok(numbered(503, run)),
                _ => Ok(numbered(200, run)),
            }
        })
        .classify(|error| match error.0 {
            "not reached" => Release::NotRun,
            _ => Release::Unknown,
        })
        .open()
        .await;
    let request = post(PATH).key("k");
    let other = post(PATH).key("k").json(r#"{"amount":6}"#);

    for attempt in 1..=3 {
        drop(app.try_send(&request).await);
        assert_eq!(app.record().await.attempt, attempt);
        assert_eq!(app.send(&other).await.status, 422, "{attempt}");
    }
    assert_eq!(app.send(&request).await.run(), 4);
}
