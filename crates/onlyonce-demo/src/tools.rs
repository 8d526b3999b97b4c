//! The intakes as MCP tools (D0 §7.2): `formbridge_<intake>_create`, `_set`, `_validate`, `_submit`.
//! Each is the HTTP request of that name, asked of the same router: the same rules, the same records.

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request};
use onlyonce::Policy;
use onlyonce::policy::{KeyNeed, Mark};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, JsonObject,
    ListToolsResult, MetaObject, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt as _};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tower::ServiceExt as _;

use crate::intake::Definition;

const NAME: &str = "onlyonce-demo";
/// Whom a client on stdin asks: it names no host, and records are kept apart by it.
const STDIO_HOST: HeaderValue = HeaderValue::from_static("localhost");
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A server of MCP tools for all intakes; serve it on any transport of `rmcp`.
#[derive(Clone)]
pub struct IntakeTools {
    router: Router,
    intakes: Arc<[Arc<Definition>]>,
    /// The rules of the intakes: which keys they take, and how a replay is known.
    policy: Arc<Policy>,
}

/// What can be done with an intake.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Create,
    Set,
    Validate,
    Submit,
}

impl Step {
    const ALL: [Self; 4] = [Self::Create, Self::Set, Self::Validate, Self::Submit];

    const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Set => "set",
            Self::Validate => "validate",
            Self::Submit => "submit",
        }
    }

    fn tool_name(self, intake: &Definition) -> String {
        format!("formbridge_{}_{}", intake.id, self.name())
    }

    const fn method(self) -> Method {
        match self {
            Self::Set => Method::PATCH,
            Self::Create | Self::Validate | Self::Submit => Method::POST,
        }
    }

    /// Whether it needs a key, if it takes one: what changes nothing takes none.
    fn need(self, policy: &Policy) -> Option<KeyNeed> {
        let need = policy.http.methods.need(&self.method());
        need.filter(|_| self != Self::Validate)
    }

    fn tool(self, intake: &Definition, policy: &Policy) -> Tool {
        let title = &intake.title;
        let about = match self {
            Self::Create => format!("Start a draft of {title}, with or without fields."),
            Self::Set => format!("Set fields of a draft of {title}; null takes a field away."),
            Self::Validate => {
                format!("Check whether fields, or a draft, of {title} could be submitted.")
            }
            Self::Submit => {
                format!("Submit {title}: a draft by its submissionId, or fields at once.")
            }
        };
        let mut properties = Map::new();
        properties.insert("fields".to_owned(), intake.schema());
        if self != Self::Create {
            properties.insert("submissionId".to_owned(), json!({"type": "string"}));
        }
        let need = self.need(policy);
        if need.is_some() {
            let mut key = onlyonce_mcp::key_schema();
            key["maxLength"] = json!(policy.key.bytes_max);
            properties.insert("idempotencyKey".to_owned(), key);
        }
        let mut required = Vec::new();
        if self == Self::Set {
            required.extend(["submissionId", "fields"]);
        }
        if need == Some(KeyNeed::Required) {
            required.push("idempotencyKey");
        }
        let mut schema = Map::new();
        schema.insert("type".to_owned(), json!("object"));
        schema.insert("properties".to_owned(), properties.into());
        if !required.is_empty() {
            schema.insert("required".to_owned(), json!(required));
        }
        let hints = ToolAnnotations::new().read_only(self == Self::Validate);
        Tool::new(self.tool_name(intake), about, schema).with_annotations(hints)
    }

    /// The path of the request it stands for.
    fn path(self, intake: &Definition, submission: Option<&str>) -> Option<String> {
        let of_intake = |what: &str| format!("/api/intakes/{}/{what}", intake.id);
        let of_submission = |what: &str| Some(format!("/api/submissions/{}/{what}", submission?));
        Some(match self {
            Self::Create => of_intake("submissions"),
            Self::Set => of_submission("fields")?,
            Self::Validate => of_submission("validate").unwrap_or_else(|| of_intake("validate")),
            Self::Submit => of_submission("submit").unwrap_or_else(|| of_intake("submit")),
        })
    }
}

impl IntakeTools {
    pub(crate) fn new(
        router: Router,
        intakes: impl IntoIterator<Item = Arc<Definition>>,
        policy: Policy,
    ) -> Self {
        Self {
            router,
            intakes: intakes.into_iter().collect(),
            policy: Arc::new(policy),
        }
    }

    /// The same over streamable HTTP.
    pub(crate) fn over_http(self) -> StreamableHttpService<Self, LocalSessionManager> {
        StreamableHttpService::new(
            move || Ok(self.clone()),
            Arc::default(),
            // Which hosts and origins may ask is decided for all services alike, in `hosts`.
            StreamableHttpServerConfig::default().disable_allowed_hosts(),
        )
    }

    /// Serves one client, a message a line, until it hangs up.
    pub async fn serve_on<R, W>(self, reader: R, writer: W) -> io::Result<()>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let serving = self.serve((reader, writer)).await;
        let ended = serving.map_err(io::Error::other)?.waiting().await;
        ended.map(drop).map_err(io::Error::other)
    }

    fn find(&self, tool: &str) -> Option<(&Definition, Step)> {
        let steps = self
            .intakes
            .iter()
            .flat_map(|intake| Step::ALL.map(|step| (&**intake, step)));
        steps
            .into_iter()
            .find(|(intake, step)| step.tool_name(intake) == tool)
    }

    /// The HTTP request for a call, by whoever calls.
    fn request(
        &self,
        call: CallToolRequestParams,
        caller: Option<&Parts>,
    ) -> Result<Request<Body>, ErrorData> {
        let wrong = |why: &str| ErrorData::invalid_params(why.to_owned(), None);
        let (intake, step) = self
            .find(&call.name)
            .ok_or_else(|| wrong("there is no such tool"))?;
        let mut arguments = call.arguments.unwrap_or_default();
        let submission = text(&mut arguments, "submissionId")?;
        if let Some(id) = &submission
            && !id
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            return Err(wrong("there is no such submissionId"));
        }
        let key = text(&mut arguments, "idempotencyKey")?;
        let path = step
            .path(intake, submission.as_deref())
            .ok_or_else(|| wrong("submissionId is missing"))?;

        let header = |name| caller.and_then(|parts| parts.headers.get(name)).cloned();
        let mut request = Request::builder()
            .method(step.method())
            .uri(path)
            .header(CONTENT_TYPE, "application/json")
            .header(HOST, header(HOST).unwrap_or(STDIO_HOST));
        if let Some(credential) = header(AUTHORIZATION) {
            request = request.header(AUTHORIZATION, credential);
        }
        if let Some(key) = key {
            request = request.header(&self.policy.http.key_header, key);
        }
        // Whatever else there is, the service refuses by name.
        let body = Value::from(arguments).to_string();
        request
            .body(Body::from(body))
            .map_err(|_| wrong("the idempotencyKey has characters that no key has"))
    }

    /// Whether an answer has the mark of a replay.
    fn is_replay(&self, headers: &HeaderMap) -> bool {
        let marks = self.policy.http.replay_marks.iter();
        marks
            .filter_map(|mark| match mark {
                Mark::Flag(name) => Some(name),
                Mark::Text(..) | Mark::Key(_) | Mark::Expires(_) | Mark::OriginalTime(_) => None,
            })
            .any(|name| headers.contains_key(name))
    }
}

/// A text among the arguments, taken out of them.
fn text(arguments: &mut JsonObject, name: &str) -> Result<Option<String>, ErrorData> {
    match arguments.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(ErrorData::invalid_params(
            format!("{name} is no text"),
            None,
        )),
    }
}

impl ServerHandler for IntakeTools {
    fn get_info(&self) -> ServerConfig {
        let server = Implementation::new(NAME, env!("CARGO_PKG_VERSION"));
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(server)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let intakes = self.intakes.iter();
        let tools =
            intakes.flat_map(|intake| Step::ALL.map(|step| step.tool(intake, &self.policy)));
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let request = self.request(call, context.extensions.get::<Parts>())?;
        let response = match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let (head, body) = response.into_parts();
        let body = to_bytes(body, ANSWER_BYTES_MAX)
            .await
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let said = serde_json::from_slice(&body)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let mut result = if head.status.is_success() {
            CallToolResult::structured(said)
        } else {
            CallToolResult::structured_error(said)
        };
        if self.is_replay(&head.headers) {
            let mark = ("onlyonce/replayed".to_owned(), json!(true));
            result.meta = Some(MetaObject(JsonObject::from_iter([mark])));
        }
        Ok(result.into())
    }
}
