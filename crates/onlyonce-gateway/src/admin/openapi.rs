//! The admin API, described by itself: the shapes are the types that are sent and read.

use axum::Json;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

use super::audit::{AuditPage, Purge, PurgedView, TailQuery};
use super::callers::{CallersQuery, CallersView};
use super::doubt::{DoubtQuery, SettleMany, SettledView};
use super::events::WatchQuery;
use super::health::HealthView;
use super::now::NowView;
use super::observed::ObservedView;
use super::records::{
    Extend, Find, ForgetQuery, ListQuery, RecordsPage, Resolve, ShowQuery, StatsView, SweepQuery,
    Swept,
};
use super::top::{TopQuery, TopView};
use super::upstreams::UpstreamsView;
use super::view::RecordView;

pub(super) async fn document() -> Json<Value> {
    Json(describe())
}

fn describe() -> Value {
    let mut shapes = settings().into_generator();
    let slot = json!({
        "name": "slot", "in": "path", "required": true,
        "description": "The record's address: 64 hex digits.",
        "schema": {"type": "string", "pattern": "^[0-9a-fA-F]{64}$"},
    });
    let list = parameters::<ListQuery>();
    let mut show = parameters::<ShowQuery>();
    show.push(slot.clone());
    let mut forget = parameters::<ForgetQuery>();
    forget.push(slot.clone());
    let mut paths = json!({
        "/api/v1/records": {"get": {
            "summary": "List live records",
            "parameters": list,
            "responses": answers::<RecordsPage>(&mut shapes, &[400, 503]),
        }},
        "/api/v1/records/find": {"post": {
            "summary": "Find the records of a key, in whatever scope",
            "requestBody": body::<Find>(&mut shapes),
            "responses": answers::<RecordsPage>(&mut shapes, &[400, 503]),
        }},
        "/api/v1/records/in-doubt": {"get": {
            "summary": "List the outcomes that wait for an operator's decision, the oldest first",
            "parameters": parameters::<DoubtQuery>(),
            "responses": answers::<RecordsPage>(&mut shapes, &[400, 503]),
        }},
        "/api/v1/records/settle": {"post": {
            "summary": "Settle many outcomes in doubt, or say which would be",
            "requestBody": body::<SettleMany>(&mut shapes),
            "responses": answers::<SettledView>(&mut shapes, &[400, 503]),
        }},
        "/api/v1/records/{slot}": {
            "get": {
                "summary": "Show a record",
                "parameters": show,
                "responses": answers::<RecordView>(&mut shapes, &[400, 404, 503]),
            },
            "delete": {
                "summary": "Forget a record: the next request with its key is a new one",
                "parameters": forget,
                "responses": refused(json!({"204": {"description": "Forgotten"}}), &[400, 404, 409, 503]),
            },
        },
        "/api/v1/records/{slot}/extend": {"post": {
            "summary": "Keep a record longer",
            "parameters": [slot.clone()],
            "requestBody": body::<Extend>(&mut shapes),
            "responses": answers::<RecordView>(&mut shapes, &[400, 404, 503]),
        }},
        "/api/v1/records/{slot}/resolve": {"post": {
            "summary": "Give an unknown or lapsed outcome its answer",
            "parameters": [slot],
            "requestBody": body::<Resolve>(&mut shapes),
            "responses": answers::<RecordView>(&mut shapes, &[400, 404, 409, 503]),
        }},
        "/api/v1/stats": {"get": {
            "summary": "How much is in the store",
            "responses": answers::<StatsView>(&mut shapes, &[503]),
        }},
        "/api/v1/sweep": {"post": {
            "summary": "Drop expired records now",
            "parameters": parameters::<SweepQuery>(),
            "responses": answers::<Swept>(&mut shapes, &[400, 503]),
        }},
        "/api/v1/events": {"get": {
            "summary": "What happens, as server-sent events",
            "parameters": parameters::<WatchQuery>(),
            "responses": refused(json!({"200": {"description": "One JSON object an event",
                "content": {"text/event-stream": {"schema": {"type": "string"}}}}}), &[400]),
        }},
        "/api/v1/top": {"get": {
            "summary": "The keys that are replayed, refused or waited for most",
            "parameters": parameters::<TopQuery>(),
            "responses": answers::<TopView>(&mut shapes, &[400]),
        }},
        "/api/v1/now": {"get": {
            "summary": "What happens now, and in the last ten minutes",
            "responses": answers::<NowView>(&mut shapes, &[]),
        }},
        "/api/v1/callers": {"get": {
            "summary": "The callers that are replayed, refused or in conflict most",
            "parameters": parameters::<CallersQuery>(),
            "responses": answers::<CallersView>(&mut shapes, &[400]),
        }},
        "/api/v1/upstreams": {"get": {
            "summary": "How the upstreams do, as requests have found them",
            "responses": answers::<UpstreamsView>(&mut shapes, &[]),
        }},
        "/api/v1/observed": {"get": {
            "summary": "What enforcing would have done on routes that are only observed",
            "responses": answers::<ObservedView>(&mut shapes, &[]),
        }},
        "/api/v1/health": {"get": {
            "summary": "How the gateway does: store, secrets, clock, upstreams, settings, warnings",
            "responses": answers::<HealthView>(&mut shapes, &[]),
        }},
        "/api/v1/audit": {"get": {
            "summary": "The newest entries of the audit trail, if one is kept",
            "parameters": parameters::<TailQuery>(),
            "responses": answers::<AuditPage>(&mut shapes, &[400, 404, 503]),
        }},
        "/api/v1/audit/purge": {"post": {
            "summary": "Remove every entry of an actor from the audit trail, all or none",
            "requestBody": body::<Purge>(&mut shapes),
            "responses": answers::<PurgedView>(&mut shapes, &[400, 404, 503]),
        }},
        "/metrics": {"get": {
            "summary": "Everything that is counted, for Prometheus",
            "responses": {"200": {"description": "OpenMetrics, or the older text format where only that is accepted",
                "content": {"application/openmetrics-text": {"schema": {"type": "string"}},
                    "text/plain": {"schema": {"type": "string"}}}}},
        }},
        "/healthz": {"get": {"summary": "Whether the process serves",
            "responses": {"200": {"description": "It does"}}}},
        "/readyz": {"get": {"summary": "Whether the store answers, and the upstreams if that is asked for",
            "responses": {"200": {"description": "It does"}, "503": problem("It does not")}}},
    });
    add_what_all_refuse(&mut paths);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "onlyonce admin API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Records of an onlyonce gateway, for operators.",
        },
        "paths": paths,
        "components": {
            "schemas": shapes.take_definitions(true),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    })
}

/// The parameters of a query, from its type.
fn parameters<Q: JsonSchema>() -> Vec<Value> {
    let schema = settings()
        .into_generator()
        .into_root_schema_for::<Q>()
        .to_value();
    let properties = schema.get("properties").and_then(Value::as_object).cloned();
    properties
        .into_iter()
        .flatten()
        .map(|(name, mut shape)| {
            let description = shape
                .as_object_mut()
                .and_then(|shape| shape.remove("description"));
            without_null(&mut shape);
            json!({"name": name, "in": "query", "description": description, "schema": shape})
        })
        .collect()
}

fn body<T: JsonSchema>(shapes: &mut SchemaGenerator) -> Value {
    json!({"required": true,
        "content": {"application/json": {"schema": shapes.subschema_for::<T>()}}})
}

fn answers<T: JsonSchema>(shapes: &mut SchemaGenerator, refusals: &[u16]) -> Value {
    let done = json!({"200": {"description": "Done",
        "content": {"application/json": {"schema": shapes.subschema_for::<T>()}}}});
    refused(done, refusals)
}

/// `answers` with these refusals.
fn refused(mut answers: Value, refusals: &[u16]) -> Value {
    for status in refusals {
        answers[status.to_string()] = problem("Why not");
    }
    answers
}

/// What is refused before the operation itself is looked at: see `guard`.
fn add_what_all_refuse(paths: &mut Value) {
    let paths = paths.as_object_mut().into_iter().flatten();
    for (method, operation) in paths.flat_map(|(_, it)| it.as_object_mut().into_iter().flatten()) {
        let answers = &mut operation["responses"];
        answers["401"] = problem("The token is missing or wrong");
        answers["421"] = problem("A host that this is not known by");
        answers["429"] = problem("Too many wrong tokens came from the same address");
        if method != "get" {
            answers["403"] = problem("From a web page of another origin");
            answers["415"] = problem("The body is not JSON");
        }
    }
}

fn settings() -> SchemaSettings {
    SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    })
}

/// A parameter that is not given is absent; there is no null in a query.
fn without_null(shape: &mut Value) {
    if let Some(Value::Array(kinds)) = shape.get("type")
        && let Some(kind) = kinds.iter().find(|kind| *kind != "null").cloned()
    {
        shape["type"] = kind;
    }
    if let Some(Value::Array(words)) = shape.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
}

fn problem(description: &str) -> Value {
    json!({"description": description,
    "content": {"application/problem+json": {"schema": {
        "type": "object",
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
        },
        "required": ["type", "title", "status", "detail"],
    }}}})
}
