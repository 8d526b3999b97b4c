//! Answers that expired while no process had the store open. Nobody was there to tell of their ends, so
//! the first sweeps after opening hand them over. Of what ended before, the process of then has told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::operate::Ended;

use super::frame::Kind;
use super::index::{Place, Tag};
use super::lock;
use super::segment::{Listed, Segment};
use super::shared::Shared;
use super::tally;

/// How many are remembered; further ones are told by nobody.
const MISSED_MAX: usize = 100_000;

pub(super) struct Missed {
    /// When the store was last known to be in use, in milliseconds; nothing for a new one.
    since: Option<u64>,
    /// While the store is opened: where they are. A later frame of the slot takes one out again.
    found: Mutex<BTreeMap<Tag, Place>>,
    /// Then: they are read when they are asked for, also from a segment that has left the disk.
    places: Mutex<Vec<(Arc<Segment>, u32)>>,
}

impl Missed {
    pub(super) fn new(since: Option<Duration>) -> Self {
        Self {
            since: since.map(tally::millis),
            found: Mutex::default(),
            places: Mutex::default(),
        }
    }

    /// A frame was read, after all older ones.
    pub(super) fn note(&self, it: &Listed, place: Place, now: u64) {
        let mut found = lock(&self.found);
        let is_missed = it.kind == Kind::Finished
            && it.due <= now
            && self.since.is_some_and(|since| it.due > since);
        if is_missed && found.len() < MISSED_MAX {
            found.insert(it.tag, place);
        } else {
            found.remove(&it.tag);
        }
    }

    /// All frames were read.
    pub(super) fn settle(&self, segment: impl Fn(u32) -> Option<Arc<Segment>>) {
        let found = std::mem::take(&mut *lock(&self.found));
        let places = found.into_values();
        *lock(&self.places) = places
            .filter_map(|place| Some((segment(place.segment)?, place.offset)))
            .collect();
    }

    /// Takes at most so many of them.
    fn take(&self, records_max: usize) -> Vec<(Arc<Segment>, u32)> {
        let mut places = lock(&self.places);
        let left = places.len().saturating_sub(records_max);
        let taken = places.split_off(left);
        if places.is_empty() {
            places.shrink_to_fit();
        }
        taken
    }
}

impl Shared {
    /// At most so many answers that expired while no process had the store open: each once.
    pub(super) fn take_missed(&self, records_max: usize) -> Vec<Ended> {
        let now = self.now();
        let taken = self.missed.take(records_max).into_iter();
        // What cannot be read is gone anyway.
        let ended = taken.filter_map(|(segment, offset)| {
            let frame = segment.read(offset).ok()?;
            let found = self.found(segment.place(offset), frame).ok()?;
            Ended::of_kept(found.head.slot, &found.kept, now)
        });
        ended.collect()
    }
}
