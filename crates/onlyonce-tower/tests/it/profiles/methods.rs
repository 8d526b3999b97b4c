//! Rows "methods" and "missing key".

use http::Method;
use onlyonce_core::Profile;
use onlyonce_core::policy::{KeyNeed, Methods};

use super::CONTRACTS;
use crate::support::{App, PATH, ask, post, uuid};

const METHODS: [&str; 10] = [
    "POST", "PUT", "PATCH", "DELETE", "CONNECT", "BREW", "GET", "HEAD", "OPTIONS", "TRACE",
];

#[tokio::test]
async fn a_covered_method_runs_once_and_any_other_passes_through() {
    for contract in &CONTRACTS {
        for method in METHODS {
            let app = App::under(contract.profile).open().await;
            let request = ask(method, PATH).key(uuid(1));

            app.send(&request).await;
            let second = app.send(&request).await;

            let covered = contract.covered.contains(&method);
            let runs = if covered { 1 } else { 2 };
            assert_eq!(app.runs(), runs, "{}: {method}", contract.profile);
            if !covered {
                assert_eq!(second.run(), 2);
                assert!(second.marks().is_empty());
            }
        }
    }
}

#[tokio::test]
async fn a_missing_key_is_refused_where_it_is_required_and_passes_elsewhere() {
    for contract in &CONTRACTS {
        for method in METHODS {
            let app = App::under(contract.profile).open().await;
            let request = ask(method, PATH);

            app.send(&request).await;
            let second = app.send(&request).await;

            if contract.key_required.contains(&method) {
                assert_eq!(app.runs(), 0, "{}: {method}", contract.profile);
                contract.assert_refused(&second, contract.missing_key);
            } else {
                assert_eq!(app.runs(), 2, "{}: {method}", contract.profile);
                assert!(second.marks().is_empty());
                assert!(app.records().await.is_empty());
            }
        }
    }
}

#[tokio::test]
async fn a_key_on_a_method_that_is_not_covered_is_not_looked_at() {
    for contract in &CONTRACTS {
        let app = App::under(contract.profile).open().await;

        let answer = app.send(&ask("GET", PATH).key("").key("twice")).await;

        assert_eq!((answer.status, app.runs()), (200, 1));
    }
}

#[tokio::test]
async fn middleware_can_be_set_to_require_a_key() {
    let contract = &CONTRACTS[5];
    assert_eq!(contract.profile, Profile::Middleware);
    let app = App::under(Profile::Middleware)
        .but(|policy| {
            policy.http.methods = policy.http.methods.clone().all_need(KeyNeed::Required);
        })
        .open()
        .await;

    for method in contract.covered {
        let answer = app.send(&ask(method, PATH)).await;

        contract.assert_refused(&answer, contract.missing_key);
    }
    assert_eq!(app.runs(), 0);
}

#[tokio::test]
async fn ietf_can_be_set_to_leave_the_key_optional() {
    let app = App::under(Profile::Ietf)
        .but(|policy| {
            policy.http.methods = policy.http.methods.clone().all_need(KeyNeed::Optional);
        })
        .open()
        .await;

    assert_eq!(app.send(&post(PATH)).await.status, 200);
}

#[tokio::test]
async fn a_safe_method_can_be_covered_too() {
    for contract in &CONTRACTS {
        let app = App::under(contract.profile)
            .but(|policy| {
                policy.http.methods = Methods::Only(vec![(Method::GET, KeyNeed::Optional)]);
            })
            .open()
            .await;
        let request = ask("GET", PATH).key(uuid(1));

        app.send(&request).await;
        let second = app.send(&request).await;

        assert_eq!((second.run(), app.runs()), (1, 1), "{}", contract.profile);
    }
}
