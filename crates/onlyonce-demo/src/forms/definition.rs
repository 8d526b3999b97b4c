//! What a form asks for, and what becomes of a submission.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::definitions::Defined;
use crate::rules::{Extent, Rules, wrongs};

/// A form.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Form {
    /// Its name in paths.
    pub(super) id: String,
    pub(super) title: String,
    pub(super) fields: Rules,
    /// Whether it takes any other field too, as text.
    #[serde(default)]
    other_text_fields: bool,
    pub(super) makes: Made,
}

/// What business record each submission makes.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Made {
    pub(super) object_type: String,
    /// What the ids of these records begin with.
    pub(super) id_prefix: String,
}

impl Defined for Form {
    const NAMES: (&'static str, &'static str) = ("form", "forms");
    const BUILT_IN: &'static str = include_str!("../forms.json");

    fn id(&self) -> &str {
        &self.id
    }

    fn wrong(&self) -> Option<&'static str> {
        let is_plain = self
            .makes
            .id_prefix
            .chars()
            .all(|c| c.is_ascii_alphanumeric());
        (!is_plain).then_some("idPrefix is letters and digits")
    }
}

impl Form {
    /// What is wrong with these fields, one entry each; empty if nothing is.
    pub(super) fn wrongs(&self, data: &Map<String, Value>) -> Vec<Value> {
        wrongs(&self.fields, data, Extent::Whole, |value| {
            if !self.other_text_fields {
                Some(format!("there is no such field in {}", self.title))
            } else {
                (!value.is_string()).then(|| "is no text".to_owned())
            }
        })
    }
}
