//! The values of a contract's file: each is read once, here, and what is wrong with it says what
//! would be right.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use http::{HeaderName, Method};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::bounds::Count;
use crate::refusal::Reason;

/// A status of a response.
pub type StatusCode = Count<100, 999>;

/// What says that an optional value is absent.
pub(super) const NONE: &str = "none";
const UNSAFE: &str = "unsafe";

/// A value, or `none`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Maybe<T> {
    /// It is absent.
    None,
    /// It is this.
    Some(T),
}

impl<T> From<Maybe<T>> for Option<T> {
    fn from(value: Maybe<T>) -> Self {
        match value {
            Maybe::None => None,
            Maybe::Some(value) => Some(value),
        }
    }
}

/// Covered methods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MethodList {
    /// All that are not safe.
    Unsafe,
    /// These.
    Only(Vec<MethodName>),
}

/// Which covered methods need a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyNeeds {
    /// None.
    Optional,
    /// All.
    Required,
    /// These; a list of methods that are covered.
    On(Vec<MethodName>),
}

/// A method, in capital letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodName(pub Method);

/// A header by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header(pub HeaderName);

/// The start of a path, like `/status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusPath(pub String);

/// A reason for a refusal, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReasonName(pub Reason);

/// What a key may be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Charset {
    /// Letters, digits, `_`, `.` and `-`.
    UrlSafe,
    /// ASCII from `!` to `~`.
    Visible,
    /// Any text without control characters.
    Text,
    /// A UUID of version 4.
    UuidV4,
}

/// The unit of a time-to-live header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
}

/// What follows when a claim lapses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Lapse {
    /// A retry runs again: at least once, one final answer.
    Rerun,
    /// Nothing runs again until an operator resolves it: at most once.
    Hold,
}

/// What happens when the store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum StoreIs {
    /// Keyed requests are refused.
    Closed,
    /// They run without protection; warned of and counted.
    Open,
}

/// The status of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ReplayAs {
    /// As it was.
    AsStored,
    /// 200 in place of any 2xx but 204.
    Ok,
}

/// How a body counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Body {
    /// By meaning for JSON, forms and multipart; by bytes otherwise.
    Canonical,
    /// By bytes.
    Bytes,
    /// Not at all.
    Ignore,
}

/// Which of two keys counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum FirstIn {
    /// The one in the header.
    Header,
    /// The one in the body.
    Body,
}

/// How the numbers of a JSON body count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum NumbersAs {
    /// By their digits: `1.0` is not `1`.
    Digits,
    /// By their exact value: `1.0` is `1`.
    Value,
}

/// The body of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ErrorBody {
    /// RFC 9457 `application/problem+json`.
    Problem,
    /// `{"ok":false,"error":{type,message,retryable,retryAfterMs}}`.
    OkError,
    /// `{"success":false,"error":{code,message,retryable}}`.
    SuccessError,
    /// `{"error":{code,message}}`.
    CodeError,
    /// `{"error":{type,message}}`.
    TypeError,
    /// `{type,code,message}`, its type being the kind.
    FlatError,
    /// `{"errors":[{category,code,detail}]}`, its category being the kind.
    ErrorList,
    /// `{name,message,details:[{issue,description}]}`, its name being the kind, its issue the code.
    NamedError,
    /// `{"error":{code,message,status}}`: the HTTP status as code, the code as status.
    StatusError,
}

impl FromStr for MethodName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a method: write it like POST");
        if !text.bytes().all(|it| it.is_ascii_uppercase()) {
            return Err(wrong());
        }
        Method::from_bytes(text.as_bytes())
            .map(Self)
            .map_err(|_| wrong())
    }
}

impl FromStr for Header {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        HeaderName::from_bytes(text.as_bytes())
            .map(Self)
            .map_err(|_| format!("`{text}` is not a header name: write one like x-request-id"))
    }
}

impl FromStr for StatusPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_plain = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'/' | b'-' | b'_');
        let fits = text.len() > 1
            && text.starts_with('/')
            && !text.ends_with('/')
            && !text.contains("//")
            && text.bytes().all(is_plain);
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!(
                "`{text}` is not the start of a path: write it like /status"
            ))
        }
    }
}

impl FromStr for ReasonName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Reason::named(text).map(Self).ok_or_else(|| {
            let names = Reason::ALL.map(Reason::name).join(", ");
            format!("there is no refusal `{text}`; there are {names}")
        })
    }
}

impl<'de> Deserialize<'de> for MethodList {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        word_or_list(
            from,
            "`unsafe` or a list of methods, like [\"POST\"]",
            |word| (word == UNSAFE).then_some(Self::Unsafe),
        )
        .map(|read| read.unwrap_or_else(Self::Only))
    }
}

impl<'de> Deserialize<'de> for KeyNeeds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let wanted = "`optional`, `required`, or a list of methods, like [\"POST\"]";
        word_or_list(from, wanted, |word| match word {
            "optional" => Some(Self::Optional),
            "required" => Some(Self::Required),
            _ => None,
        })
        .map(|read| read.unwrap_or_else(Self::On))
    }
}

/// Reads a word that `known` knows, or else a list of methods.
fn word_or_list<'de, D: Deserializer<'de>, T>(
    from: D,
    wanted: &'static str,
    known: impl Fn(&str) -> Option<T>,
) -> Result<Result<T, Vec<MethodName>>, D::Error> {
    struct Written<F>(&'static str, F);
    impl<'de, T, F: Fn(&str) -> Option<T>> Visitor<'de> for Written<F> {
        type Value = Result<T, Vec<MethodName>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: Error>(self, word: &str) -> Result<Self::Value, E> {
            let wrong = || E::custom(format!("`{word}` is not right here: write {}", self.0));
            (self.1)(word).map(Ok).ok_or_else(wrong)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(items)).map(Err)
        }
    }
    from.deserialize_any(Written(wanted, known))
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Maybe<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Written<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Written<T> {
            type Value = Maybe<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "`{NONE}`, or what is wanted")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                if text == NONE {
                    return Ok(Maybe::None);
                }
                T::deserialize(serde::de::value::StrDeserializer::new(text)).map(Maybe::Some)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Maybe::Some)
            }
        }
        from.deserialize_any(Written(PhantomData))
    }
}

/// Reads each type from its text, by `FromStr`.
macro_rules! written_as_text {
    ($($name:ident: $what:literal)+) => {$(
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<str>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "format": $what })
            }
        }
    )+};
}

pub(super) use written_as_text;

written_as_text! {
    Header: "header"
    MethodName: "method"
    ReasonName: "refusal"
    StatusPath: "path"
}

#[cfg(feature = "schema")]
mod schema {
    //! What may be written, for the reference of the gateway's settings.

    use std::borrow::Cow;

    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    use super::{KeyNeeds, Maybe, MethodList};

    macro_rules! described {
        ($($name:ident: $what:literal)+) => {$(
            impl JsonSchema for $name {
                fn schema_name() -> Cow<'static, str> {
                    stringify!($name).into()
                }

                fn inline_schema() -> bool {
                    true
                }

                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    json_schema!({ "format": $what })
                }
            }
        )+};
    }

    described! {
        KeyNeeds: "`optional` or `required` or list of method"
        MethodList: "`unsafe` or list of method"
    }

    impl<T: JsonSchema> JsonSchema for Maybe<T> {
        fn schema_name() -> Cow<'static, str> {
            format!("Maybe_{}", T::schema_name()).into()
        }

        fn inline_schema() -> bool {
            true
        }

        fn json_schema(generator: &mut SchemaGenerator) -> Schema {
            let inner = generator.subschema_for::<T>();
            json_schema!({ "anyOf": [{ "const": "none" }, inner] })
        }
    }
}
