//! Values that are written as text and can be wrong: each is read once, here.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;
use std::sync::Arc;

use http::Method;
use http::uri::{Authority, PathAndQuery};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};

use super::error::ConfigError;
use super::identity::{KeyPlace, UpstreamHeader};
use super::reconcile::{Pointer, Template};
use crate::target::TARGET_BYTES_MAX;

/// A profile by its name or its file. Whether there is one is known only with all settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileName(String);

/// A host by its name or address, without a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName(String);

/// Which requests a route is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The method; none is every method.
    pub method: Option<Method>,
    /// The pattern of the path.
    pub path: String,
}

/// What a route's requests do, in a word: 1 to 64 letters, digits, `_`, `.` and `-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation(Arc<str>);

/// A request of the gateway's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Its method.
    pub method: Method,
    /// Its path and query.
    pub target: PathAndQuery,
}

impl Match {
    /// What tells whether a path is one of these.
    pub(crate) fn matcher(&self) -> Result<matchit::Router<()>, ConfigError> {
        let mut matcher = matchit::Router::new();
        matcher
            .insert(self.path.as_str(), ())
            .map_err(|error| ConfigError::new(format!("route {self}"), error.to_string()))?;
        Ok(matcher)
    }
}

impl HostName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Operation {
    const CHARS_MAX: usize = 64;

    /// The word.
    pub fn name(&self) -> &Arc<str> {
        &self.0
    }
}

impl FromStr for Operation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_allowed = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'_' | b'.' | b'-');
        if text.is_empty() || text.len() > Self::CHARS_MAX || !text.bytes().all(is_allowed) {
            return Err(format!(
                "`{text}` is not an operation: write 1 to {} letters, digits, `_`, `.` and `-`, \
                 like submit",
                Self::CHARS_MAX
            ));
        }
        Ok(Self(text.into()))
    }
}

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is not a host: write a name or an address, like gateway.internal");
        let host: Authority = match text.parse::<Ipv6Addr>() {
            Ok(address) => format!("[{address}]").parse().map_err(|_| wrong())?,
            Err(_) => text.parse().map_err(|_| wrong())?,
        };
        if host.port().is_some() {
            return Err(format!(
                "`{text}` has a port: write only the host, `{}`",
                host.host()
            ));
        }
        if host.host().is_empty() || host.as_str() != host.host() {
            return Err(wrong());
        }
        Ok(Self(host.host().to_owned()))
    }
}

impl ProfileName {
    /// The name, or the path of the file.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the path of a file.
    pub(super) fn is_path(name: &str) -> bool {
        name.contains('/') || name.ends_with(".toml")
    }
}

impl FromStr for ProfileName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("the name of a profile is empty: write one like standard".to_owned());
        }
        Ok(Self(text.to_owned()))
    }
}

impl FromStr for Match {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a match: write it like POST /orders/{{id}}");
        let (method, path) = text.split_once(' ').ok_or_else(wrong)?;
        let path = path.trim();
        if !path.starts_with('/') {
            return Err(wrong());
        }
        let path = crate::path::normal_pattern(path)
            .map_err(|why| format!("the path of `{text}` is not a pattern: {why}"))?;
        let mut matcher = matchit::Router::new();
        matcher
            .insert(path.as_str(), ())
            .map_err(|error| format!("the path of `{text}` is not a pattern: {error}"))?;
        let method = match method {
            "*" => None,
            name if name.chars().all(|it| it.is_ascii_uppercase()) => {
                Some(Method::from_bytes(name.as_bytes()).map_err(|_| wrong())?)
            }
            _ => return Err(wrong()),
        };
        Ok(Self { method, path })
    }
}

impl FromStr for Ask {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a request: write it like GET /me");
        let (method, target) = text.split_once(' ').ok_or_else(wrong)?;
        let method: Method = method.parse().map_err(|_| wrong())?;
        let target: PathAndQuery = target.trim().parse().map_err(|_| wrong())?;
        let is_path = target.as_str().starts_with('/') && target.as_str().len() <= TARGET_BYTES_MAX;
        if !method.is_safe() || !is_path {
            return Err(wrong());
        }
        Ok(Self { method, target })
    }
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = self.method.as_ref().map_or("*", Method::as_str);
        write!(f, "{method} {}", self.path)
    }
}

macro_rules! written_as_text {
    ($($name:ident: $what:literal)+) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = Cow::<str>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn schema_id() -> Cow<'static, str> {
                concat!(module_path!(), "::", stringify!($name)).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "format": $what })
            }
        }
    )+};
}

written_as_text! {
    HostName: "host"
    ProfileName: "profile"
    Match: "match"
    Operation: "name"
    Ask: "request"
    UpstreamHeader: "header"
    KeyPlace: "place"
    Template: "request"
    Pointer: "pointer"
}
