//! What a request asks for, read as axum reads it; what cannot be read is a problem like the others.

use axum::extract::{self, FromRequest, FromRequestParts, Request};
use http::request::Parts;
use serde::de::DeserializeOwned;

use super::problem::Problem;

/// The parameters of the path.
pub(super) struct Path<T>(pub(super) T);

/// The query.
pub(super) struct Query<T>(pub(super) T);

/// A body in JSON.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = extract::Path::from_request_parts(parts, state).await;
        path.map(|path| Self(path.0))
            .map_err(|error| Problem::bad(error.body_text()))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = extract::Query::from_request_parts(parts, state).await;
        query
            .map(|query| Self(query.0))
            .map_err(|error| Problem::bad(error.body_text()))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let body = axum::Json::from_request(request, state).await;
        body.map(|body| Self(body.0))
            .map_err(|error| Problem::bad(error.body_text()))
    }
}
