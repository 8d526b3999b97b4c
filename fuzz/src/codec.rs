//! Stored bytes: read with certainty or refused, and read again as they were written.

use bytes::Bytes;
use onlyonce_core::codec::{self, CodecError, VERSION};

/// The first byte picks a kind of frame, whose checksum is made right, so that what is behind it is
/// reached; or none, and the rest is read as it is. The next two say where the head ends.
pub fn codec(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else {
        return;
    };
    let bytes = match (kind, rest.split_first_chunk()) {
        (b'r' | b'a' | b'm', Some((head, content))) => {
            framed(kind, u16::from_le_bytes(*head), content)
        }
        _ => Bytes::copy_from_slice(rest),
    };
    let kinds = [record(&bytes), response(&bytes), meta(&bytes)];
    let read = kinds.iter().filter(|it| it.is_ok()).count();
    assert!(read <= 1, "one kind of bytes is never read as another");
    for error in kinds.iter().filter_map(|it| it.as_ref().err()) {
        assert!(error.to_string().len() < 200, "{error}");
    }
}

fn framed(kind: u8, head: u16, content: &[u8]) -> Bytes {
    let head = u32::from(head) % (u32::try_from(content.len()).expect("a small input") + 1);
    let mut frame = vec![b'1', b'O', VERSION, kind];
    frame.extend(head.to_le_bytes());
    frame.extend(content);
    frame.extend(crc32fast::hash(&frame).to_le_bytes());
    frame.into()
}

fn record(bytes: &Bytes) -> Result<(), CodecError> {
    let kept = codec::decode(bytes)?;
    let written = codec::encode(&kept);
    let again = codec::decode(&written).expect("what was written is read");
    assert_eq!(again, kept);
    assert_eq!(codec::encode(&again), written);
    damaged(&written, |bytes| codec::decode(bytes).is_err());
    let _ = format!("{kept:?}");
    Ok(())
}

fn response(bytes: &Bytes) -> Result<(), CodecError> {
    let response = codec::decode_response(bytes)?;
    assert!(response.body.len() < bytes.len());
    let written = codec::encode_response(&response);
    let again = codec::decode_response(&written).expect("what was written is read");
    assert_eq!(again, response);
    damaged(&written, |bytes| codec::decode_response(bytes).is_err());
    Ok(())
}

fn meta(bytes: &Bytes) -> Result<(), CodecError> {
    let meta = codec::decode_meta(bytes)?;
    let written = codec::encode_meta(&meta);
    let again = codec::decode_meta(&written).expect("what was written is read");
    assert_eq!(codec::encode_meta(&again), written);
    damaged(&written, |bytes| codec::decode_meta(bytes).is_err());
    Ok(())
}

/// Cut short, or with a bit turned over, it is refused.
fn damaged(written: &Bytes, refused: impl Fn(&Bytes) -> bool) {
    let middle = written.len() / 2;
    assert!(refused(&written.slice(..middle)));
    let mut turned = written.to_vec();
    turned[middle] ^= 1;
    assert!(refused(&turned.into()));
}
