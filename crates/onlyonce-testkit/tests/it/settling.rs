//! Reconcile under faults: nothing happens twice, everything is settled, and planted bugs are found.

use onlyonce_testkit::sim::{LookBug, Settled, settle};

const SEEDS: u64 = 150;
const SEEDS_TO_CATCH_MAX: u64 = 100;

#[test]
fn no_operation_that_can_be_looked_up_happens_twice_or_stays_in_doubt() {
    let mut all = Settled::default();

    for seed in 0..SEEDS {
        match settle(seed, None) {
            Ok(settled) => all.add(&settled),
            Err(unsettled) => panic!("{unsettled}"),
        }
    }

    assert!(all.runs > all.operations, "{all:?}");
    assert!(
        all.looks > 0 && all.unclear > 0 && all.crashes > 0,
        "{all:?}"
    );
    assert!(all.steps > 0 && all.in_background > 0, "{all:?}");
}

#[test]
fn whoever_does_not_look_or_takes_silence_for_a_no_is_caught() {
    for bug in [LookBug::NoLook, LookBug::TimeoutIsDidNot] {
        let caught = (0..SEEDS_TO_CATCH_MAX).any(|seed| settle(seed, Some(bug)).is_err());
        assert!(caught, "{bug:?}");
    }
}
