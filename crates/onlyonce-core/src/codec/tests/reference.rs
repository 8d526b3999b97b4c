//! The head as serde and postcard write it: what every earlier build wrote, and what ours must be.

use serde::{Deserialize, Serialize};

use super::*;

#[derive(Serialize, Deserialize)]
struct Head {
    token: Token,
    recipe: u8,
    fingerprint: [u8; 32],
    on_lapse: OnLapse,
    attempt: u32,
    meta: Meta,
    created_at: Timestamp,
    completed_at: Option<Timestamp>,
    expires: Duration,
    tail: Duration,
    replays: u64,
    phase: HeadPhase,
}

#[derive(Serialize, Deserialize)]
enum HeadPhase {
    Pending { lease_until: Duration },
    Finished(HeadResponse),
    Unknown,
}

type Fields = Vec<(String, Vec<u8>)>;

#[derive(Serialize, Deserialize)]
struct HeadResponse {
    status: u16,
    headers: Fields,
    trailers: Option<Fields>,
    origin: HeadOrigin,
    took: Duration,
    resource: Option<String>,
}

#[derive(Serialize, Deserialize)]
enum HeadOrigin {
    Handler,
    Panicked,
    TooLarge,
}

/// The head of `kept`.
pub(super) fn record(kept: &Kept) -> Vec<u8> {
    let head = Head {
        token: kept.token,
        recipe: kept.fingerprint.recipe(),
        fingerprint: *kept.fingerprint.digest(),
        on_lapse: kept.on_lapse,
        attempt: kept.attempt,
        meta: Meta::clone(&kept.meta),
        created_at: kept.created_at,
        completed_at: kept.completed_at,
        expires: kept.expires,
        tail: kept.tail,
        replays: kept.replays,
        phase: match &kept.phase {
            Phase::Pending { lease_until } => HeadPhase::Pending {
                lease_until: *lease_until,
            },
            Phase::Finished(answer) => HeadPhase::Finished(of(answer)),
            Phase::Unknown => HeadPhase::Unknown,
        },
    };
    postcard::to_allocvec(&head).unwrap()
}

/// The head of `answer` alone.
pub(super) fn response(answer: &Response) -> Vec<u8> {
    postcard::to_allocvec(&of(answer)).unwrap()
}

/// Whether postcard takes these bytes for a record's head, and all of them.
pub(super) fn reads(head: &[u8]) -> bool {
    postcard::take_from_bytes::<Head>(head).is_ok_and(|(_, rest)| rest.is_empty())
}

fn of(answer: &Response) -> HeadResponse {
    let fields = |map: &HeaderMap| -> Fields {
        map.iter()
            .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
            .collect()
    };
    HeadResponse {
        status: answer.status.as_u16(),
        headers: fields(&answer.headers),
        trailers: answer.trailers.as_ref().map(fields),
        origin: match answer.origin {
            Origin::Handler => HeadOrigin::Handler,
            Origin::Panicked => HeadOrigin::Panicked,
            Origin::TooLarge => HeadOrigin::TooLarge,
        },
        took: answer.took,
        resource: answer.resource.clone(),
    }
}
