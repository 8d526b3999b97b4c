//! How a route finds out whether an operation happened: a request to its upstream, and what the
//! answers to it mean.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use http::{Method, StatusCode};
use onlyonce_core::policy;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{HOUR, MINUTE, SECOND, Span};

/// The statuses that say that something is not there.
const ABSENT: [u16; 2] = [404, 410];

/// A request that finds out whether an operation happened, and what its answer means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup(LookupTable);

/// How to find out whether an operation happened: `reconcile = "GET /charges/{operation}"`, or a table
/// with these settings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LookupTable {
    /// The request, with `{operation}` for the operation's id, `{key}` for the client's key, `{NAME}`
    /// for a parameter of the route's `match`, and `{body:MEMBER}` or `{body:/a/pointer}` for a value
    /// in the request's JSON body: `GET /charges?reference={operation}`. A request whose values cannot
    /// stand in it (nothing, or slashes in a path) is refused with 422 before anything runs.
    pub ask: Template,
    /// Statuses of an answer that mean that it happened. Default: 2xx, but not 202 and 206.
    pub happened: Option<Vec<u16>>,
    /// Statuses that mean that it did not happen, and will not any more. Default `[404, 410]`. All
    /// others cannot tell, nor can no answer.
    pub did_not: Option<Vec<u16>>,
    /// Where in the JSON of an answer that means "happened" the operation's own answer is, as a
    /// pointer: `/data/0`. Then an empty list, or `null` there, means that it did not happen, and
    /// anything else cannot tell. Default: all of it.
    pub answer: Option<Pointer>,
    /// Counts only answers that carry the operation's id in the header `Onlyonce-Operation`, also those that
    /// say that it did not happen: what stands between gateway and service cannot say that in its place.
    /// Default: an answer without the header counts too; one about another operation never does.
    #[serde(default)]
    pub echo: bool,
    /// Whether a page (`text/html`) can be an answer. Default: it cannot tell, whatever its status, for
    /// portals, logins and proxies answer with pages.
    #[serde(default)]
    pub html: bool,
    /// The status that the stored answer gets. Default: the status of the answer that was found.
    pub status: Option<StatusNumber>,
    /// How long to wait for the answer. Default `10s`.
    pub timeout: Option<Span<10, MINUTE>>,
    /// How long a request whose connection was lost may still take effect there: so long nobody looks.
    /// Default `1s`. After a time-out, a 502 or a 504 it may be at work for longer: what is not found
    /// then is looked for again once a whole `rules.lease` has passed.
    pub after: Option<Span<0, MINUTE>>,
    /// A file with the value of the `Authorization` header to ask with, as in `Bearer …`; `ask` must
    /// then name `{operation}`, which no other caller's operation has. Default: the headers of the
    /// caller who retries.
    pub authorization_file: Option<PathBuf>,
    /// Also asks without a retry: this often the gateway reads which operations of this route have lapsed (a
    /// scan of all keys on Redis), and asks about each, with pauses that double. What happened gets its
    /// answer; all else waits for a retry. It asks with `authorization_file`, or else with no
    /// credential, and about the id alone: `ask` may have no value but `{operation}`. Default: only
    /// retries ask.
    pub background: Option<Span<SECOND, HOUR>>,
}

impl Lookup {
    /// Its settings.
    pub fn table(&self) -> &LookupTable {
        &self.0
    }

    /// What an answer of this status means; nothing where it cannot tell.
    pub fn says(&self, status: StatusCode) -> Option<bool> {
        let is_among = |given: &Option<Vec<u16>>, usual: bool| {
            given
                .as_ref()
                .map_or(usual, |given| given.contains(&status.as_u16()))
        };
        let is_whole = status != StatusCode::ACCEPTED && status != StatusCode::PARTIAL_CONTENT;
        let happened = is_among(&self.0.happened, status.is_success() && is_whole);
        let did_not = is_among(&self.0.did_not, ABSENT.contains(&status.as_u16()));
        match (happened, did_not) {
            (true, false) => Some(true),
            (false, true) => Some(false),
            (true, true) | (false, false) => None,
        }
    }
}

impl<'de> Deserialize<'de> for Lookup {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> serde::de::Visitor<'de> for Either {
            type Value = Lookup;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a request like \"GET /charges/{operation}\", or a table with `ask`")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Lookup, E> {
                Ok(Lookup(LookupTable {
                    ask: text.parse().map_err(E::custom)?,
                    happened: None,
                    did_not: None,
                    answer: None,
                    echo: false,
                    html: false,
                    status: None,
                    timeout: None,
                    after: None,
                    authorization_file: None,
                    background: None,
                }))
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<Lookup, A::Error> {
                let table = serde::de::value::MapAccessDeserializer::new(map);
                LookupTable::deserialize(table).map(Lookup)
            }
        }

        from.deserialize_any(Either)
    }
}

impl JsonSchema for Lookup {
    fn schema_name() -> Cow<'static, str> {
        "Reconcile".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        LookupTable::json_schema(generator)
    }
}

/// A request to the upstream with places for values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Its method, a safe one.
    pub method: Method,
    /// Its path and query, in pieces.
    pub pieces: Vec<Piece>,
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.method)?;
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => f.write_str(text)?,
                Piece::Value { of, .. } => match of {
                    Variable::Key => f.write_str("{key}")?,
                    Variable::Operation => f.write_str("{operation}")?,
                    Variable::Param(name) => write!(f, "{{{name}}}")?,
                    Variable::Body(pointer) => write!(f, "{{body:{}}}", pointer.as_str())?,
                },
            }
        }
        Ok(())
    }
}

/// A piece of a request's target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// As it is.
    Text(String),
    /// A value of the operation.
    Value {
        /// Which one.
        of: Variable,
        /// Whether it stands in the path rather than in the query.
        is_in_path: bool,
    },
}

/// A value of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    /// The client's key.
    Key,
    /// The operation's id.
    Operation,
    /// A parameter of the route's path.
    Param(String),
    /// A value in the JSON body, by its pointer.
    Body(Pointer),
}

/// As it is written in a request.
impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key => f.write_str("{key}"),
            Self::Operation => f.write_str("{operation}"),
            Self::Param(name) => write!(f, "{{{name}}}"),
            Self::Body(pointer) => write!(f, "{{body:{}}}", pointer.as_str()),
        }
    }
}

/// A JSON pointer (RFC 6901).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    text: String,
    place: policy::Pointer,
    /// What it is in; nothing for a member of the whole.
    parent: Option<policy::Pointer>,
}

impl Pointer {
    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Every value there, as it is written: several where member names are repeated; nothing for what
    /// is not JSON.
    pub(crate) fn find<'a>(&self, json: &'a [u8]) -> Option<Vec<&'a RawValue>> {
        self.place.find(json)
    }

    /// Every value that this place is in, in the same way.
    pub(crate) fn find_parent<'a>(&self, json: &'a [u8]) -> Option<Vec<&'a RawValue>> {
        match &self.parent {
            Some(parent) => parent.find(json),
            None => Some(vec![serde_json::from_slice(json).ok()?]),
        }
    }
}

impl FromStr for Pointer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() < 2 || !text.starts_with('/') {
            return Err(format!(
                "`{text}` is not a JSON pointer: write it like /data/0"
            ));
        }
        let (parent, _) = text.rsplit_once('/').unwrap_or_default();
        let parent = (!parent.is_empty()).then(|| parent.parse());
        Ok(Self {
            text: text.to_owned(),
            place: text.parse()?,
            parent: parent.transpose()?,
        })
    }
}

/// The status of an answer that has a body of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusNumber(StatusCode);

impl StatusNumber {
    /// The status.
    pub fn get(self) -> StatusCode {
        self.0
    }
}

impl<'de> Deserialize<'de> for StatusNumber {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = u16::deserialize(from)?;
        let status = StatusCode::from_u16(number).ok();
        let status = status.filter(|it| it.is_success());
        status.map(Self).ok_or_else(|| {
            serde::de::Error::custom(format!("{number} is not a status from 200 to 299"))
        })
    }
}

impl JsonSchema for StatusNumber {
    fn schema_name() -> Cow<'static, str> {
        "StatusNumber".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": 200, "maximum": 299 })
    }
}

impl Template {
    /// The values of a request that it needs. A record keeps none of them.
    pub fn of_the_request(&self) -> impl Iterator<Item = &Variable> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Value {
                of: Variable::Operation,
                ..
            }
            | Piece::Text(_) => None,
            Piece::Value { of, .. } => Some(of),
        })
    }
}

impl FromStr for Template {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is not a request: write it like GET /charges/{{operation}}");
        let (method, target) = text.split_once(' ').ok_or_else(wrong)?;
        let method: Method = method.parse().map_err(|_| wrong())?;
        let target = target.trim();
        if !method.is_safe() || !target.starts_with('/') || target.contains('#') {
            return Err(wrong());
        }
        let pieces = pieces(target)?;
        let names_it = pieces.iter().any(|piece| match piece {
            Piece::Value { .. } => true,
            Piece::Text(_) => false,
        });
        if !names_it {
            return Err(format!(
                "`{text}` asks the same of every operation: name it by {{operation}} or another value"
            ));
        }
        let example: String = pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.as_str(),
                Piece::Value { .. } => "x",
            })
            .collect();
        let example: http::uri::PathAndQuery = example.parse().map_err(|_| wrong())?;
        let path = crate::path::normal(example.path()).map_err(|_| wrong())?;
        if path.is_some() || crate::path::other_readings(example.path()).next().is_some() {
            return Err(format!(
                "the path of `{text}` is read differently by different servers: write it without \
                 `.`, `..`, `//`, `;` and escapes"
            ));
        }
        Ok(Self { method, pieces })
    }
}

fn pieces(target: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = target;
    let mut is_in_path = true;
    while let Some(start) = rest.find('{') {
        let (text, from) = rest.split_at(start);
        let end = from
            .find('}')
            .ok_or_else(|| format!("`{target}` has a `{{` without its `}}`"))?;
        is_in_path &= !text.contains('?');
        if !text.is_empty() {
            pieces.push(Piece::Text(text.to_owned()));
        }
        let of = variable(&from[1..end])?;
        pieces.push(Piece::Value { of, is_in_path });
        rest = &from[end + 1..];
    }
    if rest.contains('}') {
        return Err(format!("`{target}` has a `}}` without its `{{`"));
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    Ok(pieces)
}

fn variable(name: &str) -> Result<Variable, String> {
    match name.split_once(':') {
        Some(("body", pointer)) if pointer.starts_with('/') => Ok(Variable::Body(pointer.parse()?)),
        Some(("body", member)) if !member.is_empty() => {
            let member = member.replace('~', "~0").replace('/', "~1");
            Ok(Variable::Body(format!("/{member}").parse()?))
        }
        Some(_) => Err(format!(
            "`{{{name}}}` is no value: there are {{operation}}, {{key}}, {{body:MEMBER}} and the \
             parameters of `match`"
        )),
        None => Ok(match name {
            "operation" => Variable::Operation,
            "key" => Variable::Key,
            _ => Variable::Param(name.to_owned()),
        }),
    }
}
