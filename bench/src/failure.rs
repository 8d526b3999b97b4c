//! Why something could not be measured.

use std::fmt;

use onlyonce_core::StoreError;
use onlyonce_stores::OpenError;
use onlyonce_testkit::servers::ServerError;

/// Why something could not be measured. A goal that is missed is not one of these.
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

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        Self(error.to_string())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self(error.to_string())
    }
}
