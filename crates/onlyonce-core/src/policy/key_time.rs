//! Keys that carry the time at which they were made. Answers are kept for a while and then
//! forgotten; a retry that comes later would run again, unless its key says how old it is.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, HeaderName};
use uuid::Uuid;

use crate::bounds::{millis, shown};
use crate::clock::Timestamp;
use crate::key::{Key, KeyError};
use crate::refusal::{Reason, Refusal};

const UUID_V7: &str = "uuid-v7";
const HEADER: &str = "header:";

/// How long a key may be used, where keys carry their time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTimeRule {
    /// Where the time is.
    pub from: KeyTime,
    /// How far the clock of a client may be ahead of ours. A key from later than that is refused, and
    /// so is one of which the answer may have been forgotten, if its client's clock was this wrong.
    pub ahead_max: Duration,
}

/// Where the time of a key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyTime {
    /// In the key, which is a UUID of version 7 (RFC 9562).
    UuidV7,
    /// In a header beside it, as an HTTP date (RFC 9110).
    Header(HeaderName),
}

impl KeyTimeRule {
    /// Refuses a key whose time cannot be read, is later than `now` and what a clock may be wrong by,
    /// or so long ago that an answer to it may have been forgotten after `keep_for`.
    ///
    /// An answer is kept for `keep_for` from when it was stored, which was not before the key's first
    /// request came, which was at most `ahead_max` before the time that the key carries. So within
    /// `keep_for - ahead_max` of that time an answer is still there, unless its handler asked for less.
    pub fn check(
        &self,
        key: &Key,
        headers: &HeaderMap,
        now: Timestamp,
        keep_for: Duration,
    ) -> Result<(), Refusal> {
        let made = match &self.from {
            KeyTime::UuidV7 => of_uuid(key.expose()),
            KeyTime::Header(name) => of_header(headers, name),
        };
        let made = made.map_err(|error| Refusal::new(Reason::BadKey).because(error))?;
        let usable = keep_for.saturating_sub(self.ahead_max);
        let out_of_time = Refusal::new(Reason::KeyOutOfTime);
        let said = |span: Duration| shown(millis(span));
        if made.since(now) > self.ahead_max {
            let most = said(self.ahead_max);
            return Err(out_of_time.because(format_args!(
                "it is from the future ({made}) by more than {most}: set the client's clock, then send a new key"
            )));
        }
        if now.since(made) > usable {
            let usable = said(usable);
            return Err(out_of_time.because(format_args!(
                "it is older ({made}) than {usable}: find out whether the original request took effect before you send it with a new key"
            )));
        }
        Ok(())
    }
}

fn of_uuid(key: &str) -> Result<Timestamp, KeyError> {
    const HYPHENATED: usize = 36;
    // The first 48 of its 128 bits are milliseconds since 1970.
    let millis = |uuid: Uuid| u64::try_from(uuid.as_u128() >> 80).unwrap_or(u64::MAX);
    let parsed = Uuid::try_parse(key).ok();
    parsed
        .filter(|uuid| uuid.get_version_num() == 7 && key.len() == HYPHENATED)
        .map(|uuid| Timestamp::from_millis(millis(uuid)))
        .ok_or(KeyError::NotUuidV7)
}

fn of_header(headers: &HeaderMap, name: &HeaderName) -> Result<Timestamp, KeyError> {
    let untimed = || KeyError::Untimed {
        header: name.clone(),
    };
    let mut lines = headers.get_all(name).iter();
    let line = lines.next().ok_or_else(untimed)?;
    if lines.next().is_some() {
        return Err(untimed());
    }
    let text = line.to_str().map_err(|_| untimed())?;
    let date = httpdate::parse_http_date(text.trim()).map_err(|_| untimed())?;
    let since = date.duration_since(UNIX_EPOCH).map_err(|_| untimed())?;
    Ok(Timestamp::from_millis(millis(since)))
}

impl FromStr for KeyTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("`{text}` is not where a key's time can be: write {UUID_V7} or {HEADER}NAME")
        };
        if text == UUID_V7 {
            return Ok(Self::UuidV7);
        }
        let name = text.strip_prefix(HEADER).ok_or_else(wrong)?;
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        Ok(Self::Header(name))
    }
}

impl fmt::Display for KeyTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UuidV7 => f.write_str(UUID_V7),
            Self::Header(name) => write!(f, "{HEADER}{name}"),
        }
    }
}

#[cfg(test)]
mod tests;
