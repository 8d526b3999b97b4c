//! Our own layer keeps every profile's promises, seen from outside; and what cannot be seen or
//! asked is said, not passed over.

use std::collections::BTreeMap;

use onlyonce_cli::verify::Judgement::{self, NotApplicable};
use onlyonce_core::Profile;

use crate::support::{ours, report, told, unpassed};

/// Everything that makes more checks conclusive.
const ARGS: [&str; 4] = [
    "--slow-path=/slow",
    "--header=Authorization: Bearer alice-token",
    "--other-header=Authorization: Bearer bobby-token",
    "--concurrency=32",
];

/// Holds our layer to `profile`: all checks pass but `others`, which are not applicable.
async fn assert_conforms(profile: Profile, others: &[&'static str]) {
    let url = ours::start(profile.policy()).await;
    let named = format!("--profile={profile}");
    let args: Vec<_> = ARGS.into_iter().chain([named.as_str()]).collect();

    let report = report(&url, &args).await;

    let expected: BTreeMap<&str, Judgement> =
        others.iter().map(|id| (*id, NotApplicable)).collect();
    assert_eq!(unpassed(&report), expected, "{}", told(&report));
    assert!(report.conforms);
    assert_eq!(report.profile, profile.name());
}

#[tokio::test]
async fn standard_keeps_its_promises() {
    assert_conforms(Profile::Standard, &["derived-key", "expiry", "retry-after"]).await;
}

#[tokio::test]
async fn formbridge_keeps_its_promises() {
    assert_conforms(Profile::Formbridge, &["derived-key", "retry-after"]).await;
}

#[tokio::test]
async fn formbridge_008_keeps_its_promises() {
    assert_conforms(
        Profile::Formbridge008,
        &["derived-key", "expiry", "retry-after"],
    )
    .await;
}

#[tokio::test]
async fn broker_keeps_its_promises() {
    // It replays whatever the body says, so there is no other payload, and derives missing keys. Its
    // sessions are told apart by a member of the body, which has to be a JSON object for that.
    assert_conforms(
        Profile::Broker,
        &[
            "binary",
            "binary-mismatch",
            "expiry",
            "in-flight-mismatch",
            "missing-key",
            "retry-after",
        ],
    )
    .await;
}

#[tokio::test]
async fn guardian_keeps_its_promises() {
    assert_conforms(
        Profile::Guardian,
        &[
            "binary-mismatch",
            "derived-key",
            "expiry",
            "in-flight-mismatch",
            "long-key",
            "marks",
        ],
    )
    .await;
}

#[tokio::test]
async fn middleware_keeps_its_promises() {
    assert_conforms(Profile::Middleware, &["derived-key", "retry-after"]).await;
}

#[tokio::test]
async fn ietf_keeps_its_promises() {
    assert_conforms(Profile::Ietf, &["derived-key", "expiry", "marks"]).await;
}

#[tokio::test]
async fn stripe_keeps_its_promises() {
    assert_conforms(Profile::Stripe, &["derived-key", "expiry"]).await;
}

#[test]
fn every_profile_has_its_test() {
    let tested = [
        Profile::Standard,
        Profile::Formbridge,
        Profile::Formbridge008,
        Profile::Broker,
        Profile::Guardian,
        Profile::Middleware,
        Profile::Ietf,
        Profile::Stripe,
    ];

    assert_eq!(tested, Profile::ALL);
}
