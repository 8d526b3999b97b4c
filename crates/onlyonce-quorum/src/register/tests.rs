use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Fingerprint, Key, KeyRule, Meta, OnLapse, Slot};

use super::*;

const LEASE: Duration = Duration::from_secs(30);

fn claim(token: u8) -> Claim {
    let key = Key::new("key", &KeyRule::default()).expect("a key");
    Claim {
        slot: Slot::from_bytes([7; Slot::BYTES]),
        fingerprint: Fingerprint::new(Fingerprint::RECIPE, [1; 32]),
        token: Token::from_bytes([token; Token::BYTES]),
        on_lapse: OnLapse::Rerun,
        lease_for: LEASE,
        keep_for: LEASE,
        meta: Arc::new(Meta {
            hint: key.hint(),
            operation: "test".into(),
            actor: None,
            holder: "here".into(),
            trace: None,
            credential: None,
        }),
    }
}

fn claimed(by: &Claim) -> SlotRegister {
    let mut register = SlotRegister::default();
    let (granted, _) = register.claim(by, Duration::ZERO);
    assert!(matches!(granted, Claimed::Granted { .. }));
    register
}

/// Its first try was accepted by some, carried on by another process, and built upon.
#[test]
fn a_release_that_another_process_carried_on_has_happened() {
    let (first, second) = (claim(1), claim(2));
    let lease = first.lease();
    let mut register = claimed(&first);
    let mut releasing = Releasing::new(&lease, Release::NotRun);
    releasing.step(&mut register, Duration::from_secs(1));
    let (granted, _) = register.claim(&second, Duration::from_secs(2));
    assert!(matches!(granted, Claimed::Granted { .. }));

    let (released, change) = releasing.step(&mut register, Duration::from_secs(3));

    assert!(matches!(released, Released::Ended), "{released:?}");
    assert_eq!(change, Change::Nothing);
}

#[test]
fn a_release_that_came_too_late_finds_who_took_over() {
    let (first, second) = (claim(1), claim(2));
    let lease = first.lease();
    let mut register = claimed(&first);
    let mut releasing = Releasing::new(&lease, Release::NotRun);
    // What this try wrote was accepted by nobody.
    releasing.step(&mut register.clone(), Duration::from_secs(1));
    let late = LEASE + Duration::from_secs(1);
    let (granted, _) = register.claim(&second, late);
    assert!(matches!(granted, Claimed::Granted { .. }));

    for _ in 0..2 {
        let (released, _) = releasing.step(&mut register, late);

        let Released::Found(record) = released else {
            panic!("{released:?}");
        };
        assert_eq!(record.token, second.token);
    }
}
