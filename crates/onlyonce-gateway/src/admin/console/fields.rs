//! What a form says, in the query of its page or in a body. A field that was left empty was not filled
//! in.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use form_urlencoded::Serializer;
use http::request::Parts;
use serde_json::Value;

use super::super::problem::Problem;

/// The fields of a form, in their order.
#[derive(Debug, Default)]
pub(super) struct Fields(Vec<(String, String)>);

/// Fields in a query.
pub(super) struct Asked(pub(super) Fields);

/// Fields in a body.
pub(super) struct Sent(pub(super) Fields);

impl Fields {
    fn parse(bytes: &[u8]) -> Self {
        let pairs = form_urlencoded::parse(bytes).into_owned();
        Self(pairs.filter(|(_, value)| !value.is_empty()).collect())
    }

    /// Every value of a field.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let named = self.0.iter().filter(move |(it, _)| it == name);
        named.map(|(_, value)| value.as_str())
    }

    /// The value of a field as it was typed.
    pub(super) fn raw(&self, name: &str) -> Option<&str> {
        let mut named = self.0.iter().filter(|(it, _)| it == name);
        named.next().map(|(_, value)| value.as_str())
    }

    /// The value of a field, without the blanks around it that pasting leaves.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let text = self.raw(name).map(str::trim);
        text.filter(|text| !text.is_empty())
    }

    /// The same as JSON.
    pub(super) fn value(&self, name: &str) -> Value {
        self.text(name).map_or(Value::Null, Value::from)
    }

    /// A field that is a number.
    pub(super) fn number(&self, name: &str) -> Result<Option<u32>, Problem> {
        let number = self.text(name).map(str::parse).transpose();
        number.map_err(|_| Problem::bad(format!("`{name}` is not a whole number")))
    }

    /// These fields as a query, as far as they were filled in.
    pub(super) fn query<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> String {
        let mut query = Serializer::new(String::new());
        for name in names {
            if let Some(text) = self.text(name) {
                query.append_pair(name, text);
            }
        }
        query.finish()
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Asked {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let query = parts.uri.query().unwrap_or_default();
        Ok(Self(Fields::parse(query.as_bytes())))
    }
}

impl<S: Send + Sync> FromRequest<S> for Sent {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|error| Problem::new(error.status(), error.body_text()))?;
        Ok(Self(Fields::parse(&body)))
    }
}
