//! What one caller may take of the store, and how often it may be wrong.

use std::num::NonZeroU32;
use std::time::Duration;

use onlyonce_core::Profile;
use onlyonce_tower::{Allowance, AllowanceRule, ScopePart};

use crate::support::{App, PATH, numbered, post, uuid};

const MINUTE: Duration = Duration::from_secs(60);

fn keys(keys_max: u64) -> Allowance {
    Allowance::new(AllowanceRule {
        keys_max: Some(keys_max),
        ..AllowanceRule::default()
    })
}

fn mistakes(a_minute: u32) -> Allowance {
    Allowance::new(AllowanceRule {
        bad_requests_a_minute: NonZeroU32::new(a_minute).unwrap(),
        ..AllowanceRule::default()
    })
}

fn retry_after(answer: &crate::support::Answer) -> u64 {
    let seconds = answer.header("retry-after").expect("Retry-After");
    seconds.parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_new_keys_by_one_caller_leaves_room_for_others() {
    for profile in Profile::ALL {
        let app = App::under(profile).allowance(keys(2)).open().await;
        let flood = |n| post(PATH).key(uuid(n)).principal("mallory");
        for n in 1..=2 {
            assert_eq!(app.send(&flood(n)).await.status, 200, "{profile}");
        }

        let refused = app.send(&flood(3)).await;

        assert_eq!(refused.status, 429, "{profile}");
        let kept = profile.policy().keep_for.as_secs();
        assert!(retry_after(&refused) <= kept + 2 * 3600, "{profile}");
        assert_eq!(app.records().await.len(), 2, "{profile}");
        let other = post(PATH).key(uuid(3)).principal("alice");
        assert_eq!(app.send(&other).await.run(), 3, "{profile}");
    }
}

#[tokio::test(start_paused = true)]
async fn replays_never_count_and_are_never_refused() {
    let app = App::under(Profile::Standard)
        .allowance(keys(2))
        .open()
        .await;
    let ask = |n| post(PATH).key(uuid(n)).principal("alice");
    for _ in 0..5 {
        assert_eq!(app.send(&ask(1)).await.run(), 1);
    }
    assert_eq!(app.send(&ask(2)).await.run(), 2);
    assert_eq!(app.send(&ask(3)).await.status, 429);

    for n in 1..=2 {
        assert_eq!(app.send(&ask(n)).await.run(), n);
    }
}

#[tokio::test(start_paused = true)]
async fn room_comes_back_when_records_expire() {
    let app = App::under(Profile::Standard)
        .but(|policy| policy.keep_for = MINUTE)
        .allowance(keys(1))
        .open()
        .await;
    let ask = |n| post(PATH).key(uuid(n)).principal("alice");
    app.send(&ask(1)).await;
    let refused = app.send(&ask(2)).await;
    assert_eq!(refused.status, 429);

    tokio::time::advance(Duration::from_secs(retry_after(&refused))).await;

    assert_eq!(app.send(&ask(2)).await.run(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_stored_does_not_count() {
    let app = App::under(Profile::Standard)
        .answer(|run| numbered(503, run))
        .allowance(keys(1))
        .open()
        .await;

    for n in 1..=5 {
        assert_eq!(app.send(&post(PATH).key(uuid(n))).await.status, 503);
    }

    assert_eq!(app.runs(), 5);
}

#[tokio::test(start_paused = true)]
async fn the_bytes_of_answers_are_bounded_too() {
    let allowance = Allowance::new(AllowanceRule {
        bytes_max: Some(10_000),
        ..AllowanceRule::default()
    });
    let app = App::under(Profile::Standard)
        .answer(|_| http::Response::new("x".repeat(6_000).into()))
        .allowance(allowance)
        .open()
        .await;

    let mut statuses = Vec::new();
    for n in 1..=3 {
        statuses.push(app.send(&post(PATH).key(uuid(n))).await.status);
    }

    assert_eq!(statuses, [200, 200, 429]);
}

#[tokio::test(start_paused = true)]
async fn who_sends_too_many_bad_keys_is_paused() {
    let app = App::under(Profile::Standard)
        .allowance(mistakes(3))
        .open()
        .await;
    let bad = post(PATH).key("\"broken").principal("mallory");
    for _ in 0..3 {
        assert_eq!(app.send(&bad).await.status, 400);
    }

    let paused = app.send(&bad).await;
    let good = post(PATH).key("a-good-key").principal("mallory");

    assert_eq!(paused.status, 429);
    assert_eq!(retry_after(&paused), 20);
    assert_eq!(app.send(&good).await.status, 429);
    assert_eq!(app.runs(), 0);
    let other = post(PATH).key("a-good-key").principal("alice");
    assert_eq!(app.send(&other).await.status, 200);
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!(app.send(&good).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn who_guesses_at_used_keys_is_paused_before_the_guess_is_right() {
    for profile in Profile::ALL {
        if matches!(profile, Profile::Broker | Profile::Guardian) {
            // The body is not part of what it compares: nothing can be guessed wrongly.
            continue;
        }
        let app = App::under(profile).allowance(mistakes(2)).open().await;
        let right = post(PATH).key(uuid(1)).principal("mallory");
        app.send(&right).await;
        let wrong = right.clone().json(r#"{"amount":6}"#);
        for _ in 0..2 {
            assert_ne!(app.send(&wrong).await.status, 429, "{profile}");
        }

        assert_eq!(app.send(&wrong).await.status, 429, "{profile}");
        assert_eq!(app.send(&right).await.status, 429, "{profile}");
    }
}

/// D3's load test as it is written: every tenth request repeats an earlier key with a new payload.
#[tokio::test(start_paused = true)]
async fn ten_thousand_guardian_requests_with_a_tenth_of_retries_are_all_answered() {
    const REQUESTS: u64 = 10_000;
    let app = App::under(Profile::Guardian)
        .allowance(Allowance::new(AllowanceRule::default()))
        .open()
        .await;
    let mut seed = 0x5eed_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    let mut recent = Vec::new();

    for i in 0..REQUESTS {
        let is_retry = random(10) == 0 && !recent.is_empty();
        let key = if is_retry {
            recent[usize::try_from(random(recent.len() as u64)).unwrap()]
        } else {
            i
        };
        let body = format!(r#"{{"email":"user{i}@example.com"}}"#);
        let request = post("/api/v1/users").key(uuid(key)).principal("user-7");

        let answer = app.send(&request.json(&body)).await;

        assert_eq!(answer.status, 200, "{}", answer.text());
        recent.push(key);
    }

    let hits = REQUESTS - app.runs() as u64;
    assert!((900..1100).contains(&hits), "{hits}");
}

#[tokio::test(start_paused = true)]
async fn made_up_credentials_from_one_address_are_one_caller() {
    let app = App::under(Profile::Standard)
        .allowance(keys(2))
        .open()
        .await;
    let ask = |n: u64, address| {
        post(PATH)
            .key(uuid(n))
            .bearer(&format!("made-up-{n}"))
            .from(address)
    };
    for n in 1..=2 {
        assert_eq!(app.send(&ask(n, "2001:db8::1")).await.status, 200);
    }

    assert_eq!(app.send(&ask(3, "2001:db8::2")).await.status, 429);
    assert_eq!(app.send(&ask(4, "2001:db8:1::1")).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn another_rule_forgets_nothing_that_was_used() {
    let allowance = keys(2);
    let app = App::under(Profile::Standard)
        .allowance(allowance.clone())
        .open()
        .await;
    app.send(&post(PATH).key(uuid(1))).await;

    let rule = AllowanceRule {
        keys_max: Some(1),
        ..AllowanceRule::default()
    };
    let stricter = App::under(Profile::Standard)
        .store(std::sync::Arc::clone(app.engine.store()))
        .allowance(allowance.under(rule))
        .open()
        .await;

    assert_eq!(stricter.send(&post(PATH).key(uuid(2))).await.status, 429);
}

#[tokio::test(start_paused = true)]
async fn one_who_is_wrong_behind_a_proxy_does_not_pause_the_others() {
    const PROXY: &str = "192.0.2.7";
    let app = App::under(Profile::Standard)
        .allowance(mistakes(2))
        .open()
        .await;
    let by = |token: &str| post(PATH).bearer(token).from(PROXY);
    let bad = by("mallory").key("\"broken");
    for status in [400, 400, 429] {
        assert_eq!(app.send(&bad).await.status, status);
    }

    assert_eq!(app.send(&by("alice").key("a-good-key")).await.status, 200);
    assert_eq!(app.send(&by("mallory").key("a-good-key")).await.status, 429);
}

#[tokio::test(start_paused = true)]
async fn guesses_at_a_subject_that_is_only_claimed_count_by_address() {
    // Anyone can claim to be this subject, in ever new tokens.
    let token = |n: u64| format!("e30.eyJzdWIiOiJhbGljZSJ9.{n}");
    let app = App::under(Profile::Standard)
        .allowance(mistakes(2))
        .open()
        .await;
    let ask = |n, address| post(PATH).key(uuid(1)).bearer(&token(n)).from(address);
    assert_eq!(app.send(&ask(0, "192.0.2.1")).await.status, 200);

    for (n, status) in [(1, 409), (2, 409), (3, 429)] {
        assert_eq!(app.send(&ask(n, "192.0.2.66")).await.status, status);
    }

    assert_eq!(app.send(&ask(0, "192.0.2.1")).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn any_number_of_keys_is_taken_unless_told_otherwise() {
    let app = App::under(Profile::Standard)
        .allowance(Allowance::new(AllowanceRule::default()))
        .open()
        .await;

    for n in 1..=300 {
        assert_eq!(app.send(&post(PATH).key(uuid(n))).await.run(), n);
    }
}

/// Those who are told apart only by where they come from must not pay for each other.
#[tokio::test(start_paused = true)]
async fn bad_keys_of_one_do_not_pause_others_from_the_same_address() {
    const PROXY: &str = "192.0.2.7";
    let jwt = |who: &str, n: u64| format!("e30.{who}.{n}");
    let (alice, mallory) = ("eyJzdWIiOiJhbGljZSJ9", "eyJzdWIiOiJtYWxsb3J5In0");
    let app = App::under(Profile::Standard)
        .allowance(mistakes(2))
        .open()
        .await;
    let by = |who: &str| post(PATH).bearer(&jwt(who, 1)).from(PROXY);
    let anonymous = || post(PATH).from(PROXY);
    assert_eq!(app.send(&by(alice).key("old")).await.run(), 1);
    assert_eq!(app.send(&anonymous().key("old")).await.run(), 2);
    for bad in [by(mallory), anonymous()] {
        for status in [400, 400, 429, 429] {
            let answer = app.send(&bad.clone().key("\"broken")).await;
            assert_eq!(answer.status, status);
        }
    }

    assert_eq!(app.send(&by(mallory).key("new")).await.status, 429);
    assert_eq!(app.send(&by(alice).key("old")).await.run(), 1);
    assert_eq!(app.send(&by(alice).key("new")).await.run(), 3);
    assert_eq!(app.send(&anonymous().key("old")).await.run(), 2);
    assert_eq!(app.send(&anonymous().key("new")).await.run(), 4);
}

/// A cookie is what its caller is told apart by.
#[tokio::test(start_paused = true)]
async fn bad_keys_of_one_session_do_not_pause_another() {
    let app = App::under(Profile::Standard)
        .scope([ScopePart::Cookie("sid".into())])
        .allowance(mistakes(2))
        .open()
        .await;
    let by = |sid: &str| post(PATH).header("cookie", format!("sid={sid}"));
    for status in [400, 400, 429] {
        let bad = by("mallory").from("192.0.2.7").key("\"broken");
        assert_eq!(app.send(&bad).await.status, status);
    }

    let good = |sid: &str| by(sid).from("192.0.2.7").key("good");
    assert_eq!(app.send(&good("mallory")).await.status, 429);
    assert_eq!(app.send(&good("alice")).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn callers_beyond_those_counted_by_name_are_not_paused_for_each_other() {
    const CALLERS_MAX: u64 = 10_000;
    let app = App::under(Profile::Standard)
        .allowance(mistakes(1))
        .open()
        .await;
    let by = |n: u64| post(PATH).bearer(&format!("made-up-{n}"));
    for n in 0..=CALLERS_MAX {
        app.send(&by(n).key("\"broken")).await;
    }

    let late = by(CALLERS_MAX + 1);

    assert_eq!(app.send(&late.clone().key("\"broken")).await.status, 429);
    assert_eq!(app.send(&late.key("good")).await.status, 200);
}
