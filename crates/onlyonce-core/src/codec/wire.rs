//! Numbers, texts and options as postcard writes them: base 128 from the low end, a length before
//! what has one, a byte that says whether something follows. By hand: a record is read and written
//! with every request, and this takes a third of the instructions.

use std::time::Duration;

use super::{CodecError, damaged};

/// The bytes do not hold what was asked for. Nothing in it: what is read returns in registers.
#[derive(Debug)]
pub(super) struct Malformed;

impl From<Malformed> for CodecError {
    fn from(_: Malformed) -> Self {
        damaged("head")
    }
}

/// The most bytes of a 64-bit number in base 128.
const VARINT_BYTES_MAX: u32 = 10;

pub(super) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(super) fn put_duration(out: &mut Vec<u8>, duration: Duration) {
    put_number(out, duration.as_secs());
    put_number(out, duration.subsec_nanos().into());
}

pub(super) fn put_option<T>(
    out: &mut Vec<u8>,
    option: Option<T>,
    put: impl FnOnce(&mut Vec<u8>, T),
) {
    out.push(option.is_some().into());
    if let Some(value) = option {
        put(out, value);
    }
}

pub(super) fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed)
}

/// Takes values off the front.
pub(super) struct Reader<'a> {
    all: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(all: &'a [u8]) -> Self {
        Self { all, rest: all }
    }

    /// How much was taken.
    pub(super) fn position(&self) -> usize {
        self.all.len() - self.rest.len()
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        let (byte, rest) = self.rest.split_first().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*byte)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*array)
    }

    pub(super) fn number(&mut self) -> Result<u64, Malformed> {
        // Most numbers are lengths, and most lengths are short.
        if let [byte @ ..0x80, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(u64::from(*byte));
        }
        let mut number = 0;
        for place in 0..VARINT_BYTES_MAX {
            let byte = self.byte()?;
            let digit = u64::from(byte & 0x7f);
            let is_last_place = place == VARINT_BYTES_MAX - 1;
            if is_last_place && byte > 1 {
                break;
            }
            number |= digit << (7 * place);
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Malformed)
    }

    pub(super) fn small<N: TryFrom<u64>>(&mut self) -> Result<N, Malformed> {
        N::try_from(self.number()?).map_err(|_| Malformed)
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.small()?;
        let split = self.rest.split_at_checked(length);
        let (bytes, rest) = split.ok_or(Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(super) fn duration(&mut self) -> Result<Duration, Malformed> {
        let seconds = Duration::from_secs(self.number()?);
        let nanos: u32 = self.small()?;
        seconds
            .checked_add(Duration::from_nanos(nanos.into()))
            .ok_or(Malformed)
    }

    pub(super) fn option<T, E: From<Malformed>>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        match self.byte()? {
            0 => Ok(None),
            1 => read(self).map(Some),
            _ => Err(Malformed.into()),
        }
    }
}
