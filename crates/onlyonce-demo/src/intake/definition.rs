//! What an intake asks for, and how its submissions run once.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::definitions::Defined;
use crate::rules::{Extent, Rules, wrongs};

/// An intake: the fields it takes, and how its submissions run once.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Definition {
    /// Its name in paths.
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) fields: Rules,
    pub(crate) idempotency: Idempotency,
    /// Where each submission is told, once: a URL, or a path of this service.
    pub(crate) webhook: Option<String>,
}

/// How an intake's submissions run once.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Idempotency {
    pub(crate) enabled: bool,
    /// How long an answer is kept; the profile's time otherwise.
    pub(crate) ttl_ms: Option<u64>,
    /// How long a duplicate waits for its original; as the profile says otherwise.
    pub(crate) lock_timeout_ms: Option<u64>,
    /// How long a request may run; as the profile says otherwise.
    pub(crate) execution_timeout_ms: Option<u64>,
}

impl Defined for Definition {
    const NAMES: (&'static str, &'static str) = ("intake", "intakes");
    const BUILT_IN: &'static str = include_str!("../intakes.json");

    fn id(&self) -> &str {
        &self.id
    }

    fn wrong(&self) -> Option<&'static str> {
        (self.idempotency.ttl_ms == Some(0)).then_some("ttlMs is at least 1")
    }
}

impl Definition {
    /// What is wrong with these fields, one entry each; empty if nothing is.
    pub(crate) fn wrongs(&self, fields: &Map<String, Value>, extent: Extent) -> Vec<Value> {
        wrongs(&self.fields, fields, extent, |_| {
            Some(format!("there is no such field in {}", self.title))
        })
    }

    /// Its fields as a JSON Schema, for whoever fills them in.
    pub(crate) fn schema(&self) -> Value {
        let fields = self.fields.iter();
        let properties: Map<_, _> = fields
            .map(|(name, rule)| (name.clone(), rule.schema()))
            .collect();
        json!({"type": "object", "properties": properties, "additionalProperties": false})
    }
}
