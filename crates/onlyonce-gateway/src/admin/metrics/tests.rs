use std::time::Duration;

use super::{Asked, SCRAPED_SHARE, Sizes};

#[tokio::test]
async fn what_an_operator_changes_while_it_is_counted_is_counted_again() {
    let sizes = Sizes::default();
    let counting = sizes.last.lock().await;
    let before = sizes.changes();

    sizes.are_stale();
    drop(counting);

    let (at, took) = (Duration::MAX / 2, Duration::ZERO);
    let last = |changes| Some(Asked { at, took, changes });
    assert!(sizes.are_due(last(before), SCRAPED_SHARE));
    assert!(!sizes.are_due(last(sizes.changes()), SCRAPED_SHARE));
}
