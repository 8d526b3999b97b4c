//! What a field of an intake or a form may hold.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Number, Value, json};

/// The rules of all fields, by their names.
pub(crate) type Rules = BTreeMap<String, Rule>;

/// What a field may hold.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Rule {
    #[serde(rename = "type")]
    pub(crate) kind: Kind,
    /// What people call the field; its name otherwise.
    pub(crate) label: Option<String>,
    #[serde(default)]
    required: bool,
    max_length: Option<usize>,
    min: Option<f64>,
    max: Option<f64>,
    pub(crate) one_of: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Kind {
    String,
    Email,
    Number,
    Boolean,
}

/// How much of a submission there must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// A draft may lack fields.
    Draft,
    /// What is submitted may not.
    Whole,
}

/// What is wrong with these fields, one entry each; empty if nothing is. `unknown` says what is
/// wrong with a field that has no rule.
pub(crate) fn wrongs(
    rules: &Rules,
    fields: &Map<String, Value>,
    extent: Extent,
    unknown: impl Fn(&Value) -> Option<String>,
) -> Vec<Value> {
    let mut wrongs = Vec::new();
    let mut wrong = |field: &str, message: String| {
        wrongs.push(json!({"field": field, "message": message}));
    };
    for (name, value) in fields {
        let why = match rules.get(name) {
            None => unknown(value),
            Some(rule) => rule.refuses(value),
        };
        if let Some(why) = why {
            wrong(name, why);
        }
    }
    for (name, rule) in rules {
        if rule.required && extent == Extent::Whole && !fields.contains_key(name) {
            wrong(name, "is required".to_owned());
        }
    }
    wrongs
}

impl Rule {
    /// As a JSON Schema; a field may be null: to take it away.
    pub(crate) fn schema(&self) -> Value {
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
        bound("title", self.label.as_ref().map(|label| json!(label)));
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
