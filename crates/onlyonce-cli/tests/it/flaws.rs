//! A server that is none of ours passes; with one flaw it fails the checks about that flaw, and
//! only those.

use onlyonce_cli::verify::Judgement;
use onlyonce_core::Profile;

use crate::support::foreign::{self, Flaw};
use crate::support::{failed, ours, report, told};

const ARGS: [&str; 3] = [
    "--slow-path=/slow",
    "--header=Authorization: Bearer alice-token",
    "--other-header=Authorization: Bearer bobby-token",
];

/// Holds that a server with `flaw` fails these checks and no others.
async fn assert_caught(flaw: Flaw, by: &[&str]) {
    let report = report(&foreign::start(flaw).await, &ARGS).await;

    assert_eq!(failed(&report), by, "{flaw:?}\n{}", told(&report));
    assert_eq!(report.conforms, by.is_empty());
}

#[tokio::test]
async fn a_foreign_server_without_a_flaw_conforms() {
    assert_caught(Flaw::None, &[]).await;
}

#[tokio::test]
async fn a_server_that_ignores_keys_is_caught() {
    assert_caught(
        Flaw::IgnoresKeys,
        &[
            "replay",
            "marks",
            "mismatch",
            "query",
            "json-spelling",
            "concurrency",
            "in-flight",
            "in-flight-mismatch",
            "hang-up",
            "content-headers",
            "binary",
            "binary-mismatch",
            "empty-body",
            "large-request",
            "too-large-request",
            "quoted-key",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_server_that_replays_cookies_is_caught() {
    assert_caught(Flaw::ReplaysCookies, &["set-cookie"]).await;
}

#[tokio::test]
async fn a_server_that_replays_the_date_is_caught() {
    assert_caught(Flaw::ReplaysDate, &["date"]).await;
}

#[tokio::test]
async fn a_server_that_stores_after_answering_is_caught_by_concurrent_duplicates() {
    let by = ["concurrency", "in-flight", "in-flight-mismatch", "hang-up"];
    assert_caught(Flaw::StoresAfterAnswering, &by).await;
}

#[tokio::test]
async fn a_server_that_does_not_compare_payloads_is_caught() {
    let by = ["mismatch", "in-flight-mismatch", "binary-mismatch"];
    assert_caught(Flaw::IgnoresPayloads, &by).await;
}

#[tokio::test]
async fn a_server_that_garbles_binary_bodies_is_caught() {
    assert_caught(Flaw::StoresText, &["binary"]).await;
}

#[tokio::test]
async fn a_server_that_gives_up_when_its_client_hangs_up_is_caught() {
    assert_caught(Flaw::GivesUpWithItsClient, &["hang-up"]).await;
}

/// Side by side, because each spends its time waiting.
#[tokio::test]
async fn every_other_flaw_is_caught_by_its_checks() {
    let caught: [(Flaw, &[&str]); 20] = [
        (Flaw::ReplaysConnectionHeaders, &["hop-by-hop"]),
        (Flaw::LosesLocation, &["content-headers"]),
        (Flaw::IgnoresQueries, &["query"]),
        (Flaw::ComparesJsonAsWritten, &["json-spelling"]),
        (Flaw::ComparesText, &["binary-mismatch"]),
        (Flaw::FoldsCase, &["case"]),
        (Flaw::SharesCallers, &["other-caller"]),
        (Flaw::TakesTheFirstKey, &["two-keys"]),
        (Flaw::TakesEmptyKeys, &["empty-key"]),
        (Flaw::TakesLongKeys, &["long-key"]),
        (Flaw::TakesAnyCharacter, &["key-characters"]),
        (
            Flaw::TakesQuotesAsPartOfTheKey,
            &["empty-key", "key-characters", "quoted-key"],
        ),
        (Flaw::NeedsKeys, &["missing-key"]),
        (Flaw::LooksAtKeysOfGet, &["other-methods"]),
        (Flaw::ForgetsMarks, &["marks"]),
        (
            Flaw::SpeaksPlainText,
            &[
                "mismatch",
                "query",
                "in-flight-mismatch",
                "binary-mismatch",
                "empty-key",
                "long-key",
                "key-characters",
                "two-keys",
                "error-body",
            ],
        ),
        (Flaw::RefusesDuplicates, &["in-flight", "retry-after"]),
        (Flaw::ComparesOnlyWhenDone, &["in-flight-mismatch"]),
        (Flaw::SkipsEmptyBodies, &["empty-body"]),
        (
            Flaw::SkipsLargeBodies,
            &["large-request", "too-large-request"],
        ),
    ];
    let checking = caught.map(|(flaw, by)| assert_caught(flaw, by));

    futures_util::future::join_all(checking).await;
}

#[tokio::test]
async fn a_server_that_takes_every_key_for_the_same_is_caught() {
    let report = report(
        &foreign::start(Flaw::KnowsOneKeyOnly).await,
        &["--only=new-key"],
    )
    .await;

    assert_eq!(failed(&report), ["new-key"]);
}

#[tokio::test]
async fn a_server_that_does_not_let_a_key_expire_is_caught() {
    let mut policy = Profile::Middleware.policy();
    policy.ttl = None;

    let url = ours::start(policy).await;
    let report = report(&url, &["--profile=middleware", "--only=replay,expiry"]).await;

    assert_eq!(failed(&report), ["expiry"]);
}

#[tokio::test]
async fn a_server_that_does_not_derive_keys_is_caught() {
    let mut policy = Profile::Broker.policy();
    policy.http.derive = None;

    let url = ours::start(policy).await;
    let report = report(&url, &["--profile=broker", "--only=replay,derived-key"]).await;

    assert_eq!(failed(&report), ["derived-key"]);
}

#[tokio::test]
async fn a_server_under_another_profile_is_caught() {
    let url = ours::start(Profile::Stripe.policy()).await;

    let report = report(&url, &["--profile=formbridge", "--skip=expiry,date"]).await;

    assert!(!report.conforms);
    for id in [
        "replay",
        "marks",
        "mismatch",
        "key-characters",
        "error-body",
    ] {
        let finding = report.finding(id).unwrap();
        assert_eq!(
            finding.judgement,
            Judgement::Fail,
            "{id}: {}",
            finding.because
        );
    }
}

#[tokio::test]
async fn a_server_that_waits_where_the_profile_refuses_is_caught() {
    let mut policy = Profile::Stripe.policy();
    policy.duplicate = Profile::Standard.policy().duplicate;
    let url = ours::start(policy).await;

    let args = ["--profile=stripe", "--slow-path=/slow", "--skip=date"];
    let report = report(&url, &args).await;

    assert_eq!(failed(&report), ["in-flight"], "{}", told(&report));
}
