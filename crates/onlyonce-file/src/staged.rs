//! What one commit is going to change: every step sees what the steps before it did, and nothing
//! else sees any of it before it is as durable as it has to be.

use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::codec;
use onlyonce_core::entry::{Change, Entry, Kept, Phase, timestamp};
use onlyonce_core::slot::SlotMap;
use onlyonce_core::{Claim, Claimed, Slot, StoreError, StoreErrorKind, Timestamp};

use super::claims::Claims;
use super::disk;
use super::frame::{Head, Kind, REPLAYS_AT, replays_field};
use super::index::{Indexed, Place, Tag};
use super::lock;
use super::log::{CommitError, Committed, Durable, Log};
use super::segment::Listed;
use super::shared::{Found, Shared, full};
use super::tally::{self, Tally};

pub(super) struct Batch<'a> {
    pub(super) now: Duration,
    shared: &'a Shared,
    claims: &'a mut Claims,
    /// Whether there is room for new keys.
    has_room: bool,
    staged: SlotMap<Staged>,
}

/// A slot as this commit will leave it.
struct Staged {
    /// The frame it has on disk, and whose head that is if it can be read.
    found: Option<(Place, Option<Head>)>,
    entry: Entry,
    is_changed: bool,
    is_settled: bool,
    /// Replays to be counted in place, unless the frame is written anew.
    counted: u64,
}

impl<'a> Batch<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        claims: &'a mut Claims,
        has_room: bool,
        now: Duration,
    ) -> Self {
        Self {
            now,
            shared,
            claims,
            has_room,
            staged: SlotMap::default(),
        }
    }

    pub(super) fn claim(&mut self, claim: &Claim) -> Result<Claimed, StoreError> {
        let (now, has_room) = (self.now, self.has_room);
        let staged = self.stage(&claim.slot)?;
        if !has_room && staged.entry.live(now).is_none() {
            return Err(full("there is no room for new keys"));
        }
        Ok(staged.step(|entry| entry.claim(claim, now)))
    }

    /// One atomic step on the slot's entry.
    pub(super) fn step<T>(
        &mut self,
        slot: &Slot,
        step: impl FnOnce(&mut Entry) -> (T, Change),
    ) -> Result<T, StoreError> {
        Ok(self.stage(slot)?.step(step))
    }

    /// Forgets a record, also one that cannot be read.
    pub(super) fn forget(&mut self, slot: &Slot) -> Result<bool, StoreError> {
        let now = self.now;
        match self.step(slot, |entry| entry.forget(now)) {
            Err(error) if error.kind == StoreErrorKind::Corrupt => {
                let Some(place) = self.shared.index.places(Tag::of(slot)).first().copied() else {
                    return Err(error);
                };
                let damaged = Staged {
                    found: Some((place, None)),
                    entry: Entry::default(),
                    is_changed: true,
                    is_settled: true,
                    counted: 0,
                };
                self.staged.insert(*slot, damaged);
                Ok(true)
            }
            forgotten => forgotten,
        }
    }

    /// Adds to the counts of records, and says what they are then.
    pub(super) fn count_replays(
        &mut self,
        replays: &[(Slot, u64)],
    ) -> Result<Vec<(Slot, u64)>, StoreError> {
        let now = self.now;
        let mut numbers = Vec::with_capacity(replays.len());
        for (slot, count) in replays {
            let staged = self.stage(slot)?;
            match staged.entry.count_replays(*count, now) {
                Change::Nothing => {}
                Change::Written | Change::Settled => {
                    staged.counted = staged.counted.saturating_add(*count);
                    let live = staged.entry.live(now);
                    numbers.extend(live.map(|kept| (*slot, kept.replays)));
                }
            }
        }
        Ok(numbers)
    }

    /// Writes frames again that still count; says how many of them cannot be read.
    pub(super) fn rewrite(&mut self, frames: &[(Tag, Place)]) -> usize {
        let mut unreadable = 0;
        for (tag, place) in frames {
            if !self.shared.index.points_to(*tag, *place) {
                continue;
            }
            let slot = self
                .shared
                .segments
                .get(place.segment)
                .and_then(|segment| segment.read(place.offset).ok())
                .map(|frame| frame.head.slot);
            match slot.map(|slot| self.stage(&slot)) {
                // Also one that a step before found expired: the index must let go of its frame.
                Some(Ok(staged)) => staged.is_changed = true,
                Some(Err(_)) | None => unreadable += 1,
            }
        }
        unreadable
    }

    /// Writes all of it, and shows it to everyone once it is as durable as it has to be.
    pub(super) fn commit(mut self, log: &mut Log, durable: Durable) -> Result<(), CommitError> {
        self.staged.retain(|slot, staged| {
            if !staged.is_changed && staged.counted > 0 {
                self.shared.count_in_place(staged);
                self.claims.forget(slot);
            }
            // Claimed and given back within one commit: it was never there.
            staged.is_changed && (staged.found.is_some() || staged.entry.kept.is_some())
        });
        if self.staged.is_empty() {
            return Ok(());
        }
        let staged: Vec<_> = self.staged.into_iter().collect();
        let now = self.now;
        self.shared.note_begun(&staged, timestamp(now));
        let mut heads = Vec::with_capacity(staged.len());
        let frames = staged.iter().map(|(slot, staged)| {
            let (head, payload) = frame(*slot, &staged.entry, now);
            heads.push(head.clone());
            (head, payload)
        });
        let committed = log.commit(frames, durable)?;
        self.shared.show(&staged, &committed);
        self.claims.make_room(staged.len());
        let frames = heads.into_iter().zip(&committed.listed);
        for ((slot, staged), (head, listed)) in staged.into_iter().zip(frames) {
            let place = committed.segment.place(listed.offset);
            let kept = staged.entry.kept;
            let found = kept.map(|kept| Found { place, head, kept });
            self.claims.leave(slot, found);
        }
        Ok(())
    }

    fn stage(&mut self, slot: &Slot) -> Result<&mut Staged, StoreError> {
        use std::collections::hash_map::Entry as Seat;
        match self.staged.entry(*slot) {
            Seat::Occupied(seat) => Ok(seat.into_mut()),
            Seat::Vacant(seat) => {
                let found = match self.claims.get(slot) {
                    Some(claim) => Some(claim.clone()),
                    None => self.shared.find(slot)?,
                };
                Ok(seat.insert(Staged::of(found)))
            }
        }
    }
}

impl Staged {
    fn of(found: Option<Found>) -> Self {
        let (found, kept) = match found {
            Some(Found { place, head, kept }) => (Some((place, Some(head))), Some(kept)),
            None => (None, None),
        };
        Self {
            found,
            entry: Entry { kept },
            is_changed: false,
            is_settled: false,
            counted: 0,
        }
    }

    fn step<T>(&mut self, step: impl FnOnce(&mut Entry) -> (T, Change)) -> T {
        let (answer, change) = step(&mut self.entry);
        match change {
            Change::Nothing => {}
            Change::Written => self.is_changed = true,
            Change::Settled => {
                self.is_changed = true;
                self.is_settled = true;
            }
        }
        answer
    }
}

impl Shared {
    /// Takes note of the records that begin with a commit, at this moment.
    fn note_begun(&self, staged: &[(Slot, Staged)], now: Timestamp) {
        let mut recent = lock(&self.recent);
        for (slot, staged) in staged {
            let kept = staged.entry.kept.as_ref();
            if kept.is_some_and(|kept| kept.created_at == now) {
                recent.note(now, *slot);
            }
        }
    }

    /// Shows a commit to everyone, and wakes the callers that wait for its slots.
    fn show(&self, staged: &[(Slot, Staged)], committed: &Committed) {
        let Committed { segment, listed } = committed;
        segment.tallies(|tallies| {
            for it in listed.iter().filter(|it| it.kind.is_record()) {
                tallies.add(it.due, it.tally());
            }
        });
        for ((_, staged), new) in staged.iter().zip(listed) {
            self.point(staged.found.as_ref(), segment.place(new.offset), new);
        }
        if let Some(all) = &mut *lock(&segment.listed) {
            for (_, staged) in staged {
                replaced(all, segment.id(), staged.found.as_ref());
            }
            all.extend_from_slice(listed);
        }
        let mut waiters = lock(&self.waiters);
        for (slot, staged) in staged {
            if staged.is_settled {
                waiters.wake(slot);
            }
        }
    }

    /// Points the index to a new frame instead of the one it replaces.
    fn point(&self, old: Option<&(Place, Option<Head>)>, place: Place, new: &Listed) {
        let is_record = new.kind.is_record();
        let entry = Indexed::new(new.tag, place, new.kind);
        let was_there = match old {
            Some((old, _)) if is_record => self.index.replace(*old, entry),
            Some((old, _)) => self.index.remove(new.tag, *old),
            None => {
                self.index.insert(entry);
                false
            }
        };
        if let Some((old, Some(head))) = old.filter(|_| was_there)
            && let Some(segment) = self.segments.get(old.segment)
        {
            let gone = Tally::one(head.kind, head.bytes());
            segment.tallies(|tallies| tallies.subtract(head.due, gone));
        }
    }

    /// Counts replays where the frame is. Not worth an fsync, nor an error: it is a count.
    fn count_in_place(&self, staged: &Staged) {
        let Some((place, Some(head))) = &staged.found else {
            return;
        };
        let count = u64::from(head.replays).saturating_add(staged.counted);
        let field = replays_field(u32::try_from(count).unwrap_or(u32::MAX));
        if let Some(segment) = self.segments.get(place.segment) {
            let at = u64::from(place.offset) + REPLAYS_AT as u64;
            drop(disk::write_at(&segment.file, &field, at));
        }
    }
}

/// Marks a frame that is replaced within its own segment: nobody needs to hear of it again.
fn replaced(all: &mut [Listed], segment: u32, old: Option<&(Place, Option<Head>)>) {
    if let Some((old, _)) = old.filter(|(old, _)| old.segment == segment)
        && let Ok(at) = all.binary_search_by_key(&old.offset, |it| it.offset)
    {
        all[at].kind = Kind::Closed;
    }
}

/// The frame that says how a slot is left.
fn frame(slot: Slot, entry: &Entry, now: Duration) -> (Head, Bytes) {
    let (kind, due, payload) = match &entry.kept {
        None => (Kind::Gone, 0, Bytes::new()),
        Some(kept) => (
            kind(kept),
            tally::due(kept.expires, now),
            codec::encode(kept),
        ),
    };
    let head = Head {
        kind,
        begins: false,
        due,
        slot,
        replays: 0,
        payload_bytes: u32::try_from(payload.len()).unwrap_or(u32::MAX),
    };
    (head, payload)
}

fn kind(kept: &Kept) -> Kind {
    match kept.phase {
        Phase::Pending { .. } => Kind::Pending,
        Phase::Finished(_) => Kind::Finished,
        Phase::Unknown => Kind::Unknown,
    }
}
