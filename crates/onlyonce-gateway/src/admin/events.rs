//! What happens now, as server-sent events: for a person who watches. Who is too slow misses some
//! and is told how many; the requests do not wait.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::State;
use axum::response::sse::{self, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use onlyonce_core::{About, Event, Subscriber};
use serde_json::json;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::Admin;

/// How far behind a watcher may be.
const BEHIND_MAX: usize = 1024;

/// Tells watchers what the engine says.
pub(crate) struct Events {
    told: broadcast::Sender<Arc<str>>,
}

impl Events {
    pub(crate) fn new() -> Self {
        let (told, _) = broadcast::channel(BEHIND_MAX);
        Self { told }
    }
}

impl Subscriber for Events {
    fn on_event(&self, about: &About<'_>, event: &Event) {
        // Nobody watches most of the time: then nothing is written.
        if self.told.receiver_count() == 0 {
            return;
        }
        let line = json!({
            "slot": about.slot.to_string(),
            "key": about.label().to_string(),
            "operation": about.meta.operation,
            "actor": about.meta.actor,
            "event": event.name(),
            "detail": format!("{event:?}"),
        });
        drop(self.told.send(line.to_string().into()));
    }
}

pub(super) async fn stream(
    State(admin): State<Admin>,
) -> Sse<impl Stream<Item = Result<sse::Event, Infallible>>> {
    let heard = admin.events.told.subscribe();
    let events = stream::unfold(heard, async |mut heard| {
        let event = match heard.recv().await {
            Ok(line) => sse::Event::default().data(&*line),
            Err(RecvError::Lagged(missed)) => sse::Event::default()
                .event("missed")
                .data(missed.to_string()),
            Err(RecvError::Closed) => return None,
        };
        Some((Ok(event), heard))
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}
