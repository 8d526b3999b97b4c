//! Rows "replay status", "replay marks" and "marks on the first answer".

use std::collections::BTreeMap;

use onlyonce_core::Record;

use super::{CONTRACTS, Mark, ReplayStatus};
use crate::support::{App, PATH, numbered, post, uuid};

const DAY_MILLIS: u64 = 24 * 60 * 60 * 1000;

/// The marks a profile promises, about this record.
fn marks(promised: &[Mark], key: &str, record: &Record) -> BTreeMap<&'static str, String> {
    promised
        .iter()
        .map(|mark| match mark {
            Mark::Flag(name) => (*name, "true".to_owned()),
            Mark::Text(name, text) => (*name, (*text).to_owned()),
            Mark::Key => ("idempotency-key", key.to_owned()),
            Mark::Expires(name) => (*name, record.expires_at.to_string()),
            Mark::OriginalTime => ("x-original-request-time", record.created_at.to_string()),
        })
        .collect()
}

/// RFC 3339 in UTC with milliseconds.
fn is_timestamp(text: &str) -> bool {
    let digits = |c: char| if c.is_ascii_digit() { '0' } else { c };
    text.chars().map(digits).collect::<String>() == "0000-00-00T00:00:00.000Z"
}

#[tokio::test]
async fn a_replay_has_the_status_the_profile_says() {
    for contract in &CONTRACTS {
        for status in [200, 201, 202, 204, 206, 299, 302, 404, 422, 500] {
            if contract.not_stored.contains(&status) {
                continue;
            }
            let app = App::under(contract.profile)
                .answer(move |run| numbered(status, run))
                .open()
                .await;
            let request = post(PATH).key(uuid(1));

            let first = app.send(&request).await;
            let replay = app.send(&request).await;

            let is_changed = contract.replay_status == ReplayStatus::Ok
                && (200..300).contains(&status)
                && status != 204;
            let expected = if is_changed { 200 } else { status };
            assert_eq!(first.status, status, "{}", contract.profile);
            assert_eq!(replay.status, expected, "{}: {status}", contract.profile);
            assert_eq!(app.runs(), 1, "{}: {status}", contract.profile);
        }
    }
}

#[tokio::test]
async fn the_first_answer_and_the_replay_carry_their_profile_s_marks_and_no_others() {
    for contract in &CONTRACTS {
        let app = App::under(contract.profile).open().await;
        let request = post(PATH).key(uuid(1));

        let first = app.send(&request).await;
        let replay = app.send(&request).await;

        let (profile, record) = (contract.profile, app.record().await);
        let on_first = marks(contract.first_marks, &uuid(1), &record);
        let on_replay = marks(contract.replay_marks, &uuid(1), &record);
        assert_eq!(first.marks(), on_first, "{profile}");
        assert_eq!(replay.marks(), on_replay, "{profile}");
    }
}

#[tokio::test]
async fn times_are_shown_in_utc_with_milliseconds_and_expiry_is_a_day_after_storing() {
    for contract in &CONTRACTS {
        let app = App::under(contract.profile).open().await;
        let request = post(PATH).key(uuid(1));

        let answers = [app.send(&request).await, app.send(&request).await];

        for answer in &answers {
            for name in [
                "idempotency-expires",
                "x-idempotent-expires",
                "x-original-request-time",
            ] {
                let shown = answer.header(name);
                assert!(shown.is_none_or(is_timestamp), "{name}: {shown:?}");
            }
        }
        let record = app.record().await;
        let completed_at = record.completed_at.unwrap().as_millis();
        let kept = u64::from(contract.kept_days) * DAY_MILLIS;
        assert_eq!(record.expires_at.as_millis(), completed_at + kept);
    }
}

#[tokio::test]
async fn the_key_is_echoed_as_its_sender_wrote_it() {
    for contract in &CONTRACTS {
        let app = App::under(contract.profile).open().await;
        let (bare, quoted) = (uuid(1), format!("\"{}\"", uuid(1)));

        let first = app.send(&post(PATH).key(&quoted)).await;
        let replay = app.send(&post(PATH).key(&bare)).await;

        let (profile, record) = (contract.profile, app.record().await);
        let on_first = marks(contract.first_marks, &quoted, &record);
        let on_replay = marks(contract.replay_marks, &bare, &record);
        assert_eq!(first.marks(), on_first, "{profile}");
        assert_eq!(replay.marks(), on_replay, "{profile}");
    }
}

#[tokio::test]
async fn a_replay_has_the_same_bytes_unless_the_marks_are_in_the_body() {
    for contract in &CONTRACTS {
        let app = App::under(contract.profile).open().await;
        let request = post(PATH).key(uuid(1));

        let first = app.send(&request).await;
        let replay = app.send(&request).await;

        if contract.profile.name() == "broker" {
            let submitted_at = app.record().await.created_at.to_string();
            assert!(is_timestamp(&submitted_at));
            let body = replay.json();
            assert_eq!(body["idempotent"], true);
            assert_eq!(body["originalSubmittedAt"], submitted_at);
            assert_eq!(
                body["message"],
                "This submission was already processed. Returning original response."
            );
            assert_eq!(first.text(), r#"{"run":1}"#);
        } else {
            assert_eq!(replay.body, first.body, "{}", contract.profile);
        }
        assert_eq!(
            replay.header("content-type"),
            first.header("content-type"),
            "{}",
            contract.profile
        );
    }
}
