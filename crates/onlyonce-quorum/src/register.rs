//! What a slot's register holds: the record with its deadlines, the tokens that were released, and
//! the moment they are counted from. The steps on it are [`Entry`]'s, as in every store that decides
//! in its own process.
//!
//! A register has a time line of its own. It begins with the servers' date and goes on by the time
//! that has passed on the servers since the value was accepted there, as a majority of them says.
//! No clock is ever compared with another one.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use onlyonce_core::codec::{self, CodecError};
use onlyonce_core::entry::{Change, Entry};
use onlyonce_core::{Claim, Claimed, Lease, Release, Released, Token};

use crate::finding::Found;
use crate::proposer::Decision;

pub(crate) use self::operating::{Counting, Discarding, Extending, Forgetting, Resolving};

mod operating;
#[cfg(test)]
mod tests;

const MARK: [u8; 2] = *b"S1";
const HEAD_BYTES: usize = MARK.len() + 8 + 4 + 8 + 4 + 1;
const DEAD_BYTES: usize = Token::BYTES + 8 + 4;
/// So many released tokens are remembered for a slot; the ones that would be over first go first.
const DEAD_MAX: usize = 255;
/// How much longer than any record in it a register stays: servers vote on it until no older value
/// on a server that missed the newer ones can be taken for a live one.
const TAIL: Duration = Duration::from_secs(60);
/// The same in proportion, for clocks that do not run alike: one part in this many.
const DRIFT: u32 = 256;

/// One release, over all its tries. What a try wrote may have been carried on by another process, whose
/// next step hides it: then the release has happened, whatever is in the slot by now.
pub(crate) struct Releasing<'a> {
    lease: &'a Lease,
    why: Release,
    /// Whether the last try was to end the claim.
    is_ending: bool,
}

impl<'a> Releasing<'a> {
    pub(crate) fn new(lease: &'a Lease, why: Release) -> Self {
        Self {
            lease,
            why,
            is_ending: false,
        }
    }

    /// One try.
    pub(crate) fn step(
        &mut self,
        register: &mut SlotRegister,
        now: Duration,
    ) -> (Released, Change) {
        if self.is_ending && register.is_dead(&self.lease.token, now) {
            return (Released::Ended, Change::Nothing);
        }
        let (released, change) = register.release(self.lease, self.why, now);
        self.is_ending = change == Change::Settled;
        (released, change)
    }
}

/// The value of a slot's register.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotRegister {
    /// The moment this value was made, on the register's time line.
    at: Duration,
    /// No record in any earlier value lasts longer than this, nor does this one.
    horizon: Duration,
    /// The record.
    pub entry: Entry,
    /// Released tokens, and until when they stay dead; and those of steps that must not be taken twice.
    dead: Vec<(Token, Duration)>,
}

impl SlotRegister {
    /// Takes one atomic step on what was found. What it says is to be written, or nothing.
    pub fn step<T>(
        found: &Found,
        step: impl FnOnce(&mut Self, Duration) -> (T, Change),
    ) -> Result<Decision<T>, CodecError> {
        let (mut register, now) = Self::read(found)?;
        let dead = register.dead.clone();
        let (answer, change) = step(&mut register, now);
        // What is not decided is written back, and counted anew from then on: as a value of now it keeps
        // the time that has passed.
        let is_changed = change != Change::Nothing || register.dead != dead || !found.is_decided;
        if is_changed {
            register.settle(now);
        }
        Ok(Decision {
            answer,
            value: is_changed.then(|| register.encode()),
            keep_for: Some(register.keep_for(now)),
            wake: change == Change::Settled,
        })
    }

    /// What was found, and the present moment on its time line.
    pub(crate) fn read(found: &Found) -> Result<(Self, Duration), CodecError> {
        let Some(value) = &found.value else {
            let register = Self {
                at: found.wall,
                ..Self::default()
            };
            return Ok((register, found.wall));
        };
        let register = Self::decode(value)?;
        let now = register.at.saturating_add(found.age(register.at));
        Ok((register, now))
    }

    /// [`Store::claim`](onlyonce_core::Store::claim).
    pub fn claim(&mut self, claim: &Claim, now: Duration) -> (Claimed, Change) {
        if self.is_dead(&claim.token, now) {
            return (Claimed::Dead, Change::Nothing);
        }
        self.entry.claim(claim, now)
    }

    /// [`Store::release`](onlyonce_core::Store::release).
    pub fn release(&mut self, lease: &Lease, why: Release, now: Duration) -> (Released, Change) {
        let (released, change) = self.entry.release(lease, why, now);
        // A claim that has not arrived yet can be given back too, but not as unknown.
        if why == Release::NotRun || change != Change::Nothing {
            let until = now.saturating_add(lease.lease_for);
            self.dead.retain(|(token, _)| *token != lease.token);
            self.dead.push((lease.token, until));
        }
        (released, change)
    }

    /// Whether this token was released less than a lease ago.
    fn is_dead(&self, token: &Token, now: Duration) -> bool {
        let mut dead = self.dead.iter();
        dead.any(|(dead, until)| dead == token && *until > now)
    }

    /// When nothing of it matters any longer.
    fn end(&self) -> Duration {
        let dead = self.dead.iter().map(|(_, until)| *until).max();
        let record = self.entry.kept.as_ref().map(|kept| kept.expires);
        dead.max(record).unwrap_or_default()
    }

    /// Makes it a value of this moment.
    fn settle(&mut self, now: Duration) {
        self.dead.retain(|(_, until)| *until > now);
        if self.dead.len() > DEAD_MAX {
            self.dead.sort_unstable_by_key(|(_, until)| *until);
            self.dead.drain(..self.dead.len() - DEAD_MAX);
        }
        self.at = now;
        self.horizon = self.horizon.max(self.end());
    }

    /// How long servers keep it from now on.
    fn keep_for(&self, now: Duration) -> Duration {
        let left = self.horizon.saturating_sub(now);
        left.saturating_add(left / DRIFT).saturating_add(TAIL)
    }

    fn encode(&self) -> Bytes {
        let kept = self.entry.kept.as_ref().map(codec::encode);
        let kept = kept.unwrap_or_default();
        let dead = self.dead.len() * DEAD_BYTES;
        let mut out = BytesMut::with_capacity(HEAD_BYTES + dead + kept.len());
        out.put_slice(&MARK);
        put_moment(&mut out, self.at);
        put_moment(&mut out, self.horizon);
        out.put_u8(
            u8::try_from(self.dead.len()).expect("dead tokens are bounded when it is settled"),
        );
        for (token, until) in &self.dead {
            out.put_slice(token.as_bytes());
            put_moment(&mut out, *until);
        }
        out.put_slice(&kept);
        out.freeze()
    }

    /// Reads a register's value.
    pub fn decode(value: &Bytes) -> Result<Self, CodecError> {
        let mut rest = value.clone();
        if rest.len() < HEAD_BYTES || !rest.starts_with(&MARK) {
            return Err(CodecError::NotARecord);
        }
        rest.advance(MARK.len());
        let (at, horizon) = (moment(&mut rest), moment(&mut rest));
        let dead = usize::from(rest.get_u8());
        if rest.len() < dead * DEAD_BYTES {
            return Err(CodecError::Damaged {
                what: "released tokens",
            });
        }
        let dead = (0..dead).map(|_| {
            let mut token = [0; Token::BYTES];
            rest.copy_to_slice(&mut token);
            (Token::from_bytes(token), moment(&mut rest))
        });
        let dead = dead.collect();
        let kept = match rest.is_empty() {
            true => None,
            false => Some(codec::decode(&rest)?),
        };
        Ok(Self {
            at,
            horizon,
            entry: Entry { kept },
            dead,
        })
    }
}

fn put_moment(out: &mut BytesMut, moment: Duration) {
    out.put_u64(moment.as_secs());
    out.put_u32(moment.subsec_nanos());
}

/// The length was checked before.
fn moment(from: &mut Bytes) -> Duration {
    let seconds = from.get_u64();
    let nanos = from.get_u32();
    Duration::from_secs(seconds).saturating_add(Duration::from_nanos(nanos.into()))
}
