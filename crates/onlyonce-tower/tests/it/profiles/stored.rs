//! Row "stored": which outcomes answer the retry, and which are run again.

use super::CONTRACTS;
use crate::support::{App, PATH, numbered, post, uuid};

const STATUSES: [u16; 27] = [
    200, 201, 202, 204, 206, 301, 302, 304, 400, 401, 403, 404, 407, 408, 409, 410, 422, 425, 429,
    500, 501, 502, 503, 504, 507, 299, 599,
];

#[tokio::test]
async fn what_the_profile_stores_answers_the_retry_and_the_rest_runs_again() {
    for contract in &CONTRACTS {
        for status in STATUSES {
            let app = App::under(contract.profile)
                .answer(move |run| numbered(status, run))
                .open()
                .await;
            let request = post(PATH).key(uuid(1));

            let first = app.send(&request).await;
            let second = app.send(&request).await;

            let stored = !contract.not_stored.contains(&status);
            let runs = if stored { 1 } else { 2 };
            assert_eq!(app.runs(), runs, "{}: {status}", contract.profile);
            assert_eq!((first.status, first.run()), (status, 1));
            assert_eq!(second.run(), runs as u64);
            assert_eq!(app.records().await.len(), usize::from(stored));
            if status >= 300 {
                assert_eq!(second.status, status, "{}", contract.profile);
            }
        }
    }
}

#[tokio::test]
async fn a_panic_is_a_stored_failure_or_gives_the_key_back() {
    for contract in &CONTRACTS {
        let app = App::under(contract.profile)
            .answer(|_| panic!("on purpose"))
            .open()
            .await;
        let request = post(PATH).key(uuid(1));

        let first = app.send(&request).await;
        let second = app.send(&request).await;

        contract.assert_worded(&first, contract.panicked);
        contract.assert_worded(&second, contract.panicked);
        let runs = if contract.panics_stored { 1 } else { 2 };
        assert_eq!(app.runs(), runs, "{}", contract.profile);
    }
}

#[tokio::test]
async fn an_answer_that_was_not_stored_promises_no_expiry() {
    for contract in &CONTRACTS {
        let Some(&status) = contract.not_stored.first() else {
            continue;
        };
        let app = App::under(contract.profile)
            .answer(move |run| numbered(status, run))
            .open()
            .await;

        let answer = app.send(&post(PATH).key(uuid(1))).await;

        assert_eq!(answer.header("idempotency-expires"), None);
        assert_eq!(answer.header("x-idempotent-expires"), None);
    }
}
