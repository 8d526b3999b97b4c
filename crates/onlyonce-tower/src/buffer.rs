//! A bound on the request bodies that are held in memory at a time. Each body has a bound of its own;
//! without this one, memory follows how many clients send at once.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body::Body;

use crate::body::{Gathered, gather};

/// How many bytes of request bodies layers may hold at a time. Clones count together.
#[derive(Clone, Debug)]
pub struct BufferLimit {
    left: Arc<AtomicUsize>,
}

impl BufferLimit {
    /// At most so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self {
            left: Arc::new(AtomicUsize::new(bytes)),
        }
    }

    /// Reads a body as the layer does, for what has to be read before the layer gets it: at most
    /// `bytes_max` bytes, and no more than there is room for. Trailers are dropped.
    pub async fn read<B>(
        &self,
        body: B,
        bytes_max: usize,
    ) -> Result<(Bytes, Room), NotBuffered<B::Error>>
    where
        B: Body<Data = Bytes>,
    {
        let mut room = Room::within(Some(self));
        match gather(pin!(body), bytes_max, &mut room).await {
            Gathered::Whole(whole) => Ok((whole.data, room)),
            Gathered::Over(_) if room.is_short() => Err(NotBuffered::NoRoom),
            Gathered::Over(_) => Err(NotBuffered::TooLarge),
            Gathered::Broken(_, error) => Err(NotBuffered::Broken(error)),
        }
    }

    fn take(&self, bytes: usize) -> bool {
        let take = |left: usize| left.checked_sub(bytes);
        let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
        self.left.fetch_update(set, fetch, take).is_ok()
    }
}

/// Why a body is not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotBuffered<E> {
    /// It is larger than it may be.
    TooLarge,
    /// Bodies of others take the room that it would need.
    NoRoom,
    /// It broke off.
    Broken(E),
}

/// The room that one body has taken; given back when it is dropped.
#[derive(Debug)]
pub struct Room {
    limit: Option<BufferLimit>,
    taken: usize,
    is_short: bool,
}

impl Room {
    /// Room for one body within `limit`, if there is one.
    pub(crate) fn within(limit: Option<&BufferLimit>) -> Self {
        Self {
            limit: limit.cloned(),
            taken: 0,
            is_short: false,
        }
    }

    /// Takes room for `bytes` more; false if there is none.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let Some(limit) = &self.limit else {
            return true;
        };
        if limit.take(bytes) {
            self.taken += bytes;
        } else {
            self.is_short = true;
        }
        !self.is_short
    }

    /// Whether there was no room for all of the body.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(limit) = &self.limit {
            limit.left.fetch_add(self.taken, Ordering::AcqRel);
        }
    }
}

/// The room of a body that is in memory.
#[derive(Debug)]
pub(crate) enum Held {
    /// Nothing counts it.
    Nothing,
    Own(Room),
    /// With what else was made of the same message.
    #[expect(dead_code, reason = "it is held, and never looked at")]
    Shared(Arc<Room>),
}

impl Held {
    /// Data that keeps its room for as long as there is any of it: whoever writes it takes the body apart
    /// first, and may wait for the other side for long.
    pub(crate) fn keep(&mut self, data: Bytes) -> Bytes {
        match std::mem::replace(self, Self::Nothing) {
            Self::Own(Room { taken: 0, .. }) | Self::Nothing => data,
            room @ (Self::Own(_) | Self::Shared(_)) => {
                Bytes::from_owner(Kept { data, _room: room })
            }
        }
    }
}

struct Kept {
    data: Bytes,
    _room: Held,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}
