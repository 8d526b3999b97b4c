//! What happens now, as server-sent events: for a person who watches. Who is too slow misses some
//! and is told how many; the requests do not wait.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::State;
use axum::response::sse::{self, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use onlyonce_core::{About, Clock as _, Event, Subscriber, SystemClock};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::Admin;
use super::extract::Query;

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
    /// What else there is to say.
    pub detail: String,
}

/// Which events to send. Empty sends all.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WatchQuery {
    /// Only these, by their words: `replayed,refused`.
    event: Option<String>,
    /// Only of this route or job.
    operation: Option<String>,
    /// Only by this actor.
    actor: Option<String>,
    /// Only of slots that start like this.
    slot: Option<String>,
}

impl WatchQuery {
    fn admits(&self, line: &EventLine) -> bool {
        let same = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        };
        let mut events = self.event.as_deref().unwrap_or_default().split(',');
        (self.event.is_none() || events.any(|wanted| wanted == line.event))
            && same(&self.operation, Some(&line.operation))
            && same(&self.actor, line.actor.as_deref())
            && self
                .slot
                .as_ref()
                .is_none_or(|start| line.slot.starts_with(start.as_str()))
    }
}

/// Tells watchers what the engine says.
pub(crate) struct Events {
    clock: SystemClock,
    told: broadcast::Sender<Arc<EventLine>>,
    /// How many watch: the channel knows too, but only behind its lock.
    watchers: AtomicUsize,
}

/// Somebody who watches.
struct Watcher {
    events: Arc<Events>,
    heard: broadcast::Receiver<Arc<EventLine>>,
}

impl Events {
    pub(crate) fn new() -> Self {
        let (told, _) = broadcast::channel(BEHIND_MAX);
        Self {
            clock: SystemClock::new(),
            told,
            watchers: AtomicUsize::new(0),
        }
    }
}

impl Watcher {
    fn of(events: &Arc<Events>) -> Self {
        let heard = events.told.subscribe();
        events.watchers.fetch_add(1, Ordering::Relaxed);
        Self {
            events: Arc::clone(events),
            heard,
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.events.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Subscriber for Events {
    fn on_event(&self, about: &About<'_>, event: &Event) {
        // Nobody watches most of the time: then nothing is written.
        if self.watchers.load(Ordering::Relaxed) == 0 {
            return;
        }
        let line = EventLine {
            at: self.clock.wall().to_rfc3339(),
            slot: about.slot.to_string(),
            key: about.label().to_string(),
            operation: about.meta.operation.to_string(),
            actor: about.meta.actor.as_deref().map(str::to_owned),
            event: event.name().to_owned(),
            detail: format!("{event:?}"),
        };
        drop(self.told.send(Arc::new(line)));
    }
}

pub(super) async fn stream(
    State(admin): State<Admin>,
    Query(query): Query<WatchQuery>,
) -> Sse<impl Stream<Item = Result<sse::Event, Infallible>>> {
    let watcher = Watcher::of(&admin.observers.events);
    let events = stream::unfold((watcher, query), async |(mut watcher, query)| {
        let event = loop {
            match watcher.heard.recv().await {
                Ok(line) if !query.admits(&line) => {}
                Ok(line) => {
                    let line = serde_json::to_string(&*line).unwrap_or_default();
                    break sse::Event::default().data(line);
                }
                Err(RecvError::Lagged(missed)) => {
                    let missed = missed.to_string();
                    break sse::Event::default().event("missed").data(missed);
                }
                Err(RecvError::Closed) => return None,
            }
        };
        Some((Ok(event), (watcher, query)))
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}
