//! The reference of all settings, written from the schema itself, so that it cannot be wrong.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::Config;

const HEAD: &str = "\
# Configuration

A TOML file, given with `--config` or `ONLYONCE_CONFIG`. What is marked with * may also be given as
a variable (`ONLYONCE_LISTEN`) or a flag (`--listen`); a flag goes before a variable, a variable
before the file. An unknown setting is an error, and so is a value outside of its bounds. `onlyonce
config check FILE` reads a file, and the keys and certificates that it names, and says all that is
wrong, by line. SIGHUP reads the file again.

Two things are set by variables that many programs share. An upstream over https is one that the
machine trusts: its own roots, or those in `SSL_CERT_FILE`. Traces are sent over OTLP where
`OTEL_EXPORTER_OTLP_ENDPOINT` says, as http or https; `OTEL_SERVICE_NAME`,
`OTEL_EXPORTER_OTLP_HEADERS` and the others of OpenTelemetry are followed too.

This page is written from the schema by `onlyonce config docs`.
";

/// All settings, as a Markdown page.
pub fn markdown() -> String {
    let schema = schemars::schema_for!(Config).to_value();
    let mut page = HEAD.to_owned();
    table(&mut page, "Settings", &schema, true);
    let tables = schema.get("$defs").and_then(Value::as_object);
    for (name, definition) in tables.into_iter().flatten() {
        let title = if name == "Route" {
            "`[[route]]`".to_owned()
        } else {
            format!("`[{}]`", name.to_ascii_lowercase())
        };
        if definition.get("properties").is_some() {
            table(&mut page, &title, definition, false);
        }
    }
    page
}

fn table(page: &mut String, title: &str, schema: &Value, top: bool) {
    let described = schema.get("description").and_then(Value::as_str);
    let properties = schema.get("properties").and_then(Value::as_object);
    let described = described.unwrap_or_default();
    let mut line = |text: std::fmt::Arguments<'_>| {
        page.write_fmt(text)
            .expect("a string takes whatever is written");
    };
    line(format_args!("\n## {title}\n\n{described}\n\n"));
    line(format_args!(
        "| setting | value | meaning |\n|---|---|---|\n"
    ));
    for (name, property) in properties.into_iter().flatten() {
        let mark = if top && super::load::OVERRIDES.contains(&name.as_str()) {
            "*"
        } else {
            ""
        };
        let meaning = property.get("description").and_then(Value::as_str);
        let meaning = meaning.unwrap_or_default().replace('\n', " ");
        let value = value(property);
        line(format_args!("| `{name}`{mark} | {value} | {meaning} |\n"));
    }
}

/// What may be written, in words.
fn value(property: &Value) -> String {
    let Some(map) = property.as_object() else {
        return "anything".to_owned();
    };
    if let (Some(from), Some(to)) = (text(map, "x-from"), text(map, "x-to")) {
        return format!("duration, {from} to {to}");
    }
    if let (Some(from), Some(to)) = (map.get("minimum"), map.get("maximum")) {
        return format!("number, {from} to {to}");
    }
    if let Some(format) = text(map, "format") {
        return format.to_owned();
    }
    if let Some(options) = map.get("oneOf").or_else(|| map.get("enum")) {
        return one_of(options);
    }
    if let Some(reference) = text(map, "$ref") {
        return named(reference);
    }
    if let Some(options) = map.get("anyOf").and_then(Value::as_array) {
        return options.first().map(value).unwrap_or_default();
    }
    if let Some(items) = map.get("items") {
        return format!("list of {}", value(items));
    }
    match map.get("type") {
        Some(Value::String(kind)) => kind.clone(),
        Some(Value::Array(kinds)) => kinds
            .first()
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        Some(_) | None => "anything".to_owned(),
    }
}

fn text<'a>(map: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    map.get(name).and_then(Value::as_str)
}

fn one_of(options: &Value) -> String {
    let words = options.as_array().into_iter().flatten();
    let words = words.filter_map(|it| it.as_str().or_else(|| it.get("const")?.as_str()));
    words
        .map(|word| format!("`{word}`"))
        .collect::<Vec<_>>()
        .join(" or ")
}

/// A table by its name, or the words a value may be.
fn named(reference: &str) -> String {
    let name = reference.rsplit('/').next().unwrap_or_default();
    let schema = schemars::schema_for!(Config).to_value();
    let definition = &schema["$defs"][name];
    if definition.get("properties").is_some() {
        return format!("table `[{}]`", name.to_ascii_lowercase());
    }
    value(definition)
}
