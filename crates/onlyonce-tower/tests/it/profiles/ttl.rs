//! Row "TTL": how long an answer is kept, and how a request asks for another time.

use std::time::Duration;

use super::CONTRACTS;
use crate::support::{App, PATH, numbered, post, uuid};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const TICK: Duration = Duration::from_millis(2);

/// Or for as many days as a contract of its own says.
#[tokio::test(start_paused = true)]
async fn an_answer_is_kept_for_24_hours_from_when_it_was_stored() {
    for contract in &CONTRACTS {
        let app = App::under(contract.profile)
            .handler(|run, _| async move {
                tokio::time::sleep(20 * SECOND).await;
                Ok(numbered(200, run))
            })
            .open()
            .await;
        let request = post(PATH).key(uuid(1));
        app.send(&request).await;

        tokio::time::advance(contract.kept_days * DAY - TICK).await;
        assert_eq!(app.send(&request).await.run(), 1, "{}", contract.profile);
        tokio::time::advance(TICK).await;
        assert_eq!(app.send(&request).await.run(), 2, "{}", contract.profile);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_may_ask_for_another_time_where_the_profile_has_a_header_for_it() {
    for contract in &CONTRACTS {
        let app = App::under(contract.profile).open().await;
        let request = post(PATH)
            .key(uuid(1))
            .header("idempotency-ttl", "3600")
            .header("x-idempotency-ttl", "7200000");
        let kept = match contract.ttl {
            Some((_, 1)) => 3600 * SECOND,
            Some(_) => 7200 * SECOND,
            None => contract.kept_days * DAY,
        };
        app.send(&request).await;

        tokio::time::advance(kept - TICK).await;
        assert_eq!(app.send(&request).await.run(), 1, "{}", contract.profile);
        tokio::time::advance(TICK).await;
        assert_eq!(app.send(&request).await.run(), 2, "{}", contract.profile);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_request_asks_for_is_clamped_to_the_policy() {
    for contract in &CONTRACTS {
        let Some((header, per_second)) = contract.ttl else {
            continue;
        };
        let a_year = (365 * 24 * 60 * 60 * per_second).to_string();
        for (asked, kept) in [
            ("0", SECOND),
            ("1", SECOND),
            (a_year.as_str(), 30 * DAY),
            ("18446744073709551615", 30 * DAY),
            ("99999999999999999999999999", 30 * DAY),
        ] {
            let app = App::under(contract.profile).open().await;
            let request = post(PATH).key(uuid(1)).header(header, asked);
            app.send(&request).await;

            tokio::time::advance(kept - TICK).await;
            assert_eq!(app.send(&request).await.run(), 1, "{header}: {asked}");
            tokio::time::advance(TICK).await;
            assert_eq!(app.send(&request).await.run(), 2, "{header}: {asked}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_the_first_request_asked_for_is_the_one_that_counts() {
    for contract in &CONTRACTS {
        let Some((header, per_second)) = contract.ttl else {
            continue;
        };
        let app = App::under(contract.profile).open().await;
        let request = post(PATH).key(uuid(1));
        let asking = |seconds: u64| {
            let asked = (seconds * per_second).to_string();
            request.clone().header(header, asked)
        };
        app.send(&asking(60)).await;

        tokio::time::advance(30 * SECOND).await;
        assert_eq!(app.send(&asking(3600)).await.run(), 1);
        tokio::time::advance(30 * SECOND).await;
        assert_eq!(app.send(&asking(3600)).await.run(), 2);
    }
}

#[tokio::test]
async fn a_time_that_is_none_is_refused_where_the_header_means_something() {
    for contract in &CONTRACTS {
        let app = App::under(contract.profile).open().await;
        let request = post(PATH)
            .key(uuid(1))
            .header("idempotency-ttl", "tomorrow")
            .header("x-idempotency-ttl", "tomorrow");

        let answer = app.send(&request).await;

        if contract.ttl.is_some() {
            contract.assert_refused(&answer, contract.bad_ttl);
            assert_eq!(app.runs(), 0, "{}", contract.profile);
        } else {
            assert_eq!((answer.status, app.runs()), (200, 1));
        }
    }
}
