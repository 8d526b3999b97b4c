//! What is stored, compressed (R7): for stores that are not sealed, which compress by themselves.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use onlyonce_core::operate::{Ended, Filter, Newest, Page, Resolved, Swept};
use onlyonce_core::{
    Claim, Claimed, Completed, Fingerprint, Lease, Operate, Record, Release, Released, Replay,
    Response, Slot, State, Store, StoreError, StoreErrorKind, async_trait, codec,
};

use crate::packed::{COMPRESS_ABOVE_BYTES, pack, pack_anyway, unpack};
use crate::wrap::{forward, operators};

const NAME: &str = "compressed";
/// The header of a compressed answer. Never sent: the answer it marks is unpacked or refused.
const MARK: HeaderName = HeaderName::from_static("onlyonce-compressed");
const ZSTD: HeaderValue = HeaderValue::from_static("1;zstd");

/// A store that compresses what the store inside it keeps, where that makes it smaller.
///
/// **Compressed** are the headers, body, trailers and resource of an answer of more than 1 KiB; the
/// state, status, times and what a record tells people stay as they are. Answers from before are read
/// as they are, and a process without this wrapper would send compressed ones as they are: give it to
/// every process. The bound of the store inside counts for what it gets to see: an answer that is too
/// large even so is too large.
///
/// ```
/// use std::sync::Arc;
/// use onlyonce_core::MemoryStore;
/// use onlyonce_stores::Compressed;
///
/// let store = Compressed::new(Arc::new(MemoryStore::new()));
/// # let _ = store;
/// ```
pub struct Compressed {
    inner: Arc<dyn Store>,
    above: usize,
}

impl Compressed {
    /// Compresses what `store` keeps.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            inner: store,
            above: COMPRESS_ABOVE_BYTES,
        }
    }

    /// Compresses answers of more than this many bytes.
    #[must_use]
    pub fn above(mut self, bytes: usize) -> Self {
        self.above = bytes;
        self
    }

    fn packed(&self, response: &Arc<Response>) -> Arc<Response> {
        let plain = codec::encode_response(response);
        // A handler's own header of this name must not be taken for the mark.
        let packed = match response.headers.contains_key(MARK) {
            true => pack_anyway(&plain),
            false => pack(&plain, self.above),
        };
        let Some(body) = packed else {
            return Arc::clone(response);
        };
        Arc::new(Response {
            headers: HeaderMap::from_iter([(MARK, ZSTD)]),
            origin: response.origin,
            took: response.took,
            ..Response::new(response.status, body)
        })
    }

    fn opened(slot: &Slot, mut record: Record) -> Result<Record, StoreError> {
        if let State::Done(response) | State::Failed(response) = &record.state {
            let Some(opened) = unpacked(response) else {
                let why = format!("the compressed answer of slot {slot} is damaged: forget it");
                return Err(StoreError::new(NAME, StoreErrorKind::Corrupt).caused_by(why));
            };
            record.state = State::finished(opened);
        }
        Ok(record)
    }

    fn all_opened(found: Vec<(Slot, Record)>) -> Result<Vec<(Slot, Record)>, StoreError> {
        let opened = found.into_iter().map(|(slot, record)| {
            let record = Self::opened(&slot, record)?;
            Ok((slot, record))
        });
        opened.collect()
    }
}

/// The answer as it was; nothing if it cannot be unpacked. Where there is no mark, it is as it was.
fn unpacked(stored: &Arc<Response>) -> Option<Arc<Response>> {
    let is_packed = stored.headers.len() == 1 && stored.headers.get(MARK) == Some(&ZSTD);
    if !is_packed {
        return Some(Arc::clone(stored));
    }
    let response = unpack(stored.body.to_vec(), true)?;
    (response.status == stored.status).then(|| Arc::new(response))
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for Compressed {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        Ok(match self.inner.claim(claim).await? {
            Claimed::Taken(record) => Claimed::Taken(Self::opened(&claim.slot, record)?),
            other @ (Claimed::Granted { .. } | Claimed::Dead) => other,
        })
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        let packed = self.packed(response);
        Ok(match self.inner.complete(lease, &packed, keep_for).await? {
            Completed::Found(record) => Completed::Found(Self::opened(&lease.slot, record)?),
            other @ (Completed::Stored(_) | Completed::Absent) => other,
        })
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        Ok(match self.inner.release(lease, why).await? {
            Released::Found(record) => Released::Found(Self::opened(&lease.slot, record)?),
            Released::Ended => Released::Ended,
        })
    }

    fn recall(&self, slot: &Slot, fingerprint: &Fingerprint) -> Option<Replay> {
        let mut replay = self.inner.recall(slot, fingerprint)?;
        replay.response = unpacked(&replay.response)?;
        Some(replay)
    }

    /// It is not known before an answer is compressed: completing with one that is too large says so.
    fn response_bytes_max(&self) -> Option<usize> {
        None
    }

    forward!(straight: check, renew, settled, operate);
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Operate for Compressed {
    async fn get(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        let found = operators(&*self.inner, NAME)?.get(slot).await?;
        found.map(|it| Self::opened(slot, it)).transpose()
    }

    async fn get_durable(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        let found = operators(&*self.inner, NAME)?.get_durable(slot).await?;
        found.map(|it| Self::opened(slot, it)).transpose()
    }

    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<(Slot, Record)>, StoreError> {
        let found = operators(&*self.inner, NAME)?.list(filter, page).await?;
        Self::all_opened(found)
    }

    async fn newest(
        &self,
        filter: &Filter,
        page: &Newest,
    ) -> Result<Vec<(Slot, Record)>, StoreError> {
        let found = operators(&*self.inner, NAME)?.newest(filter, page).await?;
        Self::all_opened(found)
    }

    async fn resolve(
        &self,
        slot: &Slot,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Resolved, StoreError> {
        let inside = operators(&*self.inner, NAME)?;
        let packed = self.packed(response);
        opened_resolved(slot, inside.resolve(slot, &packed, keep_for).await?)
    }

    async fn discard(&self, slot: &Slot) -> Result<Resolved, StoreError> {
        let inside = operators(&*self.inner, NAME)?;
        opened_resolved(slot, inside.discard(slot).await?)
    }

    /// What cannot be unpacked any more is told without its answer: it is gone either way.
    async fn sweep_ended(&self, records_max: usize) -> Result<Swept, StoreError> {
        let inside = operators(&*self.inner, NAME)?;
        let mut swept = inside.sweep_ended(records_max).await?;
        for Ended { response, .. } in &mut swept.ended {
            *response = response.take().and_then(|response| unpacked(&response));
        }
        Ok(swept)
    }

    forward!(straight: forget, extend, sweep, stats, ping, recheck, count_replays, number_replays, agree, agreed);
    forward!(straight: connected, connections, is_on_a_server, hands_over_ended);
}

fn opened_resolved(slot: &Slot, resolved: Resolved) -> Result<Resolved, StoreError> {
    Ok(match resolved {
        Resolved::Found(record) => Resolved::Found(Compressed::opened(slot, record)?),
        other @ (Resolved::Stored | Resolved::Absent) => other,
    })
}
