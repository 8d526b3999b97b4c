//! The log on stderr: one JSON object a line by the names of D0 §9.2, or text; sampled.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use onlyonce_core::{Clock as _, SystemClock};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;

use crate::config::{LogFormat, LogLevel};
use crate::settings::Settings;

/// Writes the log of this process to stderr from now on. Only the first call does something.
pub fn start(settings: &Settings) {
    let subscriber = subscriber(settings, io::stderr);
    // A second gateway in a process shares the log of the first.
    drop(tracing::subscriber::set_global_default(subscriber));
}

/// What writes the log to `writer`.
pub fn subscriber<W>(settings: &Settings, writer: W) -> impl Subscriber + Send + Sync + use<W>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let log = settings.log;
    let level = match log.level {
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
    };
    let info = Sample::one_in(log.sample_info);
    let debug = Sample::one_in(log.sample_debug);
    let sampled = dynamic_filter_fn(move |line, _| match *line.level() {
        Level::DEBUG | Level::TRACE => debug.takes(),
        Level::INFO => info.takes(),
        Level::WARN | Level::ERROR => true,
    })
    .with_max_level_hint(level);
    let ours = move |line: &Metadata<'_>| {
        let at_least = if line.target().starts_with("onlyonce") {
            level
        } else {
            level.min(LevelFilter::WARN)
        };
        *line.level() <= at_least
    };
    let ours = tracing_subscriber::filter::filter_fn(ours).with_max_level_hint(level);
    let (json, text) = match log.format {
        LogFormat::Json => {
            let lines = tracing_subscriber::fmt::layer().with_writer(writer);
            (Some(lines.event_format(Json::new())), None)
        }
        LogFormat::Text => {
            let lines = tracing_subscriber::fmt::layer().with_writer(writer);
            (None, Some(lines.with_ansi(false)))
        }
    };
    let lines = json.map(|it| it.boxed()).or(text.map(|it| it.boxed()));
    tracing_subscriber::registry().with(lines.with_filter(sampled).with_filter(ours))
}

/// Takes one in so many.
struct Sample {
    every: u64,
    seen: AtomicU64,
}

impl Sample {
    fn one_in(every: u32) -> Self {
        Self {
            every: u64::from(every.max(1)),
            seen: AtomicU64::new(0),
        }
    }

    fn takes(&self) -> bool {
        self.every == 1
            || self
                .seen
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(self.every)
    }
}

/// A line as one JSON object.
struct Json {
    clock: SystemClock,
}

impl Json {
    fn new() -> Self {
        Self {
            clock: SystemClock::new(),
        }
    }
}

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Map::new();
        line.insert("timestamp".into(), self.clock.wall().to_rfc3339().into());
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        line.insert("level".into(), level.into());
        line.insert("component".into(), "idempotency".into());
        event.record(&mut Fields(&mut line));
        writeln!(writer, "{}", Value::Object(line))
    }
}

/// The fields of a line, by the documents' names. What has a dot in its name is within the object
/// that the first part names: `actor.id`, `metadata.cached`.
struct Fields<'a>(&'a mut Map<String, Value>);

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: Value) {
        let name = match field.name() {
            "idempotency_key" => "idempotencyKey",
            "intake_id" => "intakeId",
            "submission_id" => "submissionId",
            other => other,
        };
        let value = match (name, value) {
            // A list, as far as a field can hold one.
            ("metadata.recent_errors", Value::String(list)) => {
                serde_json::from_str(&list).unwrap_or(Value::String(list))
            }
            (_, value) => value,
        };
        match name.split_once('.') {
            Some((object, member)) => {
                let object = self.0.entry(object).or_insert_with(|| Map::new().into());
                object[member] = value;
            }
            None => {
                self.0.insert(name.to_owned(), value);
            }
        }
    }
}

impl Visit for Fields<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }
}
