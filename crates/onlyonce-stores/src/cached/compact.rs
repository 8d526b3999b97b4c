//! An answer in memory of its own, and how much that is. As it comes from a connection or a disk it shares
//! memory with what was read beside it: an answer of 200 bytes would keep 8 KiB for as long as it is
//! remembered.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use onlyonce_core::{Meta, Record, Response, State};

/// The counters of what is shared.
const SHARED_BYTES: usize = 16;
/// What a part of a larger buffer needs to know of it.
const PART_BYTES: usize = 24;
/// A header in its map, besides its value's bytes: hash, name, value and links to further values.
const HEADER_BYTES: usize = 104;
const FURTHER_BYTES: usize = 72;
/// The name of a header that is not one of the well-known ones, in memory of its own: half of them are.
const NAME_BYTES: usize = 40;

/// The same record, which holds no memory but that of its answer.
pub(super) fn record(record: &Record) -> Record {
    let state = match &record.state {
        State::Done(answer) => State::Done(response(answer)),
        State::Failed(answer) => State::Failed(response(answer)),
        other @ (State::Pending { .. } | State::Unknown) => other.clone(),
    };
    Record {
        state,
        ..record.clone()
    }
}

fn response(of: &Response) -> Arc<Response> {
    let mut kept = gathered(of);
    let headers = copy(&of.headers, &mut kept);
    let trailers = of.trailers.as_ref().map(|map| copy(map, &mut kept));
    Arc::new(Response {
        headers,
        trailers,
        body: kept,
        ..of.clone()
    })
}

/// All values of headers and trailers, then the body.
fn gathered(of: &Response) -> Bytes {
    let mut kept = Vec::with_capacity(of.bytes());
    for map in [Some(&of.headers), of.trailers.as_ref()]
        .into_iter()
        .flatten()
    {
        for value in map.values() {
            kept.extend_from_slice(value.as_bytes());
        }
    }
    kept.extend_from_slice(&of.body);
    kept.shrink_to_fit();
    kept.into()
}

/// The same headers, their values taken from the start of `kept`.
fn copy(headers: &HeaderMap, kept: &mut Bytes) -> HeaderMap {
    let mut copy = HeaderMap::with_capacity(headers.keys_len());
    for (name, value) in headers {
        let bytes = kept.split_to(value.len());
        let mut own = HeaderValue::from_maybe_shared(bytes).expect("it was a header's value");
        own.set_sensitive(value.is_sensitive());
        copy.append(name, own);
    }
    copy
}

/// The memory that such a record takes besides itself, near enough.
pub(super) fn bytes(record: &Record) -> usize {
    let response = record.response().map_or(0, |it| response_bytes(it));
    response + meta_bytes(&record.meta)
}

fn response_bytes(of: &Response) -> usize {
    let maps = [Some(&of.headers), of.trailers.as_ref()];
    let maps = maps.into_iter().flatten().map(map_bytes).sum::<usize>();
    // What is well known is in no memory of its own: resource and names are counted beside it.
    let resource = of.resource.as_ref().map_or(0, |it| heap(it.capacity()));
    let kept = of.bytes();
    heap(SHARED_BYTES + size_of::<Response>()) + maps + resource + heap(kept) + heap(PART_BYTES)
}

fn map_bytes(map: &HeaderMap) -> usize {
    const POSITION_BYTES: usize = 4;
    let places = map.capacity() + map.capacity() / 3;
    let further = map.len() - map.keys_len();
    heap(places * POSITION_BYTES)
        + heap(map.capacity() * HEADER_BYTES)
        + heap(further.next_power_of_two() * FURTHER_BYTES * usize::from(further > 0))
        + map.keys_len() * NAME_BYTES
}

/// The name of the holder is one for all.
fn meta_bytes(of: &Meta) -> usize {
    let texts = [Some(&of.operation), of.actor.as_ref(), of.trace.as_ref()];
    let texts = texts.into_iter().flatten();
    let texts: usize = texts.map(|it| heap(SHARED_BYTES + it.len())).sum();
    heap(SHARED_BYTES + size_of::<Meta>()) + texts
}

/// What an allocator takes for so many bytes, near enough.
pub(super) fn heap(bytes: usize) -> usize {
    const UNIT: usize = 16;
    if bytes == 0 {
        return 0;
    }
    (bytes + UNIT / 2).next_multiple_of(UNIT)
}
