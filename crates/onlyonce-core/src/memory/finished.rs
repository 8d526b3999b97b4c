//! The records that have their answer: blocks, and the table that finds them.

use hashbrown::HashTable;

use super::arena::{Address, Arena};
use super::block::{self, Block};
use super::looks::{Due, Tag};
use crate::entry::Kept;
use crate::slot::Slot;

/// What a block was written in is kept for the next one, if it is not larger.
const SCRATCH_BYTES_MAX: usize = 16 * 1024;

#[derive(Default)]
pub(super) struct Finished {
    table: HashTable<Address>,
    blocks: Arena,
    scratch: Vec<u8>,
}

impl Finished {
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// What all of them take.
    pub(super) fn bytes(&self) -> usize {
        self.blocks.live()
    }

    pub(super) fn find(&self, slot: &Slot) -> Option<Address> {
        let is_it = |at: &Address| self.block(*at).is_of(slot);
        self.table.find(Tag::of(slot).hash(), is_it).copied()
    }

    /// One that is to be looked at then.
    pub(super) fn find_due(&self, due: Due, tag: Tag) -> Option<Address> {
        let is_due = |at: &Address| {
            let block = self.block(*at);
            block.tag() == tag && block.due() == due
        };
        self.table.find(tag.hash(), is_due).copied()
    }

    pub(super) fn block(&self, at: Address) -> Block<'_> {
        Block(self.blocks.get(at))
    }

    pub(super) fn set_due(&mut self, at: Address, due: Due) {
        block::set_due(self.blocks.get_mut(at), due);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Block<'_>> {
        self.table.iter().map(|at| self.block(*at))
    }

    pub(super) fn insert(&mut self, slot: &Slot, due: Due, kept: Kept) {
        block::write(&mut self.scratch, slot, due, kept);
        let at = self.blocks.push(&self.scratch);
        if self.scratch.capacity() > SCRATCH_BYTES_MAX {
            self.scratch = Vec::new();
        }
        let blocks = &self.blocks;
        let hash = |at: &Address| Block(blocks.get(*at)).tag().hash();
        self.table.insert_unique(hash(&at), at, hash);
    }

    /// Drops one. Once too much of the pages is dead, what is alive in one of them moves.
    pub(super) fn remove(&mut self, at: Address) {
        let tag = self.block(at).tag();
        if let Ok(place) = self.table.find_entry(tag.hash(), |it| *it == at) {
            place.remove();
        }
        self.blocks.remove(at);
        let Some(leaving) = self.blocks.take_sparse() else {
            return;
        };
        for (was, block) in leaving.blocks() {
            let tag = Block(block).tag();
            if let Some(place) = self.table.find_mut(tag.hash(), |it| *it == was) {
                *place = self.blocks.push(block);
            }
        }
        self.blocks.give_back(leaving);
    }
}
