//! What a caller keeps is counted until it expires, in a bounded space.

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn rule(keys_max: u64, bytes_max: u64) -> AllowanceRule {
    AllowanceRule {
        keys_max: Some(keys_max),
        bytes_max: Some(bytes_max),
        ..AllowanceRule::default()
    }
}

fn caller(n: u32) -> Slot {
    let mut bytes = [1; Slot::BYTES];
    bytes[..4].copy_from_slice(&n.to_le_bytes());
    Slot::from_bytes(bytes)
}

fn keep(used: &mut Used, who: Slot, bytes: u64, now: Duration, keep_for: Duration) {
    let who = used.start(who, now);
    used.keep(&who, bytes, now, keep_for);
}

#[test]
fn a_key_counts_until_it_expires_and_not_much_longer() {
    let mut used = Used::default();
    keep(&mut used, caller(1), 0, Duration::ZERO, HOUR);

    let rule = rule(1, u64::MAX);
    let full = |used: &mut Used, now| used.full(&caller(1), &rule, now);
    let left = full(&mut used, HOUR - Duration::from_secs(1)).unwrap();
    assert!(left <= HOUR / CUTS + Duration::from_secs(1), "{left:?}");
    assert!(full(&mut used, HOUR + HOUR / CUTS).is_none());
}

#[test]
fn bytes_are_bounded_too() {
    let mut used = Used::default();
    keep(&mut used, caller(1), 1000, Duration::ZERO, HOUR);

    assert!(used.full(&caller(1), &rule(10, 1000), HOUR / 2).is_some());
    assert!(used.full(&caller(1), &rule(10, 1001), HOUR / 2).is_none());
    assert!(used.full(&caller(2), &rule(10, 1000), HOUR / 2).is_none());
}

#[test]
fn what_is_given_back_leaves_nothing() {
    let mut used = Used::default();
    let who = used.start(caller(1), Duration::ZERO);
    assert!(used.full(&who, &rule(1, 1), Duration::ZERO).is_some());

    used.give_back(&who);

    assert!(used.full(&who, &rule(1, 1), Duration::ZERO).is_none());
    assert!(used.callers.is_empty());
}

#[test]
fn a_caller_that_chooses_its_retentions_takes_no_more_space() {
    let mut used = Used::default();
    for seconds in 1..5000 {
        let keep_for = Duration::from_secs(seconds);
        keep(&mut used, caller(1), 1, Duration::ZERO, keep_for);
    }

    let usage = &used.callers[&caller(1)];
    assert!(usage.expiring.len() <= MOMENTS_MAX);
    assert_eq!((usage.keys, usage.bytes), (4999, 4999));
    let last = Duration::from_secs(6000);
    assert!(used.full(&caller(1), &rule(1, 1), last).is_none());
}

#[test]
fn callers_beyond_the_bound_share_one_allowance_until_others_expire() {
    let mut used = Used::default();
    let many = u32::try_from(CALLERS_MAX).unwrap();
    for n in 0..many {
        keep(&mut used, caller(n), 1, Duration::ZERO, HOUR);
    }

    for n in many..many + 3 {
        keep(&mut used, caller(n), 1, HOUR / 2, HOUR);
    }
    let rule = rule(3, u64::MAX);
    assert!(used.full(&caller(many + 9), &rule, HOUR / 2).is_some());
    assert!(used.full(&caller(0), &rule, HOUR / 2).is_none());
    assert!(used.callers.len() <= CALLERS_MAX + 1);

    keep(&mut used, caller(many + 9), 1, HOUR * 2, HOUR);
    assert_eq!(used.callers[&caller(many + 9)].keys, 1);
}
