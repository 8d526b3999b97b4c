//! A gateway's admin API, asked over HTTP, or HTTPS where something in front of it speaks that.

use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use http::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use onlyonce_core::operate::Filter;
use onlyonce_gateway::trust::{self, HttpsConnector};
use serde_json::Value;

use super::{BoxError, SourceError};

/// An operator waits no longer for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);

pub(crate) struct Admin {
    client: Client<HttpsConnector, Full<Bytes>>,
    base: String,
    token: Option<String>,
}

impl Admin {
    pub(crate) fn new(base: &str, token: Option<String>) -> Self {
        let connector = trust::connector(HttpConnector::new());
        Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            base: base.trim_end_matches('/').to_owned(),
            token,
        }
    }

    pub(crate) async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<T, SourceError> {
        let text = self.send(method, path, body).await?;
        serde_json::from_str(&text).map_err(|_| {
            let address = &self.base;
            SourceError::Refused(format!(
                "{address} does not answer like an onlyonce gateway"
            ))
        })
    }

    /// What comes from `path`, for as long as it comes.
    pub(crate) async fn stream(
        &self,
        path: &str,
    ) -> Result<impl Stream<Item = hyper::Result<Bytes>> + Unpin + use<>, SourceError> {
        let request = self.request(Method::GET, path, None)?;
        let answer = self.client.request(request).await;
        let answer = answer.map_err(|error| self.unreachable(error))?;
        if !answer.status().is_success() {
            let status = answer.status();
            return Err(SourceError::Refused(format!("the gateway said {status}")));
        }
        Ok(answer.into_body().into_data_stream())
    }

    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<String, SourceError> {
        let request = self.request(method, path, body)?;
        let in_time = tokio::time::timeout(ANSWER_MAX, self.exchange(request)).await;
        let (status, text) = in_time
            .map_err(BoxError::from)
            .flatten()
            .map_err(|error| self.unreachable(error))?;
        if status.is_success() {
            return Ok(text);
        }
        if status == StatusCode::NOT_FOUND {
            return Err(SourceError::Absent);
        }
        let problem: Value = serde_json::from_str(&text).unwrap_or_default();
        let detail = problem["detail"].as_str().unwrap_or("it gave no reason");
        Err(SourceError::Refused(format!(
            "the gateway said {status}: {detail}"
        )))
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, String), BoxError> {
        let (head, body) = self.client.request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok((head.status, String::from_utf8_lossy(&body).into_owned()))
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Request<Full<Bytes>>, SourceError> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header(
                USER_AGENT,
                concat!("onlyonce-cli/", env!("CARGO_PKG_VERSION")),
            );
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = body.map_or_else(String::new, |body| body.to_string());
        request.body(Full::from(body)).map_err(|error| {
            let address = &self.base;
            SourceError::Wrong(format!(
                "no request can be made of --admin {address} and this token: {error}"
            ))
        })
    }

    fn unreachable(&self, source: impl Into<BoxError>) -> SourceError {
        SourceError::Unreachable {
            address: self.base.clone(),
            source: source.into(),
        }
    }
}

/// The path that lists what `filter` lets through.
pub(super) fn listing(filter: &Filter, sort: &str, after: Option<&str>, limit: usize) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("limit", &limit.to_string());
    let seconds = |age: Option<Duration>| age.map(|age| age.as_secs().to_string());
    for (name, value) in [
        ("state", filter.state.map(|state| state.to_string())),
        ("operation", filter.operation.clone()),
        ("actor", filter.actor.clone()),
        ("older_than", seconds(filter.age_min)),
        ("younger_than", seconds(filter.age_max)),
        ("sort", Some(sort.to_owned())),
        ("after", after.map(str::to_owned)),
    ] {
        if let Some(value) = value {
            query.append_pair(name, &value);
        }
    }
    format!("/api/v1/records?{}", query.finish())
}
