//! By which names an operation's id and attempt travel to the upstream.

use std::fmt;
use std::str::FromStr;

use http::HeaderName;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT,
    HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// How the upstream hears which operation a keyed request is. The id is the same for every attempt,
/// from every gateway on the store, and tells nothing of the client's key. What clients send under
/// these names, or under any that begins with `Onlyonce-`, is removed.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// The header with the operation's id, a UUID. Default `onlyonce-operation`.
    pub operation_header: Option<UpstreamHeader>,
    /// The header with the number of the attempt: `1`, or more if an earlier one may have taken
    /// effect. Default `onlyonce-attempt`.
    pub attempt_header: Option<UpstreamHeader>,
    /// Whether the two are sent. Default `true`.
    pub headers: Option<bool>,
}

/// A header of requests to the upstream that the gateway may set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamHeader(HeaderName);

/// Where an upstream that takes idempotency keys expects its own: a header, or a member of its JSON
/// body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    /// `header:NAME`
    Header(UpstreamHeader),
    /// `body:MEMBER`
    Member(String),
}

/// Headers that say how a message is read, where it goes or who sent it.
const NOT_OURS: [HeaderName; 12] = [
    AUTHORIZATION,
    CONNECTION,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    COOKIE,
    EXPECT,
    HOST,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

impl UpstreamHeader {
    /// The header's name.
    pub fn name(&self) -> &HeaderName {
        &self.0
    }
}

impl FromStr for UpstreamHeader {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = HeaderName::from_bytes(text.as_bytes()).map_err(|_| {
            format!("`{text}` is not a header name: write one like idempotency-key")
        })?;
        if NOT_OURS.contains(&name) {
            return Err(format!(
                "`{name}` has a meaning of its own: write another header, like idempotency-key"
            ));
        }
        Ok(Self(name))
    }
}

impl FromStr for KeyPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("header", name)) => Ok(Self::Header(name.trim().parse()?)),
            Some(("body", member)) if !member.trim().is_empty() => {
                Ok(Self::Member(member.trim().to_owned()))
            }
            _ => Err(format!(
                "`{text}` is no place for a key: write header:idempotency-key or body:request_id"
            )),
        }
    }
}

impl fmt::Display for KeyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(UpstreamHeader(name)) => write!(f, "header:{name}"),
            Self::Member(member) => write!(f, "body:{member}"),
        }
    }
}
