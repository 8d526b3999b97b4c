//! Engines in one process: nothing is found on a sound store, and every flaw on a flawed one.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::MemoryStore;
use onlyonce_testkit::history::{Load, Local};

use super::flawed::{Flaw, Flawed};

const SEEDS_TO_CATCH_MAX: u64 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engines_on_a_sound_store_break_no_rule() {
    let run = Local::new(Arc::new(MemoryStore::new()));

    let report = run.execute().await.unwrap();

    assert!(report.is_clean(), "{report}");
    assert!(report.calls > 0 && report.runs > 0, "{report}");
    assert!(report.heard["replayed"] > 0, "{report}");
    assert!(report.take_overs > 0, "{report}");
    assert!(!report.faults.is_empty(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_without_fencing_is_caught() {
    assert_caught(Flaw::FencingOff).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_in_two_steps_is_caught() {
    assert_caught(Flaw::SplitClaim).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_not_renewed_is_caught() {
    assert_caught(Flaw::NoRenewal).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retention_from_the_claim_is_caught() {
    assert_caught(Flaw::RetentionFromClaim).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_completion_after_a_take_over_is_caught() {
    assert_caught(Flaw::LateCompleteAfterTakeover).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_before_it_is_stored_is_caught() {
    assert_caught(Flaw::AnswerBeforeStored).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_ignores_fingerprints_is_caught() {
    assert_caught(Flaw::IgnoresFingerprint).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_ignores_hold_is_caught() {
    assert_caught(Flaw::IgnoresHold).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_loses_answers_is_caught() {
    assert_caught(Flaw::LosesAnswers).await;
}

async fn assert_caught(flaw: Flaw) {
    let logs = tempfile::tempdir().expect("a folder for the logs");
    let mut run = Local::new(Arc::new(Flawed::new(flaw)));
    run.load = Load {
        lasts: Duration::from_secs(1),
        calls: 1500,
        ..Load::brief()
    };
    for seed in 0..SEEDS_TO_CATCH_MAX {
        run.store = Arc::new(Flawed::new(flaw));
        run.seed = seed;
        run.logs = Some(logs.path().join(seed.to_string()));

        let report = run.execute().await.expect("logs can be written");

        if !report.is_clean() {
            return;
        }
    }
    panic!("{flaw:?} was not caught");
}
