//! What is written is read back exactly, and what was damaged on the way is refused: never a wrong
//! record, never a panic.

mod arbitrary;
mod reference;

use std::time::Duration;

use bytes::{BufMut, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::clock::Timestamp;
use crate::entry::Phase;
use crate::fingerprint::Fingerprint;
use crate::key::{Key, KeyRule};
use crate::record::{OnLapse, Token};
use crate::response::Origin;

use super::*;

use arbitrary::records;

/// A finished record with something in every field, small enough to flip each of its bits.
fn sample() -> Kept {
    let mut response = Response::new(StatusCode::CREATED, "the body");
    for value in ["one", "two"] {
        let value = HeaderValue::from_static(value);
        response.headers.append("link", value.clone());
        let trailers = response.trailers.get_or_insert_default();
        trailers.append("grpc-status", value);
    }
    response.resource = Some("payment/7".into());
    response.took = Duration::from_millis(1234);
    let key = Key::new("5f2b0c1e-7a64-4d1c-9d7e-3b8a2f6c4e10", &KeyRule::default());
    Kept {
        token: Token::from_bytes([1; 16]),
        fingerprint: Fingerprint::new(1, [2; 32]),
        on_lapse: OnLapse::Hold,
        attempt: 3,
        meta: Arc::new(Meta {
            hint: key.unwrap().hint(),
            operation: "POST /payments".into(),
            actor: Some("alice".into()),
            holder: "host-1".into(),
            trace: Some("trace".into()),
            credential: Some([4; 32]),
        }),
        created_at: Timestamp::from_millis(1_735_689_600_000),
        completed_at: Some(Timestamp::from_millis(1_735_689_601_000)),
        expires: Duration::from_millis(1_735_689_700_000),
        tail: Duration::from_secs(99),
        replays: 11,
        phase: Phase::Finished(Arc::new(response)),
    }
}

/// Any head and body in a whole frame: what only a checksum that holds lets through.
fn framed(head: &[u8], body: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_slice(&MAGIC);
    out.put_u8(VERSION);
    out.put_u8(Kind::Record as u8);
    out.put_u32_le(u32::try_from(head.len()).unwrap());
    out.put_slice(head);
    out.put_slice(body);
    let checksum = crc32fast::hash(&out);
    out.put_u32_le(checksum);
    out.freeze()
}

/// Head and body of a whole frame.
fn parts(frame: &Bytes, kind: Kind) -> (Bytes, Bytes) {
    let (content, head_bytes) = split(kind, frame).unwrap();
    (content.slice(..head_bytes), content.slice(head_bytes..))
}

fn response(kept: &Kept) -> Option<&Arc<Response>> {
    match &kept.phase {
        Phase::Finished(response) => Some(response),
        Phase::Pending { .. } | Phase::Unknown => None,
    }
}

fn order(map: &HeaderMap) -> Vec<(&HeaderName, &HeaderValue)> {
    map.iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_record_is_read_back_as_it_was_written(record in records()) {
        let read = decode(&encode(&record)).unwrap();

        if let (Some(read), Some(written)) = (response(&read), response(&record)) {
            prop_assert_eq!(order(&read.headers), order(&written.headers));
        }
        prop_assert_eq!(read, record);
    }

    #[test]
    fn the_parts_of_a_record_are_read_back_as_they_were_written(record in records()) {
        let meta = decode_meta(&encode_meta(&record.meta)).unwrap();
        prop_assert_eq!(&meta, &*record.meta);
        if let Some(written) = response(&record) {
            let read = decode_response(&encode_response(written)).unwrap();

            prop_assert_eq!(order(&read.headers), order(&written.headers));
            prop_assert_eq!(&read, &**written);
        }
    }

    /// What is on disks and servers was written so, and must stay readable for ever.
    #[test]
    fn the_bytes_are_those_that_postcard_writes(record in records()) {
        let (head, _) = parts(&encode(&record), Kind::Record);
        prop_assert_eq!(&head[..], reference::record(&record));
        let (head, _) = parts(&encode_meta(&record.meta), Kind::Meta);
        prop_assert_eq!(&head[..], postcard::to_allocvec(&*record.meta).unwrap());
        if let Some(answer) = response(&record) {
            let (head, body) = parts(&encode_response(answer), Kind::Response);
            prop_assert_eq!(&head[..], reference::response(answer));
            prop_assert_eq!(&body, &answer.body);
        }
    }

    #[test]
    fn nothing_is_read_that_postcard_would_not_read(
        record in records(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let (head, body) = parts(&encode(&record), Kind::Record);
        let mut head = head.to_vec();
        let at = at.index(head.len());
        head[at] = byte;

        if decode(&framed(&head, &body)).is_ok() {
            prop_assert!(reference::reads(&head));
        }
    }

    #[test]
    fn a_packed_record_is_unpacked_as_it_was_whatever_is_known(
        record in records(), other in records(), is_same in any::<bool>(),
    ) {
        let mut packed = Vec::new();
        pack(&mut packed, &record);
        let known = if is_same { &record } else { &other };

        let read = unpack(&packed.into(), Some(&known.meta)).unwrap();

        prop_assert!(!is_same || Arc::ptr_eq(&read.meta, &known.meta));
        prop_assert_eq!(read, record);
    }

    #[test]
    fn one_kind_of_bytes_is_never_read_as_another(record in records()) {
        let (whole, meta) = (encode(&record), encode_meta(&record.meta));

        prop_assert!(decode_meta(&whole).is_err() && decode_response(&whole).is_err());
        prop_assert!(decode(&meta).is_err() && decode_response(&meta).is_err());
        if let Some(answer) = response(&record) {
            let answer = encode_response(answer);
            prop_assert!(decode(&answer).is_err() && decode_meta(&answer).is_err());
        }
    }

    #[test]
    fn a_flipped_bit_is_found_wherever_it_is(record in records(), at in any::<prop::sample::Index>()) {
        let mut bytes = encode(&record).to_vec();
        let bit = at.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);

        prop_assert!(decode(&bytes.into()).is_err());
    }

    #[test]
    fn a_record_cut_short_is_refused(record in records(), at in any::<prop::sample::Index>()) {
        let bytes = encode(&record);

        prop_assert!(decode(&bytes.slice(..at.index(bytes.len()))).is_err());
    }

    #[test]
    fn a_record_with_more_behind_it_is_refused(record in records(), more in vec(any::<u8>(), 1..20)) {
        let bytes = [&encode(&record)[..], &more].concat();

        prop_assert!(decode(&bytes.into()).is_err());
    }

    #[test]
    fn any_bytes_are_no_record(bytes in vec(any::<u8>(), 0..200)) {
        prop_assert!(decode(&bytes.into()).is_err());
    }

    #[test]
    fn any_bytes_behind_the_mark_are_no_record(bytes in vec(any::<u8>(), 0..200)) {
        let bytes = [&MAGIC[..], &[VERSION, Kind::Record as u8], &bytes].concat();

        prop_assert!(decode(&bytes.into()).is_err());
    }

    #[test]
    fn any_head_under_a_right_checksum_is_read_without_a_panic(
        head in vec(any::<u8>(), 0..400), body in vec(any::<u8>(), 0..20),
    ) {
        let _ = decode(&framed(&head, &body));
    }

    #[test]
    fn a_changed_head_under_a_right_checksum_is_read_without_a_panic(
        record in records(), changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let bytes = encode(&record);
        let (head, body) = parts(&bytes, Kind::Record);
        let mut head = head.to_vec();
        for (at, byte) in changes {
            let at = at.index(head.len());
            head[at] = byte;
        }

        let _ = decode(&framed(&head, &body));
    }
}

#[test]
fn every_flipped_bit_of_a_record_is_found() {
    let good = encode(&sample()).to_vec();

    for bit in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&bytes.into()).is_err(), "bit {bit}");
    }
}

#[test]
fn every_truncation_of_a_record_is_refused() {
    let good = encode(&sample());

    for length in 0..good.len() {
        assert!(decode(&good.slice(..length)).is_err(), "{length} bytes");
        let end = good.slice(good.len() - length..);
        assert!(decode(&end).is_err(), "the last {length} bytes");
    }
    assert_eq!(decode(&good), Ok(sample()));
}

#[test]
fn another_version_is_named_and_not_guessed_at() {
    for found in (0..=255).filter(|version| *version != VERSION) {
        let mut bytes = encode(&sample()).to_vec();
        bytes[MAGIC.len()] = found;
        let whole = bytes.len() - CHECKSUM_BYTES;
        let checksum = crc32fast::hash(&bytes[..whole]);
        bytes[whole..].copy_from_slice(&checksum.to_le_bytes());

        let error = decode(&bytes.into()).unwrap_err();

        assert_eq!(error, CodecError::UnknownVersion { found });
        assert!(error.to_string().contains(&found.to_string()));
    }
}

#[test]
fn bytes_of_something_else_are_no_record() {
    for bytes in [
        "",
        "1",
        "1O",
        "O1\x01",
        "{\"state\":\"done\"}",
        "\0\0\0\0\0\0\0\0\0\0\0\0",
    ] {
        let bytes = Bytes::from_static(bytes.as_bytes());
        assert_eq!(decode(&bytes), Err(CodecError::NotARecord), "{bytes:?}");
    }
}

#[test]
fn a_head_longer_than_the_record_is_refused() {
    let good = encode(&sample());
    let whole = good.len() - CHECKSUM_BYTES;

    for length in [u32::MAX, u32::try_from(whole - PREFIX_BYTES + 1).unwrap()] {
        let mut bytes = good[..whole].to_vec();
        bytes[PREFIX_BYTES - 4..PREFIX_BYTES].copy_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());

        let error = decode(&bytes.into()).unwrap_err();

        assert_eq!(error, damaged("head length"));
    }
}

#[test]
fn a_head_with_more_behind_it_is_refused() {
    let bytes = encode(&sample());
    let (head, body) = parts(&bytes, Kind::Record);
    let longer = [&head[..], &[0]].concat();

    let read = decode(&framed(&longer, &body));

    assert!(matches!(read, Err(CodecError::Damaged { .. })), "{read:?}");
}

#[test]
fn a_body_is_not_copied() {
    let bytes = encode(&sample());

    let record = decode(&bytes).unwrap();

    let body = &response(&record).unwrap().body;
    assert_eq!(&body[..], b"the body");
    assert!(bytes.as_ptr_range().contains(&body.as_ptr()));
}

#[test]
fn an_empty_body_is_read_back_as_one() {
    let phase = Phase::Finished(Arc::new(Response::new(StatusCode::NO_CONTENT, "")));
    let record = Kept { phase, ..sample() };

    assert_eq!(decode(&encode(&record)), Ok(record));
}

#[test]
fn no_trailers_and_empty_trailers_are_not_the_same() {
    for trailers in [None, Some(HeaderMap::new())] {
        let mut response = Response::new(StatusCode::OK, "");
        response.trailers = trailers;
        let phase = Phase::Finished(Arc::new(response));
        let record = Kept { phase, ..sample() };

        assert_eq!(decode(&encode(&record)), Ok(record));
    }
}

/// A pending or unknown record has no body: bytes behind its head are damage.
#[test]
fn a_body_without_a_response_is_refused() {
    let lease_until = Duration::from_secs(3);
    for phase in [Phase::Pending { lease_until }, Phase::Unknown] {
        let record = Kept { phase, ..sample() };
        let bytes = encode(&record);
        let (head, body) = parts(&bytes, Kind::Record);
        assert!(body.is_empty());

        let read = decode(&framed(&head, b"stray"));

        assert!(matches!(read, Err(CodecError::Damaged { .. })), "{read:?}");
    }
}

/// A moment after the year 9999 cannot be shown: it must be refused or cut, not kept to panic.
#[test]
fn a_record_from_beyond_all_time_can_be_shown() {
    let beyond: Timestamp =
        postcard::from_bytes(&postcard::to_allocvec(&u64::MAX).unwrap()).unwrap();
    let record = Kept {
        created_at: beyond,
        ..sample()
    };

    if let Ok(read) = decode(&encode(&record)) {
        let shown = std::panic::catch_unwind(|| format!("{:?}", read.created_at));
        assert!(shown.is_ok(), "to show what was stored panics");
    }
}

#[test]
fn an_error_says_what_to_do() {
    assert!(damaged("checksum").to_string().contains("checksum"));
    assert!(damaged("checksum").to_string().contains("forget the key"));
    let version = CodecError::UnknownVersion { found: 9 }.to_string();
    assert!(version.contains("version 9") && version.contains("upgrade"));
}
