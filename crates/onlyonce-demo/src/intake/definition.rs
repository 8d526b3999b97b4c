//! What an intake asks for, read from a JSON file once and checked there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Number, Value, json};
use thiserror::Error;

const BUILT_IN: &str = include_str!("../intakes.json");

/// An intake: the fields it takes, and how its submissions run once.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Definition {
    /// Its name in paths.
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) fields: BTreeMap<String, Rule>,
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
}

/// What a field may hold.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Rule {
    #[serde(rename = "type")]
    kind: Kind,
    #[serde(default)]
    required: bool,
    max_length: Option<usize>,
    min: Option<f64>,
    max: Option<f64>,
    one_of: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Kind {
    String,
    Email,
    Number,
    Boolean,
}

/// Why intakes cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum IntakeError {
    /// The file is not there, or not ours to read.
    #[error("{}: cannot be read", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It is no list of intakes.
    #[error("{name}: is no list of intakes")]
    Format {
        /// Which file.
        name: String,
        /// Where and why not.
        source: serde_json::Error,
    },
    /// An intake that cannot be served.
    #[error("{name}: intake `{id}`: {why}")]
    Intake {
        /// Which file.
        name: String,
        /// Which intake.
        id: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// The intakes of a file, or those built in.
pub(crate) fn read(path: Option<&Path>) -> Result<Vec<Definition>, IntakeError> {
    let Some(path) = path else {
        return parse("built-in intakes", BUILT_IN);
    };
    let text = std::fs::read_to_string(path).map_err(|source| IntakeError::File {
        path: path.to_owned(),
        source,
    })?;
    parse(&path.display().to_string(), &text)
}

fn parse(name: &str, text: &str) -> Result<Vec<Definition>, IntakeError> {
    let intakes: Vec<Definition> =
        serde_json::from_str(text).map_err(|source| IntakeError::Format {
            name: name.to_owned(),
            source,
        })?;
    let mut known = BTreeSet::new();
    for intake in &intakes {
        let wrong = |why| IntakeError::Intake {
            name: name.to_owned(),
            id: intake.id.clone(),
            why,
        };
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if intake.id.is_empty() || !intake.id.chars().all(is_plain) {
            return Err(wrong("an id is lower-case letters, digits and hyphens"));
        }
        if !known.insert(&intake.id) {
            return Err(wrong("its id is there twice"));
        }
        if intake.idempotency.ttl_ms == Some(0) {
            return Err(wrong("ttlMs is at least 1"));
        }
    }
    Ok(intakes)
}

/// How much of a submission there must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// A draft may lack fields.
    Draft,
    /// What is submitted may not.
    Whole,
}

impl Definition {
    /// What is wrong with these fields, one entry each; empty if nothing is.
    pub(crate) fn wrongs(&self, fields: &Map<String, Value>, extent: Extent) -> Vec<Value> {
        let mut wrongs = Vec::new();
        let mut wrong = |field: &str, message: String| {
            wrongs.push(json!({"field": field, "message": message}));
        };
        for (name, value) in fields {
            match self.fields.get(name) {
                None => wrong(name, format!("there is no such field in {}", self.title)),
                Some(rule) => {
                    if let Some(why) = rule.refuses(value) {
                        wrong(name, why);
                    }
                }
            }
        }
        for (name, rule) in &self.fields {
            if rule.required && extent == Extent::Whole && !fields.contains_key(name) {
                wrong(name, "is required".to_owned());
            }
        }
        wrongs
    }

    /// Its fields as a JSON Schema, for who fills them in. A field may be null: to take it away.
    pub(crate) fn schema(&self) -> Value {
        let fields = self.fields.iter();
        let properties: Map<_, _> = fields
            .map(|(name, rule)| (name.clone(), rule.schema()))
            .collect();
        json!({"type": "object", "properties": properties, "additionalProperties": false})
    }
}

impl Rule {
    fn schema(&self) -> Value {
        let kind = match self.kind {
            Kind::String | Kind::Email => "string",
            Kind::Number => "number",
            Kind::Boolean => "boolean",
        };
        let mut schema = json!({"type": [kind, "null"]});
        let mut bound = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                schema[name] = value;
            }
        };
        bound("maxLength", self.max_length.map(Value::from));
        bound("minimum", self.min.map(Value::from));
        bound("maximum", self.max.map(Value::from));
        bound("enum", self.one_of.as_ref().map(|allowed| json!(allowed)));
        let format = matches!(self.kind, Kind::Email).then(|| json!("email"));
        bound("format", format);
        bound(
            "description",
            self.required.then(|| json!("required to submit")),
        );
        schema
    }

    fn refuses(&self, value: &Value) -> Option<String> {
        match (self.kind, value) {
            (Kind::String, Value::String(text)) => self.refuses_text(text),
            (Kind::Email, Value::String(text)) => match text.split_once('@') {
                Some((name, host)) if !name.is_empty() && host.contains('.') => {
                    self.refuses_text(text)
                }
                _ => Some("is no e-mail address".to_owned()),
            },
            (Kind::Number, Value::Number(number)) => self.refuses_number(number),
            (Kind::Boolean, Value::Bool(_)) => None,
            (Kind::String | Kind::Email, _) => Some("is no text".to_owned()),
            (Kind::Number, _) => Some("is no number".to_owned()),
            (Kind::Boolean, _) => Some("is neither true nor false".to_owned()),
        }
    }

    fn refuses_text(&self, text: &str) -> Option<String> {
        if self.required && text.trim().is_empty() {
            return Some("is empty".to_owned());
        }
        if let Some(max) = self.max_length.filter(|max| text.chars().count() > *max) {
            return Some(format!("is longer than {max} characters"));
        }
        let allowed = self.one_of.as_ref()?;
        (!allowed.iter().any(|it| it == text)).then(|| format!("is none of {}", allowed.join(", ")))
    }

    fn refuses_number(&self, number: &Number) -> Option<String> {
        let number = number.as_f64()?;
        if let Some(min) = self.min.filter(|min| number < *min) {
            return Some(format!("is less than {min}"));
        }
        let max = self.max.filter(|max| number > *max)?;
        Some(format!("is more than {max}"))
    }
}
