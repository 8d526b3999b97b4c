//! Traces: a span for each keyed request in the trace it came with, told to the service behind, and
//! linked from every replay. Received by a collector that decodes what is really sent.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::demo::process::{Clock, Process};
use crate::support::gateway::{Running, service};
use crate::support::secured::Secured;

#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<Span>>>,
    services: Arc<Mutex<Vec<String>>>,
}

impl Collector {
    async fn start(&self) -> String {
        let app = Router::new()
            .route("/v1/traces", post(take))
            .with_state(self.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(axum::serve(listener, app).into_future());
        address
    }
}

async fn take(State(collector): State<Collector>, body: Bytes) -> &'static str {
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    for resource in request.resource_spans {
        let attributes = resource.resource.unwrap().attributes;
        let named = attributes.into_iter().filter(|it| it.key == "service.name");
        for attribute in named {
            if let Some(Value::StringValue(name)) = attribute.value.unwrap().value {
                collector.services.lock().unwrap().push(name);
            }
        }
        for scope in resource.scope_spans {
            collector.spans.lock().unwrap().extend(scope.spans);
        }
    }
    ""
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attribute(span: &Span, name: &str) -> Option<Value> {
    let mut attributes = span.attributes.iter();
    attributes.find(|it| it.key == name)?.value.clone()?.value
}

const FIRST: &str = "0af7651916cd43dd8448eb211c80319c";
const SECOND: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

#[tokio::test]
async fn a_replay_is_linked_to_the_trace_of_its_original() {
    let collector = Collector::default();
    let (upstream, work) = service().await;
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", collector.start().await)];
    let settings = "store = \"memory:\"\n[[route]]\nmatch = \"POST /{what}\"\n";
    let folder = TempDir::new().unwrap();
    let mut gateway = Running::start_with(&upstream, settings, &variables, folder).await;

    for trace in [FIRST, SECOND] {
        let request = gateway.request("/orders", "key");
        let request = request.header("traceparent", format!("00-{trace}-b7ad6b7169203331-01"));
        assert_eq!(request.send().await.unwrap().status(), 200);
    }
    let unkeyed = reqwest::Client::new().post(format!("{}/orders", gateway.url));
    let unkeyed = unkeyed.header("traceparent", format!("00-{FIRST}-00f067aa0ba902b7-01"));
    unkeyed.send().await.unwrap();
    gateway.signal("-TERM").await;
    assert!(gateway.child.wait().await.unwrap().success());

    let spans = collector.spans.lock().unwrap().clone();
    let [original, replay] = &spans[..] else {
        panic!("{spans:?}");
    };
    assert_eq!(collector.services.lock().unwrap()[0], "onlyonce");
    assert_eq!(original.name, "POST /{what}");
    assert_eq!(
        (hex(&original.trace_id), hex(&replay.trace_id)),
        (FIRST.into(), SECOND.into())
    );
    for span in [original, replay] {
        assert_eq!(hex(&span.parent_span_id), "b7ad6b7169203331");
        assert_eq!(
            attribute(span, "http.response.status_code"),
            Some(Value::IntValue(200))
        );
    }
    assert_eq!(original.links, []);
    assert_eq!(
        attribute(original, "idempotency.replayed"),
        Some(Value::BoolValue(false))
    );
    assert_eq!(
        attribute(replay, "idempotency.replayed"),
        Some(Value::BoolValue(true))
    );
    let [link] = &replay.links[..] else {
        panic!("{replay:?}");
    };
    assert_eq!(
        (&link.trace_id, &link.span_id),
        (&original.trace_id, &original.span_id)
    );
    let told = work.traceparents.lock().unwrap().clone();
    let within = format!("00-{FIRST}-{}-01", hex(&original.span_id));
    let untouched = format!("00-{FIRST}-00f067aa0ba902b7-01");
    assert_eq!(told, [within, untouched]);
}

/// A gateway with these variables, for one keyed request; it has sent what it has to say.
async fn serve_one(upstream: &str, variables: &[(&str, String)]) {
    let folder = TempDir::new().unwrap();
    let settings = "store = \"memory:\"\n";
    let mut gateway = Running::start_with(upstream, settings, variables, folder).await;
    assert_eq!(gateway.send("/orders", "key", "{}").await, 200);
    gateway.signal("-TERM").await;
    assert!(gateway.child.wait().await.unwrap().success());
}

#[tokio::test]
async fn a_request_without_a_trace_starts_one_and_nothing_is_told_without_a_collector() {
    let collector = Collector::default();
    let (upstream, work) = service().await;
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.start().await);
    let off = ("OTEL_SDK_DISABLED", "true".to_owned());
    for (variables, spans) in [
        (vec![endpoint.clone()], 1),
        (vec![endpoint, off], 1),
        (vec![], 1),
    ] {
        serve_one(&upstream, &variables).await;
        assert_eq!(collector.spans.lock().unwrap().len(), spans);
    }

    let spans = collector.spans.lock().unwrap();
    assert_eq!(spans[0].parent_span_id, b"");
    let told = work.traceparents.lock().unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains(&hex(&spans[0].trace_id)));
}

#[tokio::test]
async fn a_collector_is_reached_over_https() {
    let collector = Collector::default();
    let secured = Secured::start(&collector.start().await).await;
    let (upstream, _) = service().await;
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", secured.url.clone()),
        secured.trusted(),
    ];

    serve_one(&upstream, &variables).await;

    assert_eq!(collector.spans.lock().unwrap().len(), 1);
}

/// The requests of D0, D2 and D3 to their services, by the name of their span.
fn of_documents(demo: &Process) -> [(&'static str, reqwest::RequestBuilder); 3] {
    let intake = "/api/intakes/vendor-onboarding/submit";
    let form = format!("{}/api/forms/test-form/submit", demo.url());
    let derived = json!({"contextId": "test-form:1", "formData": {"name": "Ada"}});
    let uuid = "550e8400-e29b-41d4-a716-446655440000";
    let user = demo.request("/api/v1/users", uuid, &json!({"email": "ada@example.com"}));
    let company = json!({"fields": {"companyName": "Acme"}});
    [
        (
            "POST /api/intakes/vendor-onboarding/submit",
            demo.request(intake, "abc123", &company),
        ),
        (
            "POST /api/forms/{form}/submit",
            reqwest::Client::new()
                .post(form)
                .header("content-type", "application/json")
                .body(derived.to_string()),
        ),
        (
            "POST /api/v1/users",
            user.header("Authorization", format!("Bearer {}", demo.token())),
        ),
    ]
}

#[tokio::test]
async fn a_replay_of_the_documents_services_is_linked_to_its_original() {
    let collector = Collector::default();
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", collector.start().await)];
    let folder = TempDir::new().unwrap();
    let demo = Process::start_in(folder.path(), Clock::RIGHT, &[], &variables).await;

    for trace in [FIRST, SECOND] {
        for (name, request) in of_documents(&demo) {
            let parent = format!("00-{trace}-b7ad6b7169203331-01");
            let answer = request.header("traceparent", parent).send().await.unwrap();
            assert!(answer.status().is_success(), "{name}: {answer:?}");
        }
    }
    let named: Vec<_> = of_documents(&demo).into_iter().map(|it| it.0).collect();
    assert!(demo.interrupt().await);

    let spans = collector.spans.lock().unwrap().clone();
    for name in named {
        let of_name: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
        let [original, replay] = of_name[..] else {
            panic!("{name}: {spans:?}");
        };
        assert_eq!(
            (hex(&original.trace_id), hex(&replay.trace_id)),
            (FIRST.into(), SECOND.into())
        );
        assert_eq!(original.links, [], "{name}");
        let [link] = &replay.links[..] else {
            panic!("{replay:?}");
        };
        assert_eq!(
            (&link.trace_id, &link.span_id),
            (&original.trace_id, &original.span_id)
        );
        assert_eq!(
            attribute(replay, "idempotency.replayed"),
            Some(Value::BoolValue(true))
        );
    }
}
