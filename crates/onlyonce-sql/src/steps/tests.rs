//! Time as columns hold it, and tokens that must not come back.

use onlyonce_core::{Fingerprint, Lease, Release, Slot};

use super::held::Dead;
use super::*;

#[test]
fn durations_are_rounded_up_and_bounded() {
    assert_eq!(whole(Duration::from_nanos(1)), Duration::from_millis(1));
    assert_eq!(whole(Duration::from_millis(7)), Duration::from_millis(7));
    assert_eq!(whole(Duration::ZERO), Duration::ZERO);
    let most = to_millis(whole(Duration::MAX));
    assert_eq!(most, MILLIS_MAX);
    assert!(most.checked_mul(3).is_some());
    assert_eq!(from_millis(-5), Duration::ZERO);
}

#[test]
fn the_newest_dead_tokens_are_remembered() {
    let now = Duration::from_secs(1000);
    let mut held = Held::default();
    let tokens: Vec<_> = (0..80)
        .map(|n| onlyonce_core::Token::from_bytes([n; 16]))
        .collect();

    for token in &tokens {
        let lease = Lease {
            slot: Slot::from_bytes([1; 32]),
            token: *token,
            fingerprint: Fingerprint::new(1, [1; 32]),
            lease_for: Duration::from_secs(30),
            keep_for: Duration::from_secs(30),
            attempt: 1,
        };
        held.release(&lease, Release::NotRun, now);
    }

    let bytes = held.dead.to_bytes();
    assert_eq!(bytes.len(), 64 * 24);
    assert_eq!(Dead::from_bytes(&bytes), Some(held.dead.clone()));
    assert_eq!(Dead::from_bytes(&bytes[1..]), None);
    assert_eq!(held.needed_until(), now + Duration::from_secs(30));
}
