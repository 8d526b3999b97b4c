//! How far a long task has come: a bar on a terminal, nothing elsewhere.

use indicatif::{ProgressBar, ProgressStyle};

/// Work that goes on.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Of `all` things, more or less.
    pub(crate) fn new(what: &'static str, all: u64) -> Self {
        let bar = ProgressBar::new(all).with_message(what);
        Self::styled(bar, "{bar:30} {human_pos} of {human_len} {msg}, {eta} left")
    }

    /// Of an unknown number.
    pub(crate) fn unbounded(what: &'static str) -> Self {
        let bar = ProgressBar::no_length().with_message(what);
        Self::styled(bar, "{spinner} {human_pos} {msg}")
    }

    fn styled(bar: ProgressBar, template: &str) -> Self {
        let style = ProgressStyle::with_template(template);
        Self(bar.with_style(style.expect("the template is one of the two above")))
    }

    pub(crate) fn add(&self, done: usize) {
        self.0.inc(done as u64);
    }

    /// Does something that prints, with the bar out of its way.
    pub(crate) fn aside(&self, print: impl FnOnce()) {
        self.0.suspend(print);
    }

    /// Takes the bar away.
    pub(crate) fn end(&self) {
        self.0.finish_and_clear();
    }
}
