use proptest::prelude::*;

use super::*;

fn slot(n: u8) -> Slot {
    Slot::from_bytes([n; Slot::BYTES])
}

proptest! {
    #[test]
    fn what_is_covered_can_be_uncovered_with_the_same_key_only(
        key: [u8; 32], other: [u8; 32], place: [u8; 32], recipe: u8, digest: [u8; 32],
    ) {
        prop_assume!(key != other);
        let (cover, other) = (Cover::new(&key), Cover::new(&other));
        let (slot, plain) = (Slot::from_bytes(place), Fingerprint::new(recipe, digest));

        let covered = cover.on(&slot, plain);

        prop_assert_eq!(cover.off(&slot, covered), plain);
        prop_assert_eq!(covered.recipe(), recipe);
        prop_assert_ne!(covered, plain);
        prop_assert_ne!(other.off(&slot, covered), plain);
    }

    #[test]
    fn one_bit_changes_the_whole_cover(digest: [u8; 32], bit in 0..256_usize) {
        let cover = Cover::new(&[1; 32]);
        let mut flipped = digest;
        flipped[bit / 8] ^= 1 << (bit % 8);

        let one = cover.on(&slot(1), Fingerprint::new(1, digest));
        let two = cover.on(&slot(1), Fingerprint::new(1, flipped));

        let pairs = one.digest().iter().zip(two.digest());
        let differing: u32 = pairs.map(|(a, b)| (a ^ b).count_ones()).sum();
        prop_assert!(differing > 64, "only {} of 256 bits differ", differing);
    }
}

#[test]
fn the_same_request_looks_different_in_every_slot_and_under_every_recipe() {
    let cover = Cover::new(&[1; 32]);
    let covered = |place, recipe| {
        *cover
            .on(&slot(place), Fingerprint::new(recipe, [5; 32]))
            .digest()
    };

    assert_ne!(covered(1, 1), covered(2, 1));
    assert_ne!(covered(1, 1), covered(1, 2));
}

/// What is stored must still match after an upgrade.
#[test]
fn the_cover_never_changes() {
    let cover = Cover::new(&[1; 32]);

    let covered = cover.on(&slot(2), Fingerprint::new(3, [4; 32]));

    let hex: String = covered
        .digest()
        .iter()
        .map(|it| format!("{it:02x}"))
        .collect();
    assert_eq!(
        hex,
        "eba6a6f426550f0ba7ed479e280fa88ddb2e53ecab6e4db4db122e67287d784b"
    );
}
