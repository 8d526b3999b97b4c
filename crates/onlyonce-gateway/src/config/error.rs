//! What is wrong with the settings: all of it at once, each with its place.

use std::fmt;

/// Settings that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Never empty.
    problems: Vec<Problem>,
}

/// One thing that is wrong, and where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// `onlyonce.toml:12`, `ONLYONCE_LISTEN`, `--listen`, or the setting or file itself.
    pub place: String,
    /// What is wrong, and what would be right.
    pub why: String,
}

impl ConfigError {
    pub(crate) fn new(place: impl fmt::Display, why: impl Into<String>) -> Self {
        let problem = Problem::new(place, why);
        Self {
            problems: vec![problem],
        }
    }

    /// An error of all `problems`, of which there is at least one.
    pub(crate) fn of_all(problems: Vec<Problem>) -> Self {
        debug_assert!(!problems.is_empty(), "an error says what is wrong");
        Self { problems }
    }

    /// Everything that is wrong; at least one thing is.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl Problem {
    pub(crate) fn new(place: impl fmt::Display, why: impl Into<String>) -> Self {
        Self {
            place: place.to_string(),
            why: why.into(),
        }
    }

    /// The line it is on; what is on none comes last.
    pub(super) fn line(&self) -> usize {
        let line = self.place.rsplit_once(':');
        line.and_then(|(_, line)| line.parse().ok())
            .unwrap_or(usize::MAX)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.why)
    }
}

/// One line for each problem.
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, problem) in self.problems.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
