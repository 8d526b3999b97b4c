//! What happens now, told to whoever watches. Who is too slow misses some and is told how many; the
//! requests do not wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onlyonce_core::{About, Clock as _, Event, Subscriber, SystemClock};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

mod fields;

/// How far behind a watcher may be.
const BEHIND_MAX: usize = 1024;

/// Something that happened.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct EventLine {
    /// When.
    pub at: String,
    /// The record's address, as 64 hex digits.
    pub slot: String,
    /// A harmless start of the key, and of its digest.
    pub key: String,
    /// The route or job.
    pub operation: String,
    /// Who asked, where that is known.
    pub actor: Option<String>,
    /// What happened, in a word.
    pub event: String,
    /// What else there is to say, for people.
    pub detail: String,
    /// The same for programs: one member for each thing that is known. Times end in `_ms`.
    #[serde(default)]
    pub fields: Map<String, Value>,
}

/// Tells watchers what an engine says.
pub struct Feed {
    clock: SystemClock,
    told: broadcast::Sender<Arc<EventLine>>,
    /// How many watch: the channel knows too, but only behind its lock.
    watchers: AtomicUsize,
}

/// Somebody who watches.
pub struct Watcher {
    feed: Arc<Feed>,
    heard: broadcast::Receiver<Arc<EventLine>>,
}

/// How many events a watcher was too slow for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed(pub u64);

impl Feed {
    pub(crate) fn new() -> Self {
        let (told, _) = broadcast::channel(BEHIND_MAX);
        Self {
            clock: SystemClock::new(),
            told,
            watchers: AtomicUsize::new(0),
        }
    }

    /// Watches from now on.
    pub fn watch(self: &Arc<Self>) -> Watcher {
        let heard = self.told.subscribe();
        self.watchers.fetch_add(1, Ordering::Relaxed);
        Watcher {
            feed: Arc::clone(self),
            heard,
        }
    }
}

impl Watcher {
    /// The next event, or how many were missed before it; nothing once no more will come.
    pub async fn next(&mut self) -> Option<Result<Arc<EventLine>, Missed>> {
        match self.heard.recv().await {
            Ok(line) => Some(Ok(line)),
            Err(RecvError::Lagged(missed)) => Some(Err(Missed(missed))),
            Err(RecvError::Closed) => None,
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.feed.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Subscriber for Feed {
    fn on_event(&self, about: &About<'_>, event: &Event) {
        // Nobody watches most of the time: then nothing is written.
        if self.watchers.load(Ordering::Relaxed) == 0 {
            return;
        }
        let fields = fields::of(event);
        let line = EventLine {
            at: self.clock.wall().to_rfc3339(),
            slot: about.slot.to_string(),
            key: about.label().to_string(),
            operation: about.meta.operation.to_string(),
            actor: about.meta.actor.as_deref().map(str::to_owned),
            event: event.name().to_owned(),
            detail: fields::text(&fields),
            fields,
        };
        drop(self.told.send(Arc::new(line)));
    }
}
