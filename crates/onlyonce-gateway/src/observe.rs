//! Who hears what happens: metrics, audit, hot keys, watchers, and what tells of keys that end.

use std::sync::Arc;

use onlyonce_core::event::TracingSubscriber;
use onlyonce_core::{About, Event, Record, Slot, Subscriber};
use onlyonce_metrics::{Metrics, StoreWatch};
use tracing::Level;

use crate::admin::{Events, HotKeys};
use crate::audit::Audit;
use crate::config::{Config, ConfigError};

use self::ends::Ends;

mod ends;

/// Everyone who listens.
#[derive(Clone)]
pub(crate) struct Observers {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: Arc<Events>,
    pub(crate) hot: Arc<HotKeys>,
    audit: Option<Arc<Audit>>,
}

impl Observers {
    pub(crate) fn new(config: &Config, store: StoreWatch) -> Result<Self, ConfigError> {
        let audit = config.audit.as_ref().map(Audit::open).transpose()?;
        Ok(Self {
            metrics: Arc::new(Metrics::new(store)),
            events: Arc::new(Events::new()),
            hot: Arc::default(),
            audit: audit.map(Arc::new),
        })
    }

    /// What an engine shall tell, besides the log.
    pub(crate) fn subscribers(&self) -> Vec<Arc<dyn Subscriber>> {
        let mut all: Vec<Arc<dyn Subscriber>> = vec![
            Arc::clone(&self.metrics) as _,
            Arc::clone(&self.events) as _,
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
    pub(crate) fn forgotten(&self, slot: &Slot, record: &Record) {
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
        };
        TracingSubscriber.on_event(&about, &event);
        self.metrics.on_event(&about, &event);
        self.events.on_event(&about, &event);
        if let Some(audit) = &self.audit {
            audit.on_event(&about, &event);
        }
    }

    /// Writes what is still to be written.
    pub(crate) async fn close(&self) {
        if let Some(audit) = &self.audit {
            audit.close().await;
        }
    }
}
