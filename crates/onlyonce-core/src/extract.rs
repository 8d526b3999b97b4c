//! [`Execution`] as an argument of an axum handler.
//!
//! It is here, and not beside the layer, because only the crate of a type may give it another crate's
//! trait.

use std::convert::Infallible;
use std::fmt;

use axum_core::extract::{FromRequestParts, OptionalFromRequestParts};
use axum_core::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;

use crate::Execution;

/// Why a handler cannot get its [`Execution`]: the request had no key, or no layer saw it.
///
/// The answer is 500, since the caller did nothing wrong. Let the policy require a key, or take an
/// `Option<Execution>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoExecution;

impl fmt::Display for NoExecution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the handler needs an idempotency key: the request has none that the policy covers, or \
             the route is not within an IdempotencyLayer",
        )
    }
}

impl std::error::Error for NoExecution {}

impl IntoResponse for NoExecution {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.to_string()).into_response()
    }
}

impl<S: Sync> FromRequestParts<S> for Execution {
    type Rejection = NoExecution;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NoExecution> {
        parts.extensions.get().cloned().ok_or(NoExecution)
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Execution {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get().cloned())
    }
}
