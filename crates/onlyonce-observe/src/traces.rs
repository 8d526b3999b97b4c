//! Traces over OTLP: a span for each keyed request, within the trace it came with, and linked to the
//! trace of its original where it is a replay. Switched on and set up by the standard `OTEL_…`
//! variables; without them nothing is made.

use std::time::Duration;

use http::{HeaderMap, Method, StatusCode};
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{
    Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceId,
    TraceState, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{HeaderExtractor, HeaderInjector, HttpClient};
use opentelemetry_otlp::WithHttpConfig as _;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span};
use thiserror::Error;

const SERVICE: &str = "onlyonce";
/// Either says where traces go.
const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];

/// How long the collector may take, in milliseconds.
const TIMEOUTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
    "OTEL_EXPORTER_OTLP_TIMEOUT",
];
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why traces cannot be sent as the environment asks for it.
#[derive(Debug, Error)]
#[error("{variable}: {why}")]
pub struct TracesError {
    /// The variable that says where they go.
    pub variable: &'static str,
    /// What is wrong.
    pub why: String,
}

/// Makes spans and sends them. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

/// The span of one request.
#[derive(Debug)]
pub struct RequestSpan(Span);

/// What became of a request, for its span.
#[derive(Clone, Copy, Debug)]
pub enum Given<'a> {
    /// It got an answer of its own, or none that was given before.
    Own,
    /// It got the answer of an earlier request.
    Replay {
        /// The span that one came in, where that is known: its trace's id, a dash, its own id.
        original: Option<&'a str>,
    },
}

impl Traces {
    /// What the environment asks for, if it does. `client` makes what reaches the collector, which
    /// may take that long.
    pub fn from_env<C: HttpClient + 'static>(
        client: impl FnOnce(Duration) -> C,
    ) -> Result<Option<Self>, TracesError> {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let is_off = set("OTEL_SDK_DISABLED").is_some_and(|it| it.eq_ignore_ascii_case("true"))
            || set("OTEL_TRACES_EXPORTER").is_some_and(|it| it == "none");
        let Some(variable) = ENDPOINTS.into_iter().find(|name| set(name).is_some()) else {
            return Ok(None);
        };
        if is_off {
            return Ok(None);
        }
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_http_client(client(millis(TIMEOUTS.into_iter().find_map(set))))
            .build();
        let exporter = exporter.map_err(|error| TracesError {
            variable,
            why: error.to_string(),
        })?;
        // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES go before this name.
        let resource = if set("OTEL_SERVICE_NAME").is_some() {
            Resource::builder().build()
        } else {
            Resource::builder().with_service_name(SERVICE).build()
        };
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource)
            .build();
        let tracer = provider.tracer(SERVICE);
        Ok(Some(Self { provider, tracer }))
    }

    /// Starts the span of a request, and makes it the parent of what follows from its headers.
    pub fn begin(&self, method: &Method, route: &str, headers: &mut HeaderMap) -> RequestSpan {
        let propagator = TraceContextPropagator::new();
        let parent = propagator.extract_with_context(&Context::new(), &HeaderExtractor(headers));
        let span = self
            .tracer
            .span_builder(format!("{method} {route}"))
            .with_kind(SpanKind::Server)
            .with_attributes([
                KeyValue::new("http.request.method", method.to_string()),
                KeyValue::new("http.route", route.to_owned()),
            ])
            .start_with_context(&self.tracer, &parent);
        let within = parent.with_remote_span_context(span.span_context().clone());
        propagator.inject_context(&within, &mut HeaderInjector(headers));
        RequestSpan(span)
    }

    /// Sends what is left.
    pub async fn close(&self) {
        let provider = self.provider.clone();
        let closed = tokio::task::spawn_blocking(move || provider.shutdown()).await;
        if let Ok(Err(error)) = closed {
            tracing::warn!(target: "onlyonce", %error, "the last traces were not sent");
        }
    }
}

impl RequestSpan {
    /// Ends the span with the answer.
    pub fn end(mut self, status: StatusCode, given: Given<'_>) {
        let (is_replayed, original) = match given {
            Given::Own => (false, None),
            Given::Replay { original } => (true, original),
        };
        self.0.set_attributes([
            KeyValue::new("http.response.status_code", i64::from(status.as_u16())),
            KeyValue::new("idempotency.replayed", is_replayed),
        ]);
        if let Some(original) = original.and_then(context_of) {
            let what = KeyValue::new("idempotency.link", "original");
            self.0.add_link(original, vec![what]);
        }
        if status.is_server_error() {
            self.0.set_status(Status::error(status.to_string()));
        }
        self.0.end();
    }
}

fn millis(text: Option<String>) -> Duration {
    let millis = text.and_then(|text| text.parse().ok());
    millis.map_or(TIMEOUT, Duration::from_millis)
}

/// The span that a record was made in: its trace's id, a dash, its own id.
fn context_of(ids: &str) -> Option<SpanContext> {
    let (trace, span) = ids.split_once('-')?;
    Some(SpanContext::new(
        TraceId::from_hex(trace).ok()?,
        SpanId::from_hex(span).ok()?,
        TraceFlags::SAMPLED,
        true,
        TraceState::NONE,
    ))
}
