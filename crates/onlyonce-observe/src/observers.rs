//! Who hears what happens: metrics, audit, hot keys, watchers, and what tells of keys that end.

use std::sync::Arc;

use onlyonce_core::event::TracingSubscriber;
use onlyonce_core::{About, Deed, Event, Operated, Record, Slot, Subscriber};
use onlyonce_metrics::{Metrics, StoreWatch};
use tracing::Level;

use crate::audit::{Audit, Trail};
use crate::ends::Ends;
use crate::feed::Feed;
use crate::hot::HotKeys;

/// Everyone who listens.
#[derive(Clone)]
pub struct Observers {
    metrics: Arc<Metrics>,
    feed: Arc<Feed>,
    hot: Arc<HotKeys>,
    audit: Option<Arc<Audit>>,
}

impl Observers {
    pub(crate) fn new(store: StoreWatch, audit: Option<Audit>) -> Self {
        Self {
            metrics: Arc::new(Metrics::new(store)),
            feed: Arc::new(Feed::new()),
            hot: Arc::default(),
            audit: audit.map(Arc::new),
        }
    }

    /// The metrics.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// What happens now, for people who watch.
    pub fn feed(&self) -> &Arc<Feed> {
        &self.feed
    }

    /// The keys that are repeated most.
    pub fn hot(&self) -> &HotKeys {
        &self.hot
    }

    /// The audit trail, where one is written.
    pub fn trail(&self) -> Option<Trail> {
        self.audit.as_ref().map(|audit| Trail::at(audit.path()))
    }

    /// Whom an engine shall tell, besides the log.
    pub(crate) fn subscribers(&self) -> (Vec<Arc<dyn Subscriber>>, Option<Arc<Ends>>) {
        let mut all: Vec<Arc<dyn Subscriber>> = vec![
            Arc::clone(&self.metrics) as _,
            Arc::clone(&self.feed) as _,
            Arc::clone(&self.hot) as _,
        ];
        let mut concerned: Vec<Arc<dyn Subscriber>> = Vec::new();
        if let Some(audit) = &self.audit {
            all.push(Arc::clone(audit) as _);
            concerned.push(Arc::clone(audit) as _);
        }
        if tracing::enabled!(target: "onlyonce", Level::INFO) {
            concerned.push(Arc::new(TracingSubscriber));
        }
        let ends = (!concerned.is_empty()).then(|| Ends::start(concerned));
        all.extend(ends.clone().map(|ends| ends as Arc<dyn Subscriber>));
        (all, ends)
    }

    /// Tells what an operator did to `record`, which is as it was before.
    pub fn operated(&self, slot: &Slot, record: &Record, operated: Operated) {
        let about = About {
            slot,
            meta: &record.meta,
            fingerprint: Some(&record.fingerprint),
            intake: None,
            route: None,
        };
        let is_gone = matches!(operated.deed, Deed::Forgot | Deed::Discarded);
        self.tell(&about, &Event::Operated(Box::new(operated)));
        if is_gone {
            self.tell(&about, &gone(record));
        }
    }

    fn tell(&self, about: &About<'_>, event: &Event) {
        TracingSubscriber.on_event(about, event);
        self.metrics.on_event(about, event);
        self.feed.on_event(about, event);
        if let Some(audit) = &self.audit {
            audit.on_event(about, event);
        }
    }

    /// Writes what is still to be written.
    pub async fn close(&self) {
        if let Some(audit) = &self.audit {
            audit.close().await;
        }
    }
}

/// The end of a record that an operator has removed.
fn gone(record: &Record) -> Event {
    let since = record.completed_at.unwrap_or(record.created_at);
    let keep_for = record.expires_at.since(since);
    Event::Expired {
        keep_for,
        lifetime: keep_for.saturating_sub(record.keep_left),
        forgotten: true,
        replays: record.replays,
        resource: record
            .response()
            .and_then(|response| response.resource.as_deref())
            .map(Into::into),
    }
}
