//! Who hears what happens: metrics, audit, hot keys, watchers, and what tells of keys that end.

use std::sync::Arc;

use onlyonce_core::event::TracingSubscriber;
use onlyonce_core::{About, Event, Record, Slot, Subscriber};
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
    pub(crate) fn subscribers(&self) -> Vec<Arc<dyn Subscriber>> {
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
        if !concerned.is_empty() {
            all.push(Ends::start(concerned));
        }
        all
    }

    /// Tells that an operator has forgotten `record`.
    pub fn forgotten(&self, slot: &Slot, record: &Record) {
        let about = About {
            slot,
            meta: &record.meta,
            fingerprint: Some(&record.fingerprint),
            intake: None,
            route: None,
        };
        let since = record.completed_at.unwrap_or(record.created_at);
        let keep_for = record.expires_at.since(since);
        let event = Event::Expired {
            keep_for,
            lifetime: keep_for.saturating_sub(record.keep_left),
            forgotten: true,
            resource: record
                .response()
                .and_then(|response| response.resource.as_deref())
                .map(Into::into),
        };
        TracingSubscriber.on_event(&about, &event);
        self.metrics.on_event(&about, &event);
        self.feed.on_event(&about, &event);
        if let Some(audit) = &self.audit {
            audit.on_event(&about, &event);
        }
    }

    /// Writes what is still to be written.
    pub async fn close(&self) {
        if let Some(audit) = &self.audit {
            audit.close().await;
        }
    }
}
