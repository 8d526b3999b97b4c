//! The page in the older text format of Prometheus, for what does not read OpenMetrics: `promtool check
//! metrics`, and many agents.

use std::fmt::Write as _;

#[cfg(test)]
mod tests;

/// The content type of [`Metrics::text_page`](crate::Metrics::text_page).
pub const TEXT_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page of OpenMetrics in the older format: there a counter is named with its ending, and what only
/// informs is a gauge.
pub(crate) fn of(page: &str) -> String {
    let mut text = String::with_capacity(page.len());
    let mut help = None;
    for line in page.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(_), told) => help = told,
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let (ending, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    other => ("", other),
                };
                let help = help.take().unwrap_or_default();
                write!(
                    text,
                    "# HELP {name}{ending} {help}\n# TYPE {name}{ending} {kind}\n"
                )
                .expect("a string takes whatever is written");
            }
            (Some("#"), ..) => {}
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}
