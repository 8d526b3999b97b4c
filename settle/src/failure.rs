//! Why a run could not be made. What it found is not one of these.

use std::fmt;

use onlyonce_testkit::servers::ServerError;

/// Why a run could not be made.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    /// What could not be done, for an error that does not say so itself.
    pub(crate) fn doing<E: fmt::Display>(what: impl fmt::Display) -> impl FnOnce(E) -> Self {
        move |error| Self(format!("cannot {what}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<ServerError> for Failure {
    fn from(error: ServerError) -> Self {
        Self(error.to_string())
    }
}
