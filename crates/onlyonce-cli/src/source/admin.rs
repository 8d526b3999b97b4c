//! A gateway's admin API, asked over HTTP.

use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use onlyonce_core::Slot;
use onlyonce_core::operate::Filter;
use serde_json::Value;

use super::SourceError;

/// An operator waits no longer for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);

pub(crate) struct Admin {
    client: reqwest::Client,
    base: String,
    token: Option<String>,
}

impl Admin {
    pub(super) fn new(base: &str, token: Option<String>) -> Self {
        Self {
            client: reqwest::Client::new(),
            base: base.trim_end_matches('/').to_owned(),
            token,
        }
    }

    pub(crate) async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        method: reqwest::Method,
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
    ) -> Result<impl Stream<Item = reqwest::Result<Bytes>> + Unpin + use<>, SourceError> {
        let unreachable = |source| SourceError::Unreachable {
            address: self.base.clone(),
            source,
        };
        let mut request = self.client.get(format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await.map_err(unreachable)?;
        if !answer.status().is_success() {
            let status = answer.status();
            return Err(SourceError::Refused(format!("the gateway said {status}")));
        }
        Ok(Box::pin(answer.bytes_stream()))
    }

    pub(super) async fn send(
        &self,
        method: reqwest::Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<String, SourceError> {
        let unreachable = |source| SourceError::Unreachable {
            address: self.base.clone(),
            source,
        };
        let mut request = self
            .client
            .request(method, format!("{}{path}", self.base))
            .timeout(ANSWER_MAX);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(body.to_string());
        }
        let answer = request.send().await.map_err(unreachable)?;
        let status = answer.status();
        let text = answer.text().await.map_err(unreachable)?;
        if status.is_success() {
            return Ok(text);
        }
        if status == http::StatusCode::NOT_FOUND {
            return Err(SourceError::Absent);
        }
        let problem: Value = serde_json::from_str(&text).unwrap_or_default();
        let detail = problem["detail"].as_str().unwrap_or("it gave no reason");
        Err(SourceError::Refused(format!(
            "the gateway said {status}: {detail}"
        )))
    }
}

/// The path that lists what `filter` lets through.
pub(super) fn listing(filter: &Filter, after: Option<Slot>, limit: usize) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("limit", &limit.to_string());
    let seconds = |age: Option<Duration>| age.map(|age| age.as_secs().to_string());
    for (name, value) in [
        ("state", filter.state.map(|state| state.to_string())),
        ("operation", filter.operation.clone()),
        ("actor", filter.actor.clone()),
        ("older_than", seconds(filter.age_min)),
        ("younger_than", seconds(filter.age_max)),
        ("after", after.map(|slot| slot.to_string())),
    ] {
        if let Some(value) = value {
            query.append_pair(name, &value);
        }
    }
    format!("/api/v1/records?{}", query.finish())
}
