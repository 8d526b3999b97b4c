//! What does not hold, gathered, so that all of it is told at once.

use std::fmt;

use crate::config::{ConfigError, Problem};

/// Something that does not hold.
#[derive(Debug)]
pub(crate) struct Finding {
    /// The path of the setting, as in `route.0.scope`.
    pub(crate) at: String,
    /// The settings that it is said of: nothing is said if one of them could not be read.
    pub(crate) about: &'static [&'static str],
    /// What is wrong, and what would be right.
    pub(crate) why: String,
}

/// Everything that was found so far.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<Finding>);

impl Findings {
    /// Notes what is wrong with a setting.
    pub(super) fn note(&mut self, at: impl Into<String>, why: impl Into<String>) {
        self.note_about(&[], at, why);
    }

    /// The same, unless one of the settings that it is said of could not be read.
    pub(super) fn note_about(
        &mut self,
        about: &'static [&'static str],
        at: impl Into<String>,
        why: impl Into<String>,
    ) {
        let (at, why) = (at.into(), why.into());
        self.0.push(Finding { at, about, why });
    }

    /// The value of a setting, or else nothing and a note of why.
    pub(super) fn take<T, E: fmt::Display>(&mut self, at: &str, made: Result<T, E>) -> Option<T> {
        made.map_err(|error| self.note(at, format!("{at}: {error}")))
            .ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The error of settings that no file gave: each place is the name of a setting.
    pub(crate) fn into_error(self) -> ConfigError {
        let problems = self.into_iter().map(|it| Problem::new(it.at, it.why));
        ConfigError::of_all(problems.collect())
    }
}

impl IntoIterator for Findings {
    type Item = Finding;
    type IntoIter = std::vec::IntoIter<Finding>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
