//! The log, for a thread of Python's that hands it to `logging`.

use std::sync::Arc;

use onlyonce_bridge::Severity;
use pyo3::prelude::*;

#[pyclass(frozen)]
pub(crate) struct LogQueue(Arc<onlyonce_bridge::LogQueue>);

/// Python's numbers of the levels.
const LEVELS: [(Severity, u8); 4] = [
    (Severity::Debug, 10),
    (Severity::Info, 20),
    (Severity::Warning, 30),
    (Severity::Error, 40),
];

fn level(severity: Severity) -> u8 {
    let found = LEVELS.iter().find(|(one, _)| *one == severity);
    found.map_or(40, |(_, level)| *level)
}

/// Sends lines of at least `level` to a new queue.
#[pyfunction]
pub(crate) fn log_to(level: u8) -> LogQueue {
    let severity = LEVELS.iter().find(|(_, number)| *number >= level);
    let at_least = severity.map_or(Severity::Error, |(severity, _)| *severity);
    LogQueue(onlyonce_bridge::log_to(at_least))
}

#[pymethods]
impl LogQueue {
    /// Waits for lines; `None` once it is closed.
    fn take(&self, py: Python<'_>) -> Option<Vec<(u8, String)>> {
        let lines = py.detach(|| self.0.take())?;
        Some(
            lines
                .into_iter()
                .map(|line| (level(line.severity), line.text))
                .collect(),
        )
    }

    fn close(&self) {
        self.0.close();
    }
}
