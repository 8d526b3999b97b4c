//! Expired records leave the disk by themselves: whole segments, oldest first. What is still alive
//! in the oldest one is written again at the end once more is dead than alive.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::disk;
use super::frame::{HEADER_BYTES, Kind};
use super::index::{Place, Tag};
use super::listing;
use super::lock;
use super::manifest::{Contents, Written};
use super::scan::ScanError;
use super::segment::{Listed, Segment};
use super::shared::Shared;
use super::tally;
use super::writer::{Answer, Answered, Question};
use onlyonce_storekit::batch::Gatherer;

/// How often it looks by itself.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What is dead may take this part of a segment more room than what is alive.
const SLACK_PART: u64 = 8;
/// A segment is not written to for longer than this part of the time its records have left: they
/// leave the disk that much later than they expire.
const AGE_PART: u64 = 16;
const AGE_MILLIS_MIN: u64 = 60_000;
/// How much is written again at a time, so that requests get in between.
const MOVE_RECORDS: usize = 64;
const MOVE_BYTES: usize = 256 << 10;
/// How long a segment is left alone that has something unreadable.
const STUCK_MILLIS: u64 = 3_600_000;

/// How long the moment is not written again at least: a clock may be set all the time.
const KEEP_PAUSE: Duration = Duration::from_secs(10);
/// How long the end of the log is not written again at least: it moves all the time.
pub(super) const NOTE_PAUSE: Duration = Duration::from_secs(60);

/// What makes the sweeper look.
pub(super) enum Nudge {
    /// A segment is full: its frames are to be listed.
    Sealed(Arc<Segment>),
    /// Something may have expired.
    Look,
    /// The store is closed.
    Stop,
}

pub(super) struct Sweeper {
    pub(super) shared: Arc<Shared>,
    pub(super) writer: Arc<Gatherer<Question, Answered>>,
    pub(super) segment_bytes: u64,
    pub(super) is_stopped: Arc<AtomicBool>,
    /// When the moment is looked at next, on the store's clock.
    pub(super) keep_at: Duration,
    /// When the end of the log is looked at next.
    pub(super) note_at: Duration,
}

impl Sweeper {
    pub(super) fn run(mut self, nudges: Receiver<Nudge>) {
        loop {
            match nudges.recv_timeout(LOOK_EVERY) {
                Ok(Nudge::Sealed(segment)) => self.list(&segment),
                Ok(Nudge::Look) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Nudge::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.shared.check().is_err() {
                continue;
            }
            if let Err(error) = self.shared.watch() {
                self.shared.fail(error.to_string());
                continue;
            }
            self.keep_moment();
            if let Err(error) = self.look() {
                tracing::warn!(target: "onlyonce", %error, "expired records stay on disk for now");
            }
        }
    }

    /// Keeps the moment, so that the next process knows how much time has passed, and how far the log
    /// has been written, so that it knows an older copy of it.
    fn keep_moment(&mut self) {
        let moment = self.shared.time.moment();
        let kept = self.shared.manifest.get();
        let is_outdated = self.keep_at <= moment.store && kept.moment.is_outdated(&moment);
        let has_grown = self.note_at <= moment.store && self.has_grown(&kept);
        if !is_outdated && !has_grown {
            return;
        }
        self.keep_at = moment.store + KEEP_PAUSE;
        self.note_at = moment.store + NOTE_PAUSE;
        if let Err(error) = self.shared.note(|it| it.moment = moment) {
            tracing::warn!(
                target: "onlyonce", %error,
                "the time and the end of the log could not be kept with the store; it is tried again"
            );
        }
    }

    /// Whether more of the log is durable than the manifest says.
    fn has_grown(&self, kept: &Contents) -> bool {
        let newest = self.shared.segments.newest();
        newest.is_some_and(|newest| kept.written != Some(Written::of(&newest)))
    }

    fn look(&self) -> Result<(), ScanError> {
        if self.is_due() {
            self.ask(Question::Roll);
        }
        while let Some(oldest) = self.shared.segments.oldest_sealed()
            && !self.is_stopped.load(Ordering::Relaxed)
            && self.is_spent(&oldest)
            && self.clear(&oldest)?
        {
            self.drop_segment(&oldest)?;
        }
        Ok(())
    }

    fn now(&self) -> u64 {
        tally::millis(self.shared.now())
    }

    /// Whether the segment that is being written had better end, so that it can go in its time.
    fn is_due(&self) -> bool {
        let Some(active) = self.shared.segments.newest() else {
            return false;
        };
        let now = self.now();
        let (live, _) = active.tallies(|tallies| tallies.at(now));
        let last_due = active.tallies(|tallies| tallies.last_due()).unwrap_or(now);
        let age = now.saturating_sub(active.header.began);
        let is_old = age >= AGE_MILLIS_MIN.max(last_due.saturating_sub(now) / AGE_PART);
        let is_dead = live.records == 0 && active.end() > self.slack();
        active.end() > HEADER_BYTES as u64 && (is_old || is_dead)
    }

    fn slack(&self) -> u64 {
        self.segment_bytes / SLACK_PART
    }

    /// Whether the oldest segment should go: nothing in it is alive, or too much is dead in all.
    fn is_spent(&self, oldest: &Segment) -> bool {
        let now = self.now();
        let (live, _) = oldest.tallies(|tallies| tallies.at(now));
        if live.records == 0 {
            return true;
        }
        let (alive, _) = self.shared.tally();
        let bytes = self.shared.segments.bytes();
        let is_wasteful = bytes > 2 * alive.bytes + self.slack();
        is_wasteful && oldest.stuck_until.load(Ordering::Relaxed) <= now
    }

    /// Takes everything in a segment out of the index; what is alive is written again at the end.
    fn clear(&self, segment: &Segment) -> Result<bool, ScanError> {
        let now = self.now();
        let mut moving = Moving::default();
        let mut listed = listing::of(segment)?;
        listed.retain(|it| self.shared.holds(segment, it));
        for it in &listed {
            if it.due <= now {
                self.shared.expire(segment, it);
                continue;
            }
            moving.add(it.tag, segment.place(it.offset), it.bytes as usize);
            if moving.is_enough() && !self.move_all(&mut moving, segment) {
                return Ok(false);
            }
        }
        let is_moved = self.move_all(&mut moving, segment);
        Ok(is_moved && !listed.iter().any(|it| self.shared.holds(segment, it)))
    }

    fn move_all(&self, moving: &mut Moving, from: &Segment) -> bool {
        let frames = std::mem::take(moving).frames;
        if frames.is_empty() {
            return true;
        }
        if self.is_stopped.load(Ordering::Relaxed) {
            return false;
        }
        let Some(Answer::Moved { unreadable }) = self.ask(Question::Move(frames)) else {
            return false;
        };
        if unreadable > 0 {
            tracing::warn!(
                target: "onlyonce", segment = from.id(), unreadable,
                "records cannot be read; their segment stays on disk until they expire"
            );
            from.stuck_until
                .store(self.now() + STUCK_MILLIS, Ordering::Relaxed);
        }
        unreadable == 0
    }

    /// Deletes a segment for good, once the manifest no longer names it.
    fn drop_segment(&self, segment: &Segment) -> io::Result<()> {
        let next = segment.id() + 1;
        self.shared.note(|it| it.first = next)?;
        // Before its file: what is still among the segments must have one.
        self.shared.segments.remove(segment.id());
        fs::remove_file(&segment.path)?;
        match fs::remove_file(segment.list_path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        disk::sync_folder(&self.shared.folder.path)
    }

    /// Puts the list of a segment's frames beside it. Without it the segment itself is read.
    fn list(&self, segment: &Segment) {
        let listed = lock(&segment.listed).clone();
        let is_there = self.shared.segments.get(segment.id()).is_some();
        let Some(mut listed) = listed.filter(|_| is_there) else {
            return;
        };
        listed.retain(|it| it.kind != Kind::Closed);
        if let Err(error) = listing::write(segment, &listed) {
            tracing::warn!(target: "onlyonce", %error, "a segment's list could not be written");
        }
        *lock(&segment.listed) = None;
    }

    fn ask(&self, question: Question) -> Option<Answer> {
        self.writer.ask_blocking(question)?.ok()
    }
}

/// Frames to be written again.
#[derive(Default)]
struct Moving {
    frames: Vec<(Tag, Place)>,
    bytes: usize,
}

impl Moving {
    fn add(&mut self, tag: Tag, place: Place, bytes: usize) {
        self.frames.push((tag, place));
        self.bytes += bytes;
    }

    fn is_enough(&self) -> bool {
        self.frames.len() >= MOVE_RECORDS || self.bytes >= MOVE_BYTES
    }
}

impl Shared {
    /// Drops at most `records_max` expired records out of the index; says how many.
    pub(super) fn sweep(&self, records_max: usize) -> Result<usize, ScanError> {
        let now = tally::millis(self.now());
        let mut swept = 0;
        for segment in self.segments.all() {
            let (_, expired) = segment.tallies(|tallies| tallies.at(now));
            if expired.records == 0 || swept == records_max {
                continue;
            }
            for it in listing::of(&segment)? {
                if swept == records_max {
                    break;
                }
                let is_over = it.kind.is_record() && it.due <= now;
                swept += usize::from(is_over && self.expire(&segment, &it));
            }
        }
        Ok(swept)
    }

    /// Whether the index has this frame.
    fn holds(&self, segment: &Segment, it: &Listed) -> bool {
        it.kind.is_record() && self.index.points_to(it.tag, segment.place(it.offset))
    }

    /// Takes an expired record out of the index; false if it was gone already.
    fn expire(&self, segment: &Segment, it: &Listed) -> bool {
        let was_there = self.index.remove(it.tag, segment.place(it.offset));
        if was_there {
            segment.tallies(|tallies| tallies.subtract(it.due, it.tally()));
        }
        was_there
    }
}
