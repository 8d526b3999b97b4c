//! An answer in fewer bytes: how [`Compressed`](crate::Compressed) and [`Sealed`](crate::Sealed) pack it.

use std::cell::RefCell;

use bytes::Bytes;
use onlyonce_core::{Response, codec};
use zstd::bulk::Compressor;

/// Below this, compressing saves less than it costs.
pub(crate) const COMPRESS_ABOVE_BYTES: usize = 1024;
/// A fast level: answers are small, and a request waits.
const ZSTD_LEVEL: i32 = 1;
/// More than this is not compressed, and nothing is decompressed into more than this.
pub(crate) const UNPACKED_BYTES_MAX: usize = 64 << 20;

/// The compressed form, if it is wanted and smaller.
pub(crate) fn pack(plain: &[u8], compress_above: usize) -> Option<Vec<u8>> {
    if plain.len() <= compress_above {
        return None;
    }
    pack_anyway(plain).filter(|packed| packed.len() < plain.len())
}

/// The compressed form, if there can be one.
pub(crate) fn pack_anyway(plain: &[u8]) -> Option<Vec<u8>> {
    if plain.len() > UNPACKED_BYTES_MAX {
        return None;
    }
    COMPRESSOR.with_borrow_mut(|compressor| {
        if compressor.is_none() {
            *compressor = Compressor::new(ZSTD_LEVEL).ok();
        }
        compressor.as_mut()?.compress(plain).ok()
    })
}

thread_local! {
    /// What compressing needs, made once for each thread: its tables are larger than most answers.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
}

/// The answer in what was packed, or in what was not.
pub(crate) fn unpack(content: Vec<u8>, is_packed: bool) -> Option<Response> {
    let plain = if is_packed {
        zstd::bulk::decompress(&content, UNPACKED_BYTES_MAX).ok()?
    } else {
        content
    };
    codec::decode_response(&Bytes::from(plain)).ok()
}
