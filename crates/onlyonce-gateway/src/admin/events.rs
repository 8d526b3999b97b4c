//! What happens now, as server-sent events: for a person who watches.

use std::convert::Infallible;

use axum::extract::State;
use axum::response::sse::{self, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use onlyonce_observe::{EventLine, Missed};
use schemars::JsonSchema;
use serde::Deserialize;

use super::Admin;
use super::extract::Query;

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

pub(super) async fn stream(
    State(admin): State<Admin>,
    Query(query): Query<WatchQuery>,
) -> Sse<impl Stream<Item = Result<sse::Event, Infallible>>> {
    let watcher = admin.observers.feed().watch();
    let events = stream::unfold((watcher, query), async |(mut watcher, query)| {
        let event = loop {
            match watcher.next().await? {
                Ok(line) if !query.admits(&line) => {}
                Ok(line) => {
                    let line = serde_json::to_string(&*line).unwrap_or_default();
                    break sse::Event::default().data(line);
                }
                Err(Missed(missed)) => {
                    let missed = missed.to_string();
                    break sse::Event::default().event("missed").data(missed);
                }
            }
        };
        Some((Ok(event), (watcher, query)))
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}
