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
`OTEL_EXPORTER_OTLP_HEADERS` and the others of OpenTelemetry are followed too. The services of
`onlyonce demo` are traced by the same variables.

This page is written from the schema by `onlyonce config docs`.

## Contracts

What a key promises is a contract: a profile, and `[rules]` that differ from it, for all requests or
for a route. `onlyonce profiles` lists the profiles, `onlyonce profiles show NAME` prints one whole,
with every value. A contract of your own has a base and says how it differs:

```toml
upstream = \"http://127.0.0.1:3000\"
profile = \"shop\"

[profiles.shop]
base = \"stripe\"
about = \"what our checkout promises\"
ttl = \"7d\"
scope = [\"trusted-header:x-account\"]

[profiles.shop.refusals]
mismatch = { status = 409 }
```

The settings of a general middleware, each with the name it has in many of them:

```toml
";
const TAIL: &str = "\
```
";

/// A worked example: the settings of a middleware's own configuration, under our names.
pub(super) const EXAMPLE: &str = "\
upstream = \"http://127.0.0.1:3000\"
profile = \"middleware\"
store = \"redis://127.0.0.1:6379\"             # adapter: memory:, file:, redis:, postgres:, mysql:, sqlite:

[rules]
methods = [\"POST\", \"PUT\", \"PATCH\", \"DELETE\"] # enabled_methods; add \"GET\" to cover it too
key = \"required\"                              # a missing key is a 400
key_header = \"idempotency-key\"
ttl = \"24h\"                                   # default_ttl_s: 86400
ttl_header = { name = \"idempotency-ttl\", unit = \"seconds\", min = \"1m\", max = \"7d\" }
wait = \"0s\"                                   # wait_policy: \"no-wait\"; \"30s\" waits
execution_max = \"30s\"                         # execution_timeout_s: 30
request_bytes_max = 1048576                    # max_body_bytes
response_bytes_max = 1048576
drop_headers = [\"set-cookie\"]                 # besides Date, Server, Connection, …
replay_marks = [\"idempotent-replay: true\", \"idempotency-key: {key}\"]

[rules.fingerprint]                            # what makes two requests the same
headers = [\"x-tenant\"]                        # canonical_headers
body = \"canonical\"                            # body_digest

[rules.stored]                                 # every answer, failures too
from = 100
below = 1000
except = []

[rules.refusals]
in-progress = { status = 202 }                 # or 409, or 425
mismatch = { status = 409 }
bad-key = { status = 422 }
";

/// All settings, as a Markdown page.
pub fn markdown() -> String {
    let schema = schemars::schema_for!(Config).to_value();
    let mut page = [HEAD, EXAMPLE, TAIL].concat();
    table(&mut page, "Settings", &schema, true);
    let tables = schema.get("$defs").and_then(Value::as_object);
    for (name, definition) in tables.into_iter().flatten() {
        let title = title(name);
        if definition.get("properties").is_some() {
            table(&mut page, &title, definition, false);
        }
    }
    page
}

/// How a table of settings is written in a file.
fn title(name: &str) -> String {
    match name {
        "Reconcile" => "`reconcile` of a route".to_owned(),
        "Route" => "`[[route]]`".to_owned(),
        "Mcp" => "`[route.mcp]`".to_owned(),
        "Fingerprint" | "Stored" => format!("`[rules.{}]`", name.to_ascii_lowercase()),
        "Refused" => "A row of `[rules.refusals]`".to_owned(),
        "TtlHeader" => "`ttl_header`".to_owned(),
        "Derive" => "`derive`".to_owned(),
        "KeyTimes" => "`key_time`".to_owned(),
        "BodyMembers" => "`body_marks`".to_owned(),
        _ => format!("`[{}]`", name.to_ascii_lowercase()),
    }
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
        let options = options.iter().filter(|it| it["type"] != "null");
        return options.map(value).collect::<Vec<_>>().join(" or ");
    }
    if let Some(word) = text(map, "const") {
        return format!("`{word}`");
    }
    if let Some(row) = map.get("additionalProperties").filter(|it| it.is_object()) {
        return format!("table of {}", value(row));
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
        return match name {
            "Refused" => "rows".to_owned(),
            "TtlHeader" | "Derive" | "KeyTimes" | "BodyMembers" => "table".to_owned(),
            _ => format!(
                "table {}",
                title(name).replace("[[", "[").replace("]]", "]")
            ),
        };
    }
    value(definition)
}
