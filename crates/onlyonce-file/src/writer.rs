//! The one that changes anything: takes everything that waits, decides it step by step, writes it
//! with one fsync, and only then answers. Claims that may be run again go first and do not wait for
//! the disk: see [`Question::durable`]. It has a thread of its own; a claim that finds it idle is
//! decided on the caller's ([`at_once`](super::at_once)).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use onlyonce_core::entry::ReleasedTokens;
use onlyonce_core::operate::Resolved;
use onlyonce_core::{
    Claim, Claimed, Completed, Lease, OnLapse, Release, Released, Renewed, Response, Slot,
    StoreError, StoreErrorKind,
};

use super::NAME;
use super::agreed::Agreed;
use super::claims::Claims;
use super::disk;
use super::index::{Place, Tag};
use super::log::{CommitError, Durable, Log};
use super::shared::{Shared, failed, full};
use super::staged::Batch;
use onlyonce_storekit::batch::{Asked, Waiting, answer_all};

/// How many questions one commit answers at most.
const BATCH_MAX: usize = 1024;
/// How many bytes of answers one commit writes, or one more than that.
const BATCH_BYTES: usize = 64 << 20;
const RELEASED_PER_BATCH: usize = 64;

/// What is asked of the writer.
pub(super) enum Question {
    Claim(Claim),
    Renew(Lease, Duration),
    Complete(Lease, Arc<Response>, Duration),
    Release(Lease, Release),
    Forget(Slot),
    Extend(Slot, Duration),
    Resolve(Slot, Arc<Response>, Duration),
    Discard(Slot),
    CountReplays(Vec<(Slot, u64)>),
    Agree(String, Vec<u8>),
    /// What was agreed on under a name.
    WhatAgreed(String),
    /// Writes these frames again, as far as they still count, so that their segment can go.
    Move(Vec<(Tag, Place)>),
    /// Begins a new segment.
    Roll,
    /// Whether anybody is there.
    Ping,
}

impl Question {
    /// When what comes of it has to be durable. A claim that may be run again is written at once, which
    /// a killed process survives, and becomes durable with the next commit. If the power fails before
    /// that, its slot is free again at once, as it would be after its lease: what was begun may run
    /// again either way. A claim under `hold` may never, one that is looked into before it runs again
    /// must be found for that, and both wait.
    pub(super) fn durable(&self) -> Durable {
        match self {
            Self::Claim(claim) => match claim.on_lapse {
                OnLapse::Rerun if claim.must_last => Durable::Now,
                OnLapse::Rerun => Durable::Later,
                OnLapse::Hold => Durable::Now,
            },
            Self::Renew(..)
            | Self::Complete(..)
            | Self::Release(..)
            | Self::Forget(_)
            | Self::Extend(..)
            | Self::Resolve(..)
            | Self::Discard(_)
            | Self::CountReplays(_)
            | Self::Agree(..)
            | Self::WhatAgreed(_)
            | Self::Move(_)
            | Self::Roll
            | Self::Ping => Durable::Now,
        }
    }
}

/// What the writer says.
pub(super) enum Answer {
    Claimed(Claimed),
    Renewed(Renewed),
    Completed(Completed),
    Released(Released),
    /// Whether there was a record.
    Did(bool),
    Resolved(Resolved),
    /// How often records were replayed now.
    Counted(Vec<(Slot, u64)>),
    Agreed(Vec<u8>),
    WasAgreed(Option<Vec<u8>>),
    /// How many frames could not be read, and are where they were.
    Moved {
        unreadable: usize,
    },
    Done,
}

pub(super) type Answered = Result<Answer, StoreError>;

pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) log: Log,
    pub(super) agreed: Agreed,
    pub(super) released: ReleasedTokens,
    pub(super) claims: Claims,
    /// New keys are refused once the log has this many bytes.
    pub(super) bytes_max: u64,
}

/// Answers until nobody can ask any more, then closes the log.
pub(super) fn run(writer: &Mutex<Writer>, mut waiting: Waiting<Question, Answered>) {
    let shared = Arc::clone(&hold(writer).shared);
    let _ends = Ends(Arc::clone(&shared));
    let mut asked = Vec::new();
    while waiting.blocking_recv_many(&mut asked, BATCH_MAX) > 0 {
        shared.is_busy.store(true, Ordering::Relaxed);
        while !asked.is_empty() {
            let batch = asked.drain(..fitting(&asked));
            // Every caller waits for its answer: what waits here together has no order.
            let (quick, rest): (Vec<_>, Vec<_>) =
                batch.partition(|asked| asked.question.durable() == Durable::Later);
            let is_last = |left: &[_]| left.is_empty() && asked.is_empty();
            answer(writer, &shared, quick, Durable::Later, is_last(&rest));
            answer(writer, &shared, rest, Durable::Now, is_last(&[]));
        }
    }
    hold(writer).log.close();
}

/// Answers what was asked. What a caller does next must not find the writer at work: it is free before it
/// tells the last of them.
fn answer(
    writer: &Mutex<Writer>,
    shared: &Shared,
    asked: Vec<Asked<Question, Answered>>,
    durable: Durable,
    is_last: bool,
) {
    if asked.is_empty() {
        return;
    }
    let questions: Vec<_> = asked.iter().map(|asked| &asked.question).collect();
    let answers = hold(writer).answers(&questions, durable);
    if is_last {
        shared.is_busy.store(false, Ordering::Relaxed);
    }
    answer_all(asked.into_iter().zip(answers));
}

/// Locks the writer. After a panic of a caller that had it nothing more is taken.
fn hold(writer: &Mutex<Writer>) -> MutexGuard<'_, Writer> {
    writer.lock().unwrap_or_else(|poisoned| {
        let writer = poisoned.into_inner();
        writer.shared.fail("its writer panicked".to_owned());
        writer
    })
}

/// Ends the store if its thread ends by a panic: what is remembered elsewhere must not outlive it.
struct Ends(Arc<Shared>);

impl Drop for Ends {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("its writer panicked".to_owned());
        }
    }
}

impl Writer {
    /// Decides what was asked and writes what comes of it; says what to answer to each, in their order.
    pub(super) fn answers(&mut self, asked: &[&Question], durable: Durable) -> Vec<Answered> {
        let refused = |why: &dyn Fn() -> StoreError| asked.iter().map(|_| Err(why())).collect();
        if let Some(why) = self.shared.failure() {
            return refused(&|| failed(why));
        }
        let now = self.shared.now();
        self.released.tidy(RELEASED_PER_BATCH, now);
        let shared = Arc::clone(&self.shared);
        let mut claims = std::mem::take(&mut self.claims);
        let mut batch = Batch::new(&shared, &mut claims, self.has_room(), now);
        let answers = asked.iter().map(|it| self.decide(it, &mut batch)).collect();
        let committed = batch.commit(&mut self.log, durable);
        self.claims = claims;
        match committed {
            Ok(()) => {}
            Err(CommitError::Full) => return refused(&|| full("the disk is full")),
            Err(CommitError::Failed(error)) => shared.fail(error.to_string()),
        }
        // Also what began a new segment, or looked at the files, may have found that the disk failed.
        match shared.failure() {
            Some(why) => refused(&|| failed(why)),
            None => answers,
        }
    }

    fn has_room(&mut self) -> bool {
        let is_within = self.bytes_max == u64::MAX || self.shared.segments.bytes() < self.bytes_max;
        is_within && self.log.has_room()
    }

    fn decide(&mut self, question: &Question, batch: &mut Batch<'_>) -> Answered {
        let now = batch.now;
        match question {
            Question::Claim(claim) => {
                if self.released.is_dead(&claim.slot, &claim.token, now) {
                    return Ok(Answer::Claimed(Claimed::Dead));
                }
                batch.claim(claim).map(Answer::Claimed)
            }
            Question::Renew(lease, lease_for) => batch
                .step(&lease.slot, |entry| entry.renew(lease, *lease_for, now))
                .map(Answer::Renewed),
            Question::Complete(lease, response, keep_for) => batch
                .step(&lease.slot, |entry| {
                    entry.complete(lease, response, *keep_for, now)
                })
                .map(Answer::Completed),
            Question::Release(lease, why) => {
                let (released, change) = batch.step(&lease.slot, |entry| {
                    let (released, change) = entry.release(lease, *why, now);
                    ((released, change), change)
                })?;
                self.released.add(lease, *why, change, now);
                Ok(Answer::Released(released))
            }
            Question::Forget(slot) => batch.forget(slot).map(Answer::Did),
            Question::Extend(slot, extra) => batch
                .step(slot, |entry| entry.extend(*extra, now))
                .map(Answer::Did),
            Question::Resolve(slot, response, keep_for) => batch
                .step(slot, |entry| entry.resolve(response, *keep_for, now))
                .map(Answer::Resolved),
            Question::Discard(slot) => batch
                .step(slot, |entry| entry.discard(now))
                .map(Answer::Resolved),
            Question::CountReplays(replays) => batch.count_replays(replays).map(Answer::Counted),
            Question::Agree(name, offer) => self.agree(name, offer).map(Answer::Agreed),
            Question::WhatAgreed(name) => Ok(Answer::WasAgreed(self.agreed.get(name))),
            Question::Move(frames) => Ok(Answer::Moved {
                unreadable: batch.rewrite(frames),
            }),
            Question::Roll => {
                self.log.roll();
                Ok(Answer::Done)
            }
            Question::Ping => Ok(Answer::Done),
        }
    }

    /// The manifest names the agreement before anybody relies on it.
    fn agree(&mut self, name: &str, offer: &[u8]) -> Result<Vec<u8>, StoreError> {
        let agreed = self.agreed.agree(name, offer).and_then(|value| {
            let values = self.agreed.len();
            if self.shared.manifest.get().agreed < values {
                self.shared.note(|it| it.agreed = values)?;
            }
            Ok(value)
        });
        agreed.map_err(|error| {
            let kind = if disk::is_full(&error) {
                StoreErrorKind::Full
            } else {
                StoreErrorKind::Unavailable
            };
            StoreError::new(NAME, kind).caused_by(error)
        })
    }
}

/// How many of the questions go into one commit.
fn fitting(asked: &[Asked<Question, Answered>]) -> usize {
    let mut bytes = 0;
    for (n, asked) in asked.iter().enumerate() {
        if bytes >= BATCH_BYTES {
            return n;
        }
        bytes += match &asked.question {
            Question::Complete(_, response, _) | Question::Resolve(_, response, _) => {
                response.bytes()
            }
            Question::Claim(_)
            | Question::Renew(..)
            | Question::Release(..)
            | Question::Forget(_)
            | Question::Extend(..)
            | Question::Discard(_)
            | Question::CountReplays(_)
            | Question::Agree(..)
            | Question::WhatAgreed(_)
            | Question::Move(_)
            | Question::Roll
            | Question::Ping => 0,
        };
    }
    asked.len()
}
