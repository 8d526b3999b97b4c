//! What a handler says: a reply, whose JSON is stored and sent alike, or a fault, which is put
//! into the envelope of the service's profile, as the layer's own refusals are.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use onlyonce::policy::Envelope;
use onlyonce::{Execution, StoreError};
use serde_json::{Value, json};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// An answer to store and to send.
#[derive(Debug)]
pub(crate) struct Reply {
    status: StatusCode,
    body: Value,
    /// The id of what was made.
    made: Option<String>,
}

impl Reply {
    pub(crate) fn new(status: StatusCode, body: Value) -> Self {
        Self {
            status,
            body,
            made: None,
        }
    }

    pub(crate) fn ok(body: Value) -> Self {
        Self::new(StatusCode::OK, body)
    }

    /// Names what was made, for operators.
    pub(crate) fn made(mut self, id: &str) -> Self {
        self.made = Some(id.to_owned());
        self
    }

    /// As it is kept for retries.
    pub(crate) fn stored(&self, took: Duration) -> Arc<onlyonce::Response> {
        Arc::new(onlyonce::Response {
            headers: HeaderMap::from_iter([(CONTENT_TYPE, JSON)]),
            resource: self.made.clone(),
            took,
            ..onlyonce::Response::new(self.status, self.body.to_string())
        })
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let head = (self.status, [(CONTENT_TYPE, JSON)]);
        (head.0, head.1, self.body.to_string()).into_response()
    }
}

/// A no, or trouble. Nothing was changed.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    status: StatusCode,
    code: &'static str,
    message: String,
    /// What is wrong in detail.
    details: Option<Value>,
    /// Whether the same request may fare better later; then its answer must not be kept.
    passing: bool,
}

impl Fault {
    /// A no that stays one, however often the request is repeated.
    pub(crate) fn no(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            details: None,
            passing: false,
        }
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::no(StatusCode::NOT_FOUND, "not_found", message).passing()
    }

    /// The claim was lost to another process: its answer counts, and the engine gives it.
    pub(crate) fn overtaken() -> Self {
        Self::trouble("another process took this request over")
    }

    /// The database does not answer.
    pub(crate) fn down() -> Self {
        Self::trouble("the database does not answer; retry with the same key")
    }

    fn trouble(message: impl Into<String>) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self::no(status, "service_unavailable", message).passing()
    }

    /// The same, with what is wrong in detail.
    pub(crate) fn with(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// The same, but another request can change it: it is not kept.
    pub(crate) fn passing(mut self) -> Self {
        self.passing = true;
        self
    }

    pub(crate) fn worded(self, envelope: Envelope) -> Response {
        let retryable = self.passing && self.status.is_server_error();
        let (code, message) = (self.code, &self.message);
        let mut body = match envelope {
            Envelope::Problem => json!({
                "type": format!("urn:onlyonce:problem:{code}"),
                "title": code,
                "status": self.status.as_u16(),
                "detail": message,
                "retryable": retryable,
            }),
            Envelope::OkError => json!({
                "ok": false,
                "error": {"type": code, "message": message, "retryable": retryable},
            }),
            Envelope::SuccessError => json!({
                "success": false,
                "error": {"code": code, "message": message, "retryable": retryable},
            }),
            Envelope::CodeError => json!({
                "error": {"code": code.to_ascii_uppercase(), "message": message},
            }),
            Envelope::TypeError => json!({"error": {"type": code, "message": message}}),
            Envelope::FlatError => json!({"type": code, "code": code, "message": message}),
            Envelope::ErrorList => json!({
                "errors": [{"category": code, "code": code, "detail": message}],
            }),
            Envelope::NamedError => json!({
                "name": code,
                "message": message,
                "details": [{"issue": code, "description": message}],
            }),
            Envelope::StatusError => json!({
                "error": {"code": self.status.as_u16(), "message": message, "status": code},
            }),
        };
        if let Some(details) = self.details {
            let place = if body["error"].is_object() {
                &mut body["error"]
            } else {
                &mut body
            };
            place["details"] = details;
        }
        Reply::new(self.status, body).into_response()
    }
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        tracing::error!(target: "onlyonce_demo", %error, "the database failed");
        Self::down()
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        tracing::error!(target: "onlyonce_demo", %error, "the store failed");
        Self::down()
    }
}

/// Worded later, by [`word`]: a handler does not know its service's envelope.
impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Words the faults of a service. Goes inside its idempotency layer: what is stored is worded.
pub(crate) async fn word(
    State(envelope): State<Envelope>,
    execution: Option<Extension<Execution>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = next.run(request).await;
    let Some(fault) = response.extensions_mut().remove::<Fault>() else {
        return response;
    };
    if let Some(Extension(execution)) = execution.filter(|_| fault.passing) {
        execution.do_not_store();
    }
    fault.worded(envelope)
}
