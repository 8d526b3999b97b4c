//! Blocks stay what they are wherever they go, and what is gone takes little room.

use std::collections::BTreeMap;

use super::*;

/// Block number `n`, of any length: mostly small, sometimes larger than pages are.
fn block(n: u32) -> Vec<u8> {
    let mixed = n.wrapping_mul(0x9e37_79b9) >> 8;
    let more = match mixed % 500 {
        0 => mixed as usize % (3 * PAGE_BYTES),
        _ => mixed as usize % 700,
    };
    let length = LENGTH_BYTES + 4 + more;
    let mut block = u32::try_from(length).unwrap().to_le_bytes().to_vec();
    block.extend_from_slice(&n.to_le_bytes());
    block.resize(length, n.to_le_bytes()[0]);
    block
}

fn number(block: &[u8]) -> u32 {
    u32::from_le_bytes([block[4], block[5], block[6], block[7]])
}

/// An arena, and where each block of it is.
#[derive(Default)]
struct Known {
    arena: Arena,
    places: BTreeMap<u32, Address>,
    moved: usize,
}

impl Known {
    fn push(&mut self, n: u32) {
        self.places.insert(n, self.arena.push(&block(n)));
    }

    fn remove(&mut self, n: u32) {
        let at = self.places.remove(&n).unwrap();
        self.arena.remove(at);
        let Some(leaving) = self.arena.take_sparse() else {
            return;
        };
        for (was, block) in leaving.blocks() {
            if let Some(place) = self.places.get_mut(&number(block)).filter(|it| **it == was) {
                *place = self.arena.push(block);
                self.moved += 1;
            }
        }
        self.arena.give_back(leaving);
    }

    fn check(&self) {
        for (n, at) in &self.places {
            assert!(self.arena.get(*at) == block(*n), "block {n}");
        }
        let dead = self.arena.written - self.arena.live;
        let most = self.arena.written / DEAD_PART + PAGE_BYTES;
        assert!(dead <= most, "{dead} of {} are dead", self.arena.written);
    }
}

#[test]
fn blocks_stay_what_they_are_and_little_is_dead_in_whatever_order_they_leave() {
    let mut known = Known::default();

    for n in 0..20_000_u32 {
        known.push(n);
        // Every third stays; of the others, one that came some time ago leaves.
        let old = n.checked_sub(3000 + n * 38 % 1000);
        if let Some(old) = old.filter(|old| old % 3 > 0 && known.places.contains_key(old)) {
            known.remove(old);
        }
        if n % 1000 == 0 {
            known.check();
        }
    }

    known.check();
    assert!(known.moved > 0, "no page was emptied");
}

#[test]
fn an_arena_without_blocks_takes_no_pages_but_one() {
    let mut known = Known::default();
    for n in 0..5000 {
        known.push(n);
    }

    for n in 0..5000 {
        known.remove(n);
    }

    assert_eq!((known.arena.live, known.arena.written), (0, 0));
    let taken = known.arena.pages.iter().map(|page| page.bytes.capacity());
    assert!(taken.sum::<usize>() <= PAGE_BYTES);
}
