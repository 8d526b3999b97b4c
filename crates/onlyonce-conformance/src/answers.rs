//! An answer comes back exactly (R2, R5): its status, every byte, every repeated header.

#![expect(missing_docs, reason = "the names are the sentences")]

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use onlyonce_core::operate::StateName;
use onlyonce_core::{Origin, Response};

use super::TestBed;
use super::subject::Subject;
use super::timing::LONG;

const LARGE_BYTES: usize = 1024 * 1024;

pub async fn a_body_is_bytes_not_text(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let bytes: Bytes = (0..=255).chain((0..=255).rev()).collect();

    let replayed = replayed(&store, Response::new(StatusCode::OK, bytes.clone())).await;

    assert_eq!(replayed.body, bytes);
}

pub async fn an_empty_body_stays_empty(bed: &dyn TestBed) {
    let store = Subject::of(bed);

    for status in [
        StatusCode::OK,
        StatusCode::NO_CONTENT,
        StatusCode::SEE_OTHER,
    ] {
        let response = Response::new(status, Bytes::new());

        let replayed = replayed(&store, response.clone()).await;

        assert_eq!(*replayed, response, "{status}");
    }
}

pub async fn a_large_body_is_stored_whole(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    // Nothing that repeats: a store may compress, and a bound must not be hidden by that.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let bytes: Bytes = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
    .flatten()
    .take(LARGE_BYTES)
    .collect();

    let replayed = replayed(&store, Response::new(StatusCode::OK, bytes.clone())).await;

    assert!(replayed.body == bytes, "the body came back changed");
}

pub async fn repeated_headers_keep_their_order(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let mut response = Response::new(StatusCode::OK, "");
    let values = ["z", "a", "", "z", "a, b"];
    for value in values {
        let value = HeaderValue::from_static(value);
        response.headers.append("link", value);
    }

    let replayed = replayed(&store, response).await;

    let found: Vec<_> = replayed.headers.get_all("link").iter().collect();
    assert_eq!(found, values);
}

pub async fn header_values_are_bytes_not_text(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let mut response = Response::new(StatusCode::OK, "");
    let bytes: Vec<u8> = (0x20..=0x7e).chain(0x80..=0xff).chain([b'\t']).collect();
    let value = HeaderValue::from_bytes(&bytes).expect("these bytes may be in a header");
    response.headers.insert("x-bytes", value);

    let replayed = replayed(&store, response).await;

    assert_eq!(replayed.headers["x-bytes"].as_bytes(), bytes);
}

pub async fn trailers_are_not_headers(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let mut response = Response::new(StatusCode::OK, "grpc");
    let trailers = HeaderMap::from_iter([(
        HeaderName::from_static("grpc-status"),
        HeaderValue::from_static("0"),
    )]);
    response.trailers = Some(trailers.clone());

    let replayed = replayed(&store, response).await;

    assert_eq!(replayed.trailers, Some(trailers));
    assert!(replayed.headers.is_empty());
}

pub async fn who_made_an_answer_is_kept(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let made = [
        (Response::new(StatusCode::OK, ""), Origin::Handler),
        (Response::panicked(), Origin::Panicked),
        (Response::too_large(), Origin::TooLarge),
    ];

    for (response, origin) in made {
        let replayed = replayed(&store, response.clone()).await;

        assert_eq!(replayed.origin, origin);
        assert_eq!(*replayed, response);
    }
}

pub async fn a_failure_is_stored_as_one(bed: &dyn TestBed) {
    let store = Subject::of(bed);

    for (status, state) in [
        (100, StateName::Done),
        (200, StateName::Done),
        (399, StateName::Done),
        (400, StateName::Failed),
        (500, StateName::Failed),
        (999, StateName::Failed),
    ] {
        let claim = store.fresh();
        let lease = store.lease(&claim).await;
        let status = StatusCode::from_u16(status).expect("a status has three digits");
        let response = Arc::new(Response::new(status, "why"));
        store.stored(&lease, &response, LONG).await;

        let record = store.taken(&store.rival(&claim)).await;

        assert_eq!(StateName::of(&record), state, "{status}");
        assert_eq!(record.response(), Some(&response), "{status}");
    }
}

async fn replayed(store: &Subject<'_>, response: Response) -> Arc<Response> {
    let claim = store.fresh();
    let lease = store.lease(&claim).await;
    store.stored(&lease, &Arc::new(response), LONG).await;
    let record = store.taken(&store.rival(&claim)).await;
    let response = record.response().expect("it is finished");
    Arc::clone(response)
}
