//! How many times each server is asked.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::StatusCode;
use onlyonce_core::{Claimed, Completed, Response};
use onlyonce_testkit::conformance::TestBed;

use super::conforming::SimulatedBed;
use super::world::claim;

fn asked(bed: &SimulatedBed) -> usize {
    let asked = bed
        .wires
        .iter()
        .map(|it| it.asked.swap(0, Ordering::Relaxed));
    asked.max().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_new_key_takes_three_round_trips_and_a_replay_one() {
    let bed = SimulatedBed::new(3, 0);
    let store = bed.store();
    let first = claim(1, 1);

    let claimed = store.claim(&first).await.unwrap();
    assert!(matches!(claimed, Claimed::Granted { .. }));
    assert_eq!(asked(&bed), 2);

    let response = Arc::new(Response::new(StatusCode::OK, "stored"));
    let completed = store
        .complete(&first.lease(), &response, Duration::from_secs(60))
        .await;
    assert!(matches!(completed, Ok(Completed::Stored(_))));
    assert_eq!(asked(&bed), 1);

    let replayed = store.claim(&claim(1, 2)).await.unwrap();
    assert!(matches!(replayed, Claimed::Taken(_)));
    assert_eq!(asked(&bed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_was_asked_about_meanwhile_still_completes() {
    let bed = SimulatedBed::new(3, 0);
    let store = bed.store();
    let first = claim(1, 1);
    store.claim(&first).await.unwrap();
    store.claim(&claim(1, 2)).await.unwrap();
    store
        .operate()
        .unwrap()
        .extend(&first.slot, Duration::from_secs(60))
        .await
        .unwrap();

    let response = Arc::new(Response::new(StatusCode::OK, "stored"));
    let completed = store
        .complete(&first.lease(), &response, Duration::from_secs(60))
        .await;

    assert!(
        matches!(completed, Ok(Completed::Stored(_))),
        "{completed:?}"
    );
}
