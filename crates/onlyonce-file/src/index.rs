//! Where the newest frame of every slot is: 16 bytes a record. Whoever reads through it sees nothing
//! that could still be lost, but for claims that may run again: these are shown once they are written,
//! and durable with the next commit.

use std::sync::{PoisonError, RwLock};

use hashbrown::HashTable;
use onlyonce_core::Slot;

use super::frame::Kind;

/// Slots that begin with the same byte are together: a listing goes through the shards in order,
/// and no shard takes long to grow.
pub(super) const SHARDS: usize = 256;

/// The first eight bytes of a slot, in its order. Two slots may share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tag(pub(super) u64);

/// A frame's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) segment: u32,
    pub(super) offset: u32,
}

impl Place {
    /// Whether it was written before what is at the other.
    pub(super) fn is_before(self, other: Self) -> bool {
        (self.segment, self.offset) < (other.segment, other.offset)
    }
}

/// A frame in the index.
#[derive(Clone, Copy)]
pub(super) struct Indexed {
    pub(super) tag: Tag,
    /// The segment, and [`FINISHED`]: so that looking for what is stuck reads no answers.
    segment: u32,
    offset: u32,
}

/// The bit of a segment's number that says "has its answer". Numbers stay below it.
const FINISHED: u32 = 1 << 31;

impl Indexed {
    pub(super) fn new(tag: Tag, place: Place, kind: Kind) -> Self {
        let flag = if kind == Kind::Finished { FINISHED } else { 0 };
        Self {
            tag,
            segment: place.segment | flag,
            offset: place.offset,
        }
    }

    pub(super) fn place(&self) -> Place {
        Place {
            segment: self.segment & !FINISHED,
            offset: self.offset,
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.segment & FINISHED != 0
    }

    fn is(&self, tag: Tag, place: Place) -> bool {
        self.tag == tag && self.place() == place
    }
}

pub(super) struct Index {
    shards: Box<[RwLock<HashTable<Indexed>>]>,
}

impl Tag {
    pub(super) fn of(slot: &Slot) -> Self {
        let mut first = [0; 8];
        first.copy_from_slice(&slot.as_bytes()[..8]);
        Self(u64::from_be_bytes(first))
    }

    /// Uniform, because a slot is a digest. The byte that all of a shard share goes where the
    /// table looks neither for a bucket nor for its first comparison.
    fn hash(self) -> u64 {
        self.0.rotate_left(32)
    }

    pub(super) fn shard(self) -> usize {
        usize::from(self.0.to_be_bytes()[0])
    }
}

impl Index {
    pub(super) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
        }
    }

    /// Where frames of slots with this tag are: none or one, but for a coincidence.
    pub(super) fn places(&self, tag: Tag) -> Vec<Place> {
        let shard = self.shards[tag.shard()].read();
        let shard = shard.unwrap_or_else(PoisonError::into_inner);
        shard
            .iter_hash(tag.hash())
            .filter(|it| it.tag == tag)
            .map(Indexed::place)
            .collect()
    }

    /// Whether the newest frame of some slot with this tag is here.
    pub(super) fn points_to(&self, tag: Tag, place: Place) -> bool {
        let shard = self.shards[tag.shard()].read();
        let shard = shard.unwrap_or_else(PoisonError::into_inner);
        shard.find(tag.hash(), |it| it.is(tag, place)).is_some()
    }

    pub(super) fn insert(&self, new: Indexed) {
        self.change(new.tag, |shard| {
            shard.insert_unique(new.tag.hash(), new, |it| it.tag.hash());
        });
    }

    /// Puts `new` in the place of `old`; false if that was gone already.
    pub(super) fn replace(&self, old: Place, new: Indexed) -> bool {
        self.change(new.tag, |shard| {
            let found = shard.find_mut(new.tag.hash(), |it| it.is(new.tag, old));
            let was_there = found.is_some();
            match found {
                Some(it) => *it = new,
                None => {
                    shard.insert_unique(new.tag.hash(), new, |it| it.tag.hash());
                }
            }
            was_there
        })
    }

    /// Takes a frame out; false if it was gone already.
    pub(super) fn remove(&self, tag: Tag, place: Place) -> bool {
        self.change(tag, |shard| {
            let found = shard.find_entry(tag.hash(), |it| it.is(tag, place));
            match found {
                Ok(entry) => {
                    entry.remove();
                    if shard.len() < shard.capacity() / 4 {
                        shard.shrink_to(shard.len() * 2, |it| it.tag.hash());
                    }
                    true
                }
                Err(_) => false,
            }
        })
    }

    /// The frames of one shard from this tag on, in the order of their tags.
    pub(super) fn in_order(&self, shard: usize, from: Tag) -> Vec<Indexed> {
        let shard = self.shards[shard].read();
        let shard = shard.unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<_> = shard.iter().filter(|it| it.tag >= from).copied().collect();
        drop(shard);
        found.sort_unstable_by_key(|it| it.tag);
        found
    }

    fn change<T>(&self, tag: Tag, change: impl FnOnce(&mut HashTable<Indexed>) -> T) -> T {
        let shard = self.shards[tag.shard()].write();
        change(&mut shard.unwrap_or_else(PoisonError::into_inner))
    }
}
