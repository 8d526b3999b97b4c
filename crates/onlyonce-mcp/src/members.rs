//! A JSON object as it was written: members in their order, values in every byte. What a proxy does
//! not mean to change, it must not change: not a digit, not the order a model reads.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

#[derive(Clone, Debug, Default)]
pub(crate) struct Members(Vec<(String, Box<RawValue>)>);

impl Members {
    /// Nothing if `text` is not an object.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    pub(crate) fn of(raw: &RawValue) -> Option<Self> {
        Self::parse(raw.get())
    }

    /// Of members with the same name the last one counts, as for every other reader.
    pub(crate) fn get(&self, name: &str) -> Option<&RawValue> {
        let found = self.0.iter().rev().find(|(found, _)| found == name);
        found.map(|(_, value)| &**value)
    }

    pub(crate) fn object(&self, name: &str) -> Option<Self> {
        Self::of(self.get(name)?)
    }

    pub(crate) fn text(&self, name: &str) -> Option<String> {
        read(self.get(name)?)
    }

    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value.get() == "true")
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes every member of this name; gives the value that counted.
    pub(crate) fn take(&mut self, name: &str) -> Option<Box<RawValue>> {
        let mut taken = None;
        self.0.retain_mut(|(found, value)| {
            let is_it = found == name;
            if is_it {
                taken = Some(std::mem::take(value));
            }
            !is_it
        });
        taken
    }

    /// Puts a value in the place of the one that counted, or at the end.
    pub(crate) fn set(&mut self, name: &str, value: Box<RawValue>) {
        match self.0.iter_mut().rev().find(|(found, _)| found == name) {
            Some((_, place)) => *place = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    /// The same without all but the last member of each name: what is read here is then what every
    /// other reader reads.
    pub(crate) fn without_repeated(mut self) -> Self {
        let mut seen = BTreeSet::new();
        self.0.reverse();
        self.0.retain(|(name, _)| seen.insert(name.clone()));
        self.0.reverse();
        self
    }

    /// The members that have none of these names.
    pub(crate) fn except(&self, names: &[&str]) -> Self {
        let others = self.0.iter();
        let others = others.filter(|(name, _)| !names.contains(&name.as_str()));
        Self(others.cloned().collect())
    }

    pub(crate) fn to_raw(&self) -> Box<RawValue> {
        raw(self)
    }
}

/// A value as JSON text.
pub(crate) fn raw(value: &(impl Serialize + ?Sized)) -> Box<RawValue> {
    to_raw_value(value).expect("names are text and values are JSON already")
}

/// A value of this type, if that is what the text is.
pub(crate) fn read<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(InOrder)
    }
}

struct InOrder;

impl<'de> Visitor<'de> for InOrder {
    type Value = Members;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}
