//! Lengths of time and numbers within bounds. The bounds are part of the type: what is outside of
//! them is an error where it is written, and no code can build such a value. The reference page
//! shows them.
//!
//! ```
//! use onlyonce_core::bounds::{Count, HOUR, SECOND, Span};
//!
//! type Lease = Span<SECOND, HOUR>;
//! assert!("30s".parse::<Lease>().is_ok());
//! let told = "0s".parse::<Lease>().unwrap_err();
//! assert_eq!(told, "`0s` is too short: write a length of time from 1s to 1h, like \"30s\"");
//! assert!(Count::<1, 1000>::new(0).is_err());
//! ```

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

/// A second, as bounds of a [`Span`] count it: in milliseconds.
pub const SECOND: u64 = 1000;
/// A minute.
pub const MINUTE: u64 = 60 * SECOND;
/// An hour.
pub const HOUR: u64 = 60 * MINUTE;
/// A day.
pub const DAY: u64 = 24 * HOUR;
/// A kibibyte, as bounds of a [`Count`] of bytes.
pub const KIBIBYTE: u64 = 1024;
/// A mebibyte.
pub const MEBIBYTE: u64 = 1024 * KIBIBYTE;
/// A gibibyte.
pub const GIBIBYTE: u64 = 1024 * MEBIBYTE;

#[cfg(feature = "schema")]
mod schema;

/// The units a length of time is shown in, largest first.
const UNITS: [(u64, &str); 5] = [
    (DAY, "d"),
    (HOUR, "h"),
    (MINUTE, "m"),
    (SECOND, "s"),
    (1, "ms"),
];
/// What an example may be; the first within the bounds is shown.
const EXAMPLES_MS: [u64; 4] = [30 * SECOND, DAY, 500, HOUR];
const EXAMPLES: [u64; 3] = [100, MEBIBYTE, 1];

/// A length of time from `MIN` to `MAX` milliseconds, written like `30s`, `500ms` or `24h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<const MIN: u64, const MAX: u64>(Duration);

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Span<MIN, MAX> {
    /// A length of time, if it is within the bounds; otherwise what is wrong with it.
    pub fn new(span: Duration) -> Result<Self, String> {
        Self::within(span, &shown(millis(span)))
    }

    /// The length of time.
    pub const fn get(self) -> Duration {
        self.0
    }

    fn within(span: Duration, written: &str) -> Result<Self, String> {
        let wrong = |how| {
            Err(format!(
                "`{written}` is too {how}: write {}",
                Self::wanted()
            ))
        };
        if span < Duration::from_millis(MIN) {
            wrong("short")
        } else if span > Duration::from_millis(MAX) {
            wrong("long")
        } else {
            Ok(Self(span))
        }
    }

    /// What may be written.
    fn wanted() -> String {
        let example = EXAMPLES_MS.into_iter().find(|it| (MIN..=MAX).contains(it));
        format!(
            "a length of time from {} to {}, like \"{}\"",
            shown(MIN),
            shown(MAX),
            shown(example.unwrap_or(MIN))
        )
    }

    /// What is wrong with a bare number: most often, only its unit is missing.
    fn without_unit(number: &dyn fmt::Display) -> String {
        let in_seconds = format!("{number}s");
        let seconds = in_seconds.parse::<Self>().is_ok();
        let hint = if seconds {
            format!("; {number} seconds are \"{in_seconds}\"")
        } else {
            String::new()
        };
        format!("`{number}` has no unit: write {}{hint}", Self::wanted())
    }
}

impl<const MIN: u64, const MAX: u64> Count<MIN, MAX> {
    /// A number, if it is within the bounds; otherwise what is wrong with it.
    pub fn new(number: u64) -> Result<Self, String> {
        Self::within(i128::from(number))
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number where 32 bits are counted.
    pub fn as_u32(self) -> u32 {
        u32::try_from(self.0).unwrap_or(u32::MAX)
    }

    /// The number where things in memory are counted.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    fn within(number: i128) -> Result<Self, String> {
        let wrong = |how| Err(format!("`{number}` is too {how}: write {}", Self::wanted()));
        match u64::try_from(number) {
            Ok(fits) if (MIN..=MAX).contains(&fits) => Ok(Self(fits)),
            _ if number < i128::from(MIN) => wrong("small"),
            _ => wrong("large"),
        }
    }

    /// What may be written.
    fn wanted() -> String {
        let example = EXAMPLES.into_iter().find(|it| (MIN..=MAX).contains(it));
        format!(
            "a whole number from {MIN} to {MAX}, like {}",
            example.unwrap_or(MIN)
        )
    }
}

impl<const MIN: u64, const MAX: u64> FromStr for Span<MIN, MAX> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit()) {
            return Err(Self::without_unit(&text));
        }
        let span = humantime::parse_duration(text)
            .map_err(|_| format!("`{text}` is not a length of time: write {}", Self::wanted()))?;
        Self::within(span, text)
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Span<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Written<const MIN: u64, const MAX: u64>;
        impl<const MIN: u64, const MAX: u64> Visitor<'_> for Written<MIN, MAX> {
            type Value = Span<MIN, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&Span::<MIN, MAX>::wanted())
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
                Err(E::custom(Span::<MIN, MAX>::without_unit(&number)))
            }
        }
        from.deserialize_any(Written)
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Count<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Written<const MIN: u64, const MAX: u64>;
        impl<const MIN: u64, const MAX: u64> Visitor<'_> for Written<MIN, MAX> {
            type Value = Count<MIN, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&Count::<MIN, MAX>::wanted())
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
                Count::within(i128::from(number)).map_err(E::custom)
            }

            /// A number without a fraction is a whole one, however it is written.
            fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
                if number.fract() != 0.0 {
                    return Err(E::invalid_value(Unexpected::Float(number), &self));
                }
                Count::within(number as i128).map_err(E::custom)
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
                Count::new(number).map_err(E::custom)
            }
        }
        from.deserialize_any(Written)
    }
}

/// Milliseconds in the largest unit that divides them.
pub(crate) fn shown(millis: u64) -> String {
    let fits = |(unit, _): &(u64, &str)| millis != 0 && millis.is_multiple_of(*unit);
    match UNITS.into_iter().find(fits) {
        Some((unit, name)) => format!("{}{name}", millis / unit),
        None => "0s".to_owned(),
    }
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
