//! The log, which JavaScript drains when its bell was rung.

use std::sync::Arc;

use napi::bindgen_prelude::*;
use napi_derive::napi;
use onlyonce_bridge::Severity;

use crate::errors::told;
use crate::signal::Signal;

/// JavaScript's names of the levels.
const LEVELS: [(Severity, &str); 4] = [
    (Severity::Debug, "debug"),
    (Severity::Info, "info"),
    (Severity::Warning, "warn"),
    (Severity::Error, "error"),
];

/// Lines on their way to JavaScript.
#[napi]
pub struct LogQueue(Arc<onlyonce_bridge::LogQueue>);

/// One line.
#[napi(object, object_from_js = false)]
pub struct LogLine {
    /// How bad it is.
    pub level: &'static str,
    /// What happened.
    pub text: String,
}

/// Sends lines of at least this level to a new queue, and none to an earlier one.
#[napi]
pub fn log_to(level: String) -> Result<LogQueue> {
    let severity = LEVELS.iter().find(|(_, name)| *name == level);
    let (severity, _) = severity.ok_or_else(|| {
        let why = format!("a level is one of debug, info, warn and error, not {level}");
        told("setting", why)
    })?;
    Ok(LogQueue(onlyonce_bridge::log_to(*severity)))
}

#[napi]
impl LogQueue {
    /// Signals `number` when there are lines, from now on.
    #[napi]
    pub fn wakes(&self, signal: &Signal, number: u32) {
        self.0.wakes(signal.waker(number));
    }

    /// The lines that have come since the last time.
    #[napi]
    pub fn drain(&self) -> Vec<LogLine> {
        let lines = self.0.drain().into_iter();
        lines
            .map(|line| LogLine {
                level: level(line.severity),
                text: line.text,
            })
            .collect()
    }

    /// Takes no more lines.
    #[napi]
    pub fn close(&self) {
        self.0.close();
    }
}

fn level(severity: Severity) -> &'static str {
    let found = LEVELS.iter().find(|(one, _)| *one == severity);
    found.map_or("error", |(_, name)| name)
}
