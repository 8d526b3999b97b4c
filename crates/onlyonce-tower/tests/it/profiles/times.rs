//! Row "keys that carry their time": what is too old to be known is refused, not run again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onlyonce_core::policy::{KeyTime, KeyTimeRule};
use onlyonce_core::{Clock, Profile, Timestamp};

use super::{CONTRACTS, Contract, Refused};
use crate::support::{App, Ask, PATH, post, uuid};

const FIRST_SENT: &str = "repeatability-first-sent";
/// `Fri, 01 Dec 2023 00:00:00 GMT`.
const MADE_MILLIS: u64 = 1_701_388_800_000;
const MADE: &str = "Fri, 01 Dec 2023 00:00:00 GMT";
const MINUTE: u64 = 60_000;
const DAY: u64 = 24 * 60 * MINUTE;

/// A clock whose date a test sets.
#[derive(Debug)]
struct Dated(AtomicU64);

impl Dated {
    fn at(millis: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(millis)))
    }

    fn set(&self, millis: u64) {
        self.0.store(millis, Ordering::SeqCst);
    }
}

impl Clock for Dated {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

fn repeatable() -> &'static Contract {
    let contract = CONTRACTS
        .iter()
        .find(|it| it.profile.name() == "repeatable-requests");
    contract.expect("a contract")
}

fn ask(first_sent: &str) -> Ask {
    post(PATH).key(uuid(1)).header(FIRST_SENT, first_sent)
}

#[tokio::test]
async fn a_request_first_sent_too_long_ago_is_refused_even_after_its_answer_is_forgotten() {
    let (contract, clock) = (repeatable(), Dated::at(MADE_MILLIS));
    let app = App::under(contract.profile)
        .clock(clock.clone())
        .open()
        .await;
    let refused = Refused::no(412, "RepeatabilityFirstSentOutOfWindow");

    let first = app.send(&ask(MADE)).await;
    // The last moment at which it is taken: a day, less what a client's clock may be ahead.
    clock.set(MADE_MILLIS + DAY - 5 * MINUTE);
    let retry = app.send(&ask(MADE)).await;
    clock.set(MADE_MILLIS + DAY - 5 * MINUTE + 1);
    let late = app.send(&ask(MADE)).await;
    clock.set(MADE_MILLIS + 365 * DAY);
    let very_late = app.send(&ask(MADE)).await;

    assert_eq!((first.run(), retry.run()), (1, 1));
    contract.assert_refused(&late, refused);
    contract.assert_refused(&very_late, refused);
    assert!(late.text().contains("find out whether"), "{}", late.text());
    assert_eq!(app.runs(), 1);
}

#[tokio::test]
async fn a_request_from_the_future_is_refused_beyond_what_a_clock_may_be_wrong_by() {
    let (contract, clock) = (repeatable(), Dated::at(MADE_MILLIS - 5 * MINUTE - 1));
    let app = App::under(contract.profile)
        .clock(clock.clone())
        .open()
        .await;

    let early = app.send(&ask(MADE)).await;
    clock.set(MADE_MILLIS - 5 * MINUTE);
    let in_time = app.send(&ask(MADE)).await;

    let refused = Refused::no(412, "RepeatabilityFirstSentOutOfWindow");
    contract.assert_refused(&early, refused);
    assert!(early.text().contains("set the client's clock"));
    assert_eq!((in_time.run(), app.runs()), (1, 1));
}

#[tokio::test]
async fn both_headers_are_needed_and_neither_is_no_repeatable_request() {
    let contract = repeatable();
    let clock = Dated::at(MADE_MILLIS);
    let app = App::under(contract.profile)
        .clock(clock)
        .untimed()
        .open()
        .await;

    for bad in [
        post(PATH).key(uuid(1)),
        post(PATH).header(FIRST_SENT, MADE),
        ask("yesterday"),
        ask("2023-12-01T00:00:00Z"),
        ask(MADE).header(FIRST_SENT, MADE),
    ] {
        contract.assert_refused(&app.send(&bad).await, contract.bad_key);
    }
    assert_eq!(app.runs(), 0);
    let passes = app.send(&post(PATH)).await;
    assert_eq!(
        (passes.run(), passes.header("repeatability-result")),
        (1, None)
    );
}

#[tokio::test]
async fn a_retry_with_another_date_is_another_request() {
    let contract = repeatable();
    let app = App::under(contract.profile)
        .clock(Dated::at(MADE_MILLIS))
        .open()
        .await;
    app.send(&ask(MADE)).await;

    let other = app.send(&ask("Fri, 01 Dec 2023 00:00:01 GMT")).await;

    let super::OtherPayload::Refused(refused) = contract.mismatch else {
        panic!("payloads are compared");
    };
    contract.assert_refused(&other, refused);
}

#[tokio::test]
async fn two_clients_of_one_caller_are_kept_apart_by_their_id() {
    let app = App::under(repeatable().profile)
        .clock(Dated::at(MADE_MILLIS))
        .open()
        .await;
    let of = |client: &str| ask(MADE).header("repeatability-client-id", client);

    let runs = [
        app.send(&of("a")).await.run(),
        app.send(&of("b")).await.run(),
        app.send(&of("a")).await.run(),
        app.send(&ask(MADE)).await.run(),
    ];

    assert_eq!(runs, [1, 2, 1, 3]);
}

#[tokio::test]
async fn a_uuid_of_version_7_is_refused_when_its_answer_may_be_forgotten() {
    let clock = Dated::at(MADE_MILLIS);
    let app = App::under(Profile::Standard)
        .but(|policy| {
            policy.http.key_time = Some(KeyTimeRule {
                from: KeyTime::UuidV7,
                ahead_max: Duration::from_secs(60),
            });
            policy.http.key_member = "/key".parse().ok();
        })
        .clock(clock.clone())
        .open()
        .await;
    // Its first 48 bits are the time.
    let key = "018c22ac-d000-7000-8000-000000001234";
    let member = format!(r#"{{"key":"{key}"}}"#);

    let first = app.send(&post(PATH).key(key)).await;
    let random = app.send(&post(PATH).key(uuid(1))).await;
    let in_body = app
        .send(&post("/other").json(&member.replace("1234", "1235")))
        .await;
    clock.set(MADE_MILLIS + 2 * DAY);
    let late = app.send(&post(PATH).key(key)).await;
    let late_in_body = app.send(&post(PATH).json(&member)).await;

    assert_eq!((first.run(), in_body.run(), app.runs()), (1, 2, 2));
    let types = [random, late, late_in_body].map(|it| (it.status, it.json()["type"].clone()));
    let out_of_time = (400, "urn:onlyonce:problem:key-out-of-time".into());
    let bad = (400, "urn:onlyonce:problem:bad-key".into());
    assert_eq!(types, [bad, out_of_time.clone(), out_of_time]);
}
