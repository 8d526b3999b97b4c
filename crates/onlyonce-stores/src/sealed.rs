//! What is stored, compressed and encrypted (R7, docs/protocol.md#rule-24). A stolen store shows no answer, and
//! its fingerprints cannot be guessed back into requests; bytes that were changed, moved or
//! replayed are refused, never shown.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{
    Claim, Claimed, Completed, Entropy, Fingerprint, Lease, OsEntropy, Record, Release, Released,
    Renewed, Replay, Response, Slot, State, Store, StoreError, StoreErrorKind, async_trait,
};

use crate::OpenError;
use crate::packed::COMPRESS_ABOVE_BYTES;
use crate::wrap::forward;

pub use self::ring::{KeyRing, KeyRingError};
pub use self::seal::SealError;

use self::seal::Bound;

mod check;
mod cipher;
mod cover;
mod key_file;
mod operate;
mod ring;
mod ring_key;
mod seal;

const NAME: &str = "sealed";
/// The digest in the place of a lease's own.
const BLANK: [u8; 32] = [0; 32];
/// The most that a seal adds to an answer: nonce, tag, its header and the form of its content.
const SEAL_BYTES: usize = 4096;

/// A store that seals what the store inside it keeps.
///
/// **Sealed** are the headers, body, trailers and resource of an answer: compressed if they are
/// large and that makes them smaller, then encrypted with XChaCha20-Poly1305 under a random nonce,
/// and bound to their slot, token, fingerprint and state. The fingerprint is stored in a form that
/// needs the key to compute. **Readable** stay the state, status, times and what a record tells
/// people (route, actor, holder, trace, the harmless start of the key), so that operators can list
/// and filter; nothing secret is in there. Readable too is what processes agree on in the store:
/// configure the slot secret where clients' keys or credentials are easy to guess.
///
/// **Not promised**: someone who can write to the store can still take records away or put back
/// an earlier state of one. Sizes show, also how well an answer compresses; turn that off with
/// [`compress_above`](Self::compress_above) where an attacker writes part of the answers.
///
/// **Rotation**: add the new key at the end of every process's ring, then move it to the front;
/// the first seals, all open. Once no record under an old key can be left, write `retired` in
/// place of it.
///
/// A record whose key is missing, or whose seal is broken, is an error of kind
/// [`Corrupt`](StoreErrorKind::Corrupt): nothing runs, not even where the policy is to run without
/// a store.
///
/// ```
/// use std::sync::Arc;
/// use onlyonce_core::{MemoryStore, OsEntropy};
/// use onlyonce_stores::{KeyRing, Sealed};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let ring = KeyRing::generate(&OsEntropy::new());
/// let store = Sealed::open(Arc::new(MemoryStore::new()), ring).await.unwrap();
/// # let _ = store;
/// # }
/// ```
pub struct Sealed {
    inner: Arc<dyn Store>,
    ring: KeyRing,
    entropy: Arc<dyn Entropy>,
    compress_above: usize,
}

impl Sealed {
    /// Seals what `store` keeps with the keys of `ring`. Refuses a ring without the key that the
    /// store is sealed with, where the store has an operators' side to notice that by.
    pub async fn open(store: Arc<dyn Store>, ring: KeyRing) -> Result<Self, OpenError> {
        if let Some(operate) = store.operate() {
            check::check(operate, &ring).await?;
        }
        Ok(Self {
            inner: store,
            ring,
            entropy: Arc::new(OsEntropy::new()),
            compress_above: COMPRESS_ABOVE_BYTES,
        })
    }

    /// Compresses answers of more than this many bytes; `usize::MAX` is never.
    #[must_use]
    pub fn compress_above(mut self, bytes: usize) -> Self {
        self.compress_above = bytes;
        self
    }

    /// Draws nonces from another randomness.
    #[must_use]
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.entropy = entropy;
        self
    }

    /// The sealed form of the answer to `lease`, for who completes it in the store inside by
    /// another way than this wrapper: within a database transaction.
    pub fn seal(&self, lease: &Lease, response: &Response) -> Arc<Response> {
        let bound = Bound {
            slot: &lease.slot,
            token: &lease.token,
            fingerprint: lease.fingerprint,
        };
        self.seal_bound(&bound, response)
    }

    fn seal_bound(&self, bound: &Bound<'_>, response: &Response) -> Arc<Response> {
        let key = self.ring.first();
        let sealed = seal::seal(key, bound, response, self.compress_above, &*self.entropy);
        Arc::new(sealed)
    }

    /// The claim as the store inside gets it, its fingerprint under the first key.
    fn covered(&self, claim: &Claim) -> Claim {
        let cover = self.ring.first().cover();
        Claim {
            fingerprint: cover.on(&claim.slot, claim.fingerprint),
            ..claim.clone()
        }
    }

    /// A lease as the store inside gets it: without its fingerprint, which stores do not go by.
    fn blank(lease: &Lease) -> Lease {
        Lease {
            fingerprint: Fingerprint::new(lease.fingerprint.recipe(), BLANK),
            ..lease.clone()
        }
    }

    /// Whether `claim` may take over `record`, which was claimed under an older key: the store
    /// inside takes its fingerprint for another one.
    fn is_rotated_lapse(&self, claim: &Claim, covered: &Claim, record: &Record) -> bool {
        record.is_lapsed()
            && record.on_lapse.both_rerun(claim.on_lapse)
            && record.fingerprint != covered.fingerprint
            && self
                .ring
                .covers(&claim.slot, claim.fingerprint, record.fingerprint)
    }

    /// The record as it was before it was sealed. Who asks with a fingerprint finds that one in
    /// it, if it is the record's under any key.
    fn opened(
        &self,
        slot: &Slot,
        asked: Option<Fingerprint>,
        mut record: Record,
    ) -> Result<Record, StoreError> {
        let stored = record.fingerprint;
        let mut fingerprint = self.ring.first().cover().off(slot, stored);
        if let State::Done(response) | State::Failed(response) = &record.state {
            let opened =
                seal::open(&self.ring, slot, &record.token, stored, response).map_err(corrupt)?;
            fingerprint = opened.fingerprint;
            record.state = State::finished(opened.response);
        }
        let is_asked = |asked: &Fingerprint| self.ring.covers(slot, *asked, stored);
        record.fingerprint = asked.filter(is_asked).unwrap_or(fingerprint);
        Ok(record)
    }

    fn opened_claim(&self, claim: &Claim, claimed: Claimed) -> Result<Claimed, StoreError> {
        Ok(match claimed {
            Claimed::Granted { lease, overtook } => Claimed::Granted {
                lease: Lease {
                    fingerprint: claim.fingerprint,
                    ..lease
                },
                overtook,
            },
            Claimed::Taken(record) => {
                Claimed::Taken(self.opened(&claim.slot, Some(claim.fingerprint), record)?)
            }
            Claimed::Dead => Claimed::Dead,
        })
    }
}

fn corrupt(error: SealError) -> StoreError {
    StoreError::new(NAME, StoreErrorKind::Corrupt).caused_by(error)
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for Sealed {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let covered = self.covered(claim);
        let mut claimed = self.inner.claim(&covered).await?;
        if let Claimed::Taken(record) = &claimed
            && self.is_rotated_lapse(claim, &covered, record)
        {
            let as_before = Claim {
                fingerprint: record.fingerprint,
                ..covered
            };
            claimed = self.inner.claim(&as_before).await?;
        }
        self.opened_claim(claim, claimed)
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        self.inner.renew(&Self::blank(lease), lease_for).await
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        let (blank, sealed) = (Self::blank(lease), self.seal(lease, response));
        Ok(
            match self.inner.complete(&blank, &sealed, keep_for).await? {
                Completed::Found(record) => {
                    Completed::Found(self.opened(&lease.slot, Some(lease.fingerprint), record)?)
                }
                other @ (Completed::Stored(_) | Completed::Absent) => other,
            },
        )
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        Ok(match self.inner.release(&Self::blank(lease), why).await? {
            Released::Found(record) => {
                Released::Found(self.opened(&lease.slot, Some(lease.fingerprint), record)?)
            }
            Released::Ended => Released::Ended,
        })
    }

    /// Nothing: what the store inside has at hand is sealed, and to open it takes its whole record.
    fn recall(&self, _: &Slot, _: &Fingerprint) -> Option<Replay> {
        None
    }

    fn response_bytes_max(&self) -> Option<usize> {
        let inside = self.inner.response_bytes_max()?;
        Some(inside.saturating_sub(SEAL_BYTES))
    }

    forward!(straight: settled, check, operate);
}
