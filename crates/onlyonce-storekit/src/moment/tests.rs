use super::*;

const DAY: Duration = Duration::from_secs(86_400);
const MINUTE: Duration = Duration::from_secs(60);
/// 2025 or so, counted from 1970.
const THEN: Duration = Duration::from_secs(1_735_689_600);

fn boot(id: &str, since: Duration) -> Boot {
    let id = id.to_owned();
    Boot { id, since }
}

/// Kept in boot `a`, an hour after it; the store's own time is a day behind the wall clock.
fn kept() -> Moment {
    Moment {
        boot: Some(boot("a", 60 * MINUTE)),
        wall: THEN,
        store: THEN - DAY,
    }
}

#[test]
fn within_one_boot_only_the_boot_clock_counts() {
    let now = boot("a", 65 * MINUTE);
    for (wall, jump) in [
        (THEN + 5 * MINUTE, None),
        (THEN + 50 * MINUTE, None),
        (THEN + 5 * MINUTE + 2 * DAY, Some(Jump::SetAhead(2 * DAY))),
        (THEN + 5 * MINUTE - 2 * DAY, Some(Jump::SetBack(2 * DAY))),
    ] {
        let resumed = kept().resume(Some(&now), wall);

        assert_eq!(resumed, (THEN - DAY + 5 * MINUTE, jump));
    }
}

#[test]
fn after_a_reboot_the_wall_clock_counts_and_a_jump_is_told() {
    let now = boot("b", MINUTE);
    for (wall, passed, jump) in [
        (THEN + 5 * MINUTE, 5 * MINUTE, None),
        (THEN + 2 * DAY, 2 * DAY, Some(Jump::Passed(2 * DAY))),
        (THEN, Duration::ZERO, None),
    ] {
        let resumed = kept().resume(Some(&now), wall);

        assert_eq!(resumed, (THEN - DAY + passed, jump));
        assert_eq!(kept().resume(None, wall), resumed);
    }
}

#[test]
fn after_a_reboot_time_never_goes_backwards() {
    let now = boot("b", MINUTE);

    let resumed = kept().resume(Some(&now), THEN - 2 * DAY);

    assert_eq!(resumed, (THEN - DAY, Some(Jump::Behind(2 * DAY))));
}

/// Such as another time namespace: the same boot, and a clock that cannot be the same.
#[test]
fn a_boot_clock_that_went_backwards_is_another_boot() {
    let now = boot("a", MINUTE);

    let (store, _) = kept().resume(Some(&now), THEN + MINUTE);

    assert_eq!(store, THEN - DAY + MINUTE);
}

#[test]
fn a_moment_is_kept_again_when_the_clock_was_set_or_time_has_passed() {
    let at = |wall: Duration, store: Duration| Moment {
        wall,
        store,
        ..kept()
    };
    let (second, five) = (Duration::from_secs(1), 5 * MINUTE);

    let rebooted = Moment {
        boot: Some(boot("b", MINUTE)),
        ..kept()
    };

    assert!(!kept().is_outdated(&kept()));
    assert!(kept().is_outdated(&rebooted));
    assert!(!kept().is_outdated(&at(THEN + MINUTE, THEN - DAY + MINUTE)));
    assert!(kept().is_outdated(&at(THEN + five + second, THEN - DAY + five + second)));
    assert!(kept().is_outdated(&at(THEN + DAY, THEN - DAY)));
    assert!(kept().is_outdated(&at(THEN - 2 * second, THEN - DAY + 2 * second)));
}

#[test]
fn this_machine_knows_its_boot() {
    let machine = MachineBoot::new();

    let (first, second) = (machine.boot(), machine.boot());

    if cfg!(target_os = "linux") {
        let (first, second) = (first.unwrap(), second.unwrap());
        assert_eq!(first.id, second.id);
        assert!(first.since <= second.since);
    }
}
