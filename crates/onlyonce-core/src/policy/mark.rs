//! What an answer carries to be known as a first one, a replay or a refusal.

use std::fmt;
use std::str::FromStr;

use http::{HeaderName, HeaderValue};

/// A header put on an answer.
///
/// ```
/// use onlyonce_core::policy::Mark;
///
/// let mark: Mark = "idempotency-expires: {expires}".parse().unwrap();
/// assert!(matches!(mark, Mark::Expires(_)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// `true`.
    Flag(HeaderName),
    /// Any other fixed text.
    Text(HeaderName, HeaderValue),
    /// The key, as its sender wrote it.
    Key(HeaderName),
    /// When the stored answer expires.
    Expires(HeaderName),
    /// When the original request came.
    OriginalTime(HeaderName),
}

const FLAG: &str = "true";
const KEY: &str = "{key}";
const EXPIRES: &str = "{expires}";
const ORIGINAL_TIME: &str = "{original-time}";

impl Mark {
    /// The header.
    pub const fn name(&self) -> &HeaderName {
        match self {
            Self::Flag(name)
            | Self::Text(name, _)
            | Self::Key(name)
            | Self::Expires(name)
            | Self::OriginalTime(name) => name,
        }
    }
}

impl FromStr for Mark {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not a mark: write a header and its value, which may be {KEY}, \
                 {EXPIRES} or {ORIGINAL_TIME}, like \"idempotent-replayed: true\""
            )
        };
        let (name, value) = text.split_once(':').ok_or_else(wrong)?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| wrong())?;
        match value.trim() {
            FLAG => Ok(Self::Flag(name)),
            KEY => Ok(Self::Key(name)),
            EXPIRES => Ok(Self::Expires(name)),
            ORIGINAL_TIME => Ok(Self::OriginalTime(name)),
            fixed if fixed.is_empty() || fixed.starts_with('{') => Err(wrong()),
            fixed => {
                let value = HeaderValue::from_str(fixed).map_err(|_| wrong())?;
                Ok(Self::Text(name, value))
            }
        }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = match self {
            Self::Flag(_) => FLAG,
            Self::Text(_, value) => value.to_str().unwrap_or_default(),
            Self::Key(_) => KEY,
            Self::Expires(_) => EXPIRES,
            Self::OriginalTime(_) => ORIGINAL_TIME,
        };
        write!(f, "{}: {value}", self.name())
    }
}
