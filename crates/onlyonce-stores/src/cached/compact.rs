//! An answer in memory of its own. As it comes from a connection or a disk it shares memory with what was
//! read beside it: an answer of 200 bytes would keep 8 KiB for as long as it is remembered.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use onlyonce_core::{Record, Response, State};

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
