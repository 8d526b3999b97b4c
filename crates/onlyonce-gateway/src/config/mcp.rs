//! The settings of a route that is an MCP endpoint.

use std::borrow::Cow;

use onlyonce_mcp::Verify;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer};

/// What a route's clients speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Requests that are what they are.
    #[default]
    Http,
    /// The Model Context Protocol over streamable HTTP.
    Mcp,
}

/// More about an MCP endpoint.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mcp {
    /// Origins of web pages that may call it, as in `https://app.example.org`, besides pages of this
    /// machine; any other page is refused with 403. What is no browser sends no origin. Default: none.
    #[serde(default)]
    pub origins: Vec<String>,
    /// Which tools are covered, as in `create_*`, of those that are not read-only. Default: all.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Tools that are not covered.
    #[serde(default)]
    pub except: Vec<String>,
    /// Members of a call's `_meta` in which clients name one call of their model, besides
    /// `onlyonce/callId` and `claudecode/toolUseId`: such a name is the key of a call that has no other.
    /// With `none` among them the latter does not count: for a client that sends one call under two names.
    #[serde(default)]
    pub call_ids: Vec<String>,
    /// How it is found out whether a tool call happened whose answer was lost, by another tool, as in
    /// `create_payment=get_payment:{"reference":"{operation}"}`. Every gateway on the store needs the same.
    #[serde(default)]
    pub reconcile: Vec<Verification>,
}

/// How it is found out whether calls of a tool happened.
#[derive(Clone, Debug)]
pub struct Verification(pub(crate) Verify);

impl<'de> Deserialize<'de> for Verification {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let verify = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Self(verify))
    }
}

impl JsonSchema for Verification {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Verification".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}
