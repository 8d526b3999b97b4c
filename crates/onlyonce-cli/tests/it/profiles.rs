//! Our own layer keeps every profile's promises, seen from outside; and what cannot be seen or
//! asked is said, not passed over.

use std::collections::BTreeMap;
use std::time::Duration;

use onlyonce_cli::verify::Judgement::{self, NotApplicable};
use onlyonce_core::Profile;
use onlyonce_core::policy::{KeyTime, KeyTimeRule};

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

#[tokio::test]
async fn stripe_v2_keeps_its_promises() {
    assert_conforms(Profile::StripeV2, &["derived-key", "expiry"]).await;
}

#[tokio::test]
async fn repeatable_requests_keeps_its_promises() {
    assert_conforms(Profile::RepeatableRequests, &["derived-key", "expiry"]).await;
}

/// What cannot be asked where the key is in a JSON body.
const KEY_IN_BODY: [&str; 7] = [
    "binary",
    "binary-mismatch",
    "derived-key",
    "empty-body",
    "expiry",
    "marks",
    "quoted-key",
];

#[tokio::test]
async fn aip_155_keeps_its_promises() {
    assert_conforms(Profile::Aip155, &KEY_IN_BODY).await;
}

#[tokio::test]
async fn paypal_keeps_its_promises() {
    assert_conforms(Profile::Paypal, &["derived-key", "expiry", "marks"]).await;
}

#[tokio::test]
async fn square_keeps_its_promises() {
    assert_conforms(Profile::Square, &KEY_IN_BODY).await;
}

#[tokio::test]
async fn acp_keeps_its_promises() {
    assert_conforms(Profile::Acp, &["derived-key", "expiry"]).await;
}

/// A service that heeds the header alone runs every retry of a contract whose key is in the body.
#[tokio::test]
async fn a_key_in_the_body_that_is_not_heeded_is_found_out() {
    let mut policy = Profile::Square.policy();
    policy.http.key_member = None;
    let url = ours::start(policy).await;

    let report = report(&url, &["--profile=square"]).await;

    assert!(!report.conforms);
    let unpassed = unpassed(&report);
    assert_eq!(
        unpassed.get("replay"),
        Some(&Judgement::Fail),
        "{}",
        told(&report)
    );
}

#[tokio::test]
async fn keys_that_carry_their_time_are_made_for_a_contract_that_wants_them() {
    let mut policy = Profile::Standard.policy();
    policy.http.key_time = Some(KeyTimeRule {
        from: KeyTime::UuidV7,
        ahead_max: Duration::from_secs(60),
    });
    let contract = policy.to_toml();
    let url = ours::start(policy).await;
    let file = std::env::temp_dir().join(format!("onlyonce-v7-{}.toml", std::process::id()));
    let rules = contract.replace("\n[", "\n[profiles.v7.");
    let config =
        format!("upstream = \"http://127.0.0.1:1\"\nprofile = \"v7\"\n[profiles.v7]\n{rules}");
    std::fs::write(&file, config).unwrap();

    let named = format!("--config={}", file.display());
    let report = report(
        &url,
        &[
            named.as_str(),
            "--only=replay",
            "--only=new-key",
            "--only=long-key",
        ],
    )
    .await;

    std::fs::remove_file(&file).unwrap();
    let expected = BTreeMap::from([("long-key", NotApplicable)]);
    assert_eq!(unpassed(&report), expected, "{}", told(&report));
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
        Profile::StripeV2,
        Profile::RepeatableRequests,
        Profile::Aip155,
        Profile::Paypal,
        Profile::Square,
        Profile::Acp,
    ];

    assert_eq!(tested, Profile::ALL);
}
