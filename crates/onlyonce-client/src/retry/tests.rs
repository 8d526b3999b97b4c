use super::*;
use onlyonce_core::OsEntropy;
use proptest::prelude::*;

/// Gives the same byte for ever.
struct Always(u8);

impl Entropy for Always {
    fn fill(&self, out: &mut [u8]) {
        out.fill(self.0);
    }
}

fn failure(cause: Cause) -> Failure {
    Failure::new(cause, "")
}

#[test]
fn three_attempts_of_30_s_with_pauses_of_1_to_10_s_are_the_default() {
    let retry = Retry::default();

    assert_eq!(retry.attempts_max, 3);
    assert_eq!(retry.attempt_timeout, Duration::from_secs(30));
    let most: Vec<_> = (1..=6)
        .map(|nth| retry.delay(&failure(Cause::Interrupted), nth, &Always(0xff)))
        .map(|delay| delay.as_secs_f64().round())
        .collect();
    assert_eq!(most, [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]);
}

#[test]
fn jitter_is_full() {
    let retry = Retry::default();

    let least = retry.delay(&failure(Cause::Failed), 4, &Always(0));
    let middle = retry.delay(&failure(Cause::Failed), 4, &Always(0x80));

    assert_eq!(least, Duration::ZERO);
    assert_eq!(middle.as_secs_f64().round(), 4.0);
}

#[test]
fn an_operation_in_progress_is_asked_for_again_after_2_s() {
    let delay = Retry::default().delay(&failure(Cause::InProgress), 1, &OsEntropy::new());

    assert_eq!(delay, Duration::from_secs(2));
}

#[test]
fn what_the_service_asks_for_goes_first() {
    for cause in [Cause::InProgress, Cause::Unavailable, Cause::StoreDown] {
        let asked = Failure {
            retry_after: Some(Duration::from_secs(77)),
            ..failure(cause)
        };

        let delay = Retry::default().delay(&asked, 1, &OsEntropy::new());

        assert_eq!(delay, Duration::from_secs(77));
    }
}

proptest! {
    #[test]
    fn no_pause_is_longer_than_the_bound(nth in 0u32.., min in 0u64..100_000, max in 0u64..100_000) {
        let retry = Retry {
            backoff_min: Duration::from_millis(min),
            backoff_max: Duration::from_millis(max),
            ..Retry::default()
        };
        let delay = retry.delay(&failure(Cause::Interrupted), nth, &Always(0xff));
        prop_assert!(delay <= retry.backoff_max);
    }
}
