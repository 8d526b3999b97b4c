//! Everything the engine says, kept.

use std::sync::{Mutex, PoisonError};

use onlyonce_core::{About, Event, Subscriber};

/// A subscriber that forgets nothing.
#[derive(Default)]
pub(crate) struct Recorder {
    events: Mutex<Vec<Event>>,
    lines: Mutex<Vec<String>>,
}

impl Subscriber for Recorder {
    fn on_event(&self, about: &About<'_>, event: &Event) {
        let line = format!(
            "{} {:?} {:?} {event:?}",
            about.label(),
            about.slot,
            about.meta
        );
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(line);
        self.events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(event.clone());
    }
}

impl Recorder {
    /// Every event so far.
    pub(crate) fn all(&self) -> Vec<Event> {
        self.events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// How many events pass.
    pub(crate) fn count(&self, passes: impl Fn(&Event) -> bool) -> usize {
        self.all().iter().filter(|event| passes(event)).count()
    }

    /// All that was said, with what it was about, as one would print it.
    pub(crate) fn printed(&self) -> String {
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .join("\n")
    }
}
