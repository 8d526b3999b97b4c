//! Room for many small blocks of bytes: pages that are filled from the front and go back once all
//! that is in them is gone. A block takes its own bytes and no more, wherever an allocator has a
//! gap between its sizes.

#[cfg(test)]
mod tests;

const PAGE_BYTES: usize = 64 * 1024;
/// A block of more than this has a page of its own.
const SHARED_BYTES_MAX: usize = PAGE_BYTES / 4;
/// Blocks begin at multiples of this, so that 13 bits say where in a page.
const UNIT_BYTES: usize = 8;
const OFFSET_BITS: u32 = (PAGE_BYTES / UNIT_BYTES).trailing_zeros();
/// Before more than one part in this many is dead, a page is emptied.
const DEAD_PART: usize = 5;
const LENGTH_BYTES: usize = 4;

/// Where a block is, until it is moved or removed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Address(u32);

impl Address {
    fn new(page: usize, offset: usize) -> Self {
        let page = u32::try_from(page).ok();
        let page = page.filter(|page| page.leading_zeros() >= OFFSET_BITS);
        let page = page.expect("half a million pages are more than a shard can hold in memory");
        let offset = u32::try_from(offset / UNIT_BYTES).expect("a page has few units");
        Self(page << OFFSET_BITS | offset)
    }

    fn page(self) -> usize {
        (self.0 >> OFFSET_BITS) as usize
    }

    fn offset(self) -> usize {
        (self.0 & ((1 << OFFSET_BITS) - 1)) as usize * UNIT_BYTES
    }
}

/// Blocks that begin with their own length, in four bytes.
#[derive(Default)]
pub(super) struct Arena {
    pages: Vec<Page>,
    /// Pages without memory, to be used again.
    vacant: Vec<usize>,
    /// The page that is being filled.
    current: Option<usize>,
    live: usize,
    written: usize,
}

#[derive(Default)]
struct Page {
    bytes: Vec<u8>,
    live: usize,
}

/// A page on its way out: its blocks have to be asked for and moved.
pub(super) struct Leaving {
    page: usize,
    bytes: Vec<u8>,
}

impl Arena {
    /// Bytes of the blocks that are there.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    pub(super) fn get(&self, at: Address) -> &[u8] {
        block(&self.pages[at.page()].bytes, at.offset())
    }

    pub(super) fn get_mut(&mut self, at: Address) -> &mut [u8] {
        let bytes = &mut self.pages[at.page()].bytes;
        let length = block(bytes, at.offset()).len();
        &mut bytes[at.offset()..at.offset() + length]
    }

    pub(super) fn push(&mut self, block: &[u8]) -> Address {
        let size = block.len().next_multiple_of(UNIT_BYTES);
        let index = self.page_for(size);
        let page = &mut self.pages[index];
        let offset = page.bytes.len();
        page.bytes.extend_from_slice(block);
        page.bytes.resize(offset + size, 0);
        page.live += size;
        self.live += size;
        self.written += size;
        Address::new(index, offset)
    }

    fn page_for(&mut self, size: usize) -> usize {
        if size > SHARED_BYTES_MAX {
            return self.add_page(size);
        }
        match self.current {
            Some(index) if self.pages[index].bytes.len() + size <= PAGE_BYTES => index,
            Some(_) | None => {
                let index = self.add_page(PAGE_BYTES);
                self.current = Some(index);
                index
            }
        }
    }

    fn add_page(&mut self, bytes: usize) -> usize {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.pages.push(Page::default());
            self.pages.len() - 1
        });
        self.pages[index].bytes = Vec::with_capacity(bytes);
        index
    }

    pub(super) fn remove(&mut self, at: Address) {
        let size = self.get(at).len().next_multiple_of(UNIT_BYTES);
        let page = &mut self.pages[at.page()];
        page.live -= size;
        self.live -= size;
        if page.live > 0 {
            return;
        }
        self.written -= page.bytes.len();
        if self.current == Some(at.page()) {
            page.bytes.clear();
        } else {
            page.bytes = Vec::new();
            self.vacant.push(at.page());
        }
    }

    /// Takes out the page that has most dead bytes, if too many are dead.
    pub(super) fn take_sparse(&mut self) -> Option<Leaving> {
        let dead = self.written - self.live;
        // What is dead in the page that is being filled must not make us look for another.
        if dead <= self.written / DEAD_PART + PAGE_BYTES {
            return None;
        }
        let dead_in = |index: &usize| self.pages[*index].bytes.len() - self.pages[*index].live;
        let pages = (0..self.pages.len()).filter(|index| Some(*index) != self.current);
        let page = pages.max_by_key(dead_in)?;
        let Page { bytes, live } = std::mem::take(&mut self.pages[page]);
        self.written -= bytes.len();
        self.live -= live;
        Some(Leaving { page, bytes })
    }

    /// The page may be used again, now that nothing points to where it was.
    pub(super) fn give_back(&mut self, leaving: Leaving) {
        self.vacant.push(leaving.page);
    }
}

impl Leaving {
    /// All its blocks, dead ones too, and where they were.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (Address, &[u8])> {
        let mut offset = 0;
        std::iter::from_fn(move || {
            let at = offset;
            let block = (at < self.bytes.len()).then(|| block(&self.bytes, at))?;
            offset += block.len().next_multiple_of(UNIT_BYTES);
            Some((Address::new(self.page, at), block))
        })
    }
}

fn block(bytes: &[u8], at: usize) -> &[u8] {
    let mut length = [0; LENGTH_BYTES];
    length.copy_from_slice(&bytes[at..at + LENGTH_BYTES]);
    &bytes[at..at + u32::from_le_bytes(length) as usize]
}
