//! Who hears what happens: metrics, audit, hot keys, watchers, and what tells of keys that end.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::event::TracingSubscriber;
use onlyonce_core::key::Hint;
use onlyonce_core::{About, Deed, Event, Meta, Operated, Record, Slot, Subscriber};
use onlyonce_metrics::{Metrics, StoreWatch};
use tokio::sync::Notify;
use tracing::Level;

use crate::audit::{Audit, Trail};
use crate::ends::{Ends, Told};
use crate::feed::Feed;
use crate::hot::HotKeys;

/// Tells what an operator did to no record in particular.
pub(crate) fn at_large<T>(operated: Operated, tell: impl FnOnce(&About<'_>, &Event) -> T) -> T {
    let nothing = Arc::new(Meta {
        hint: Hint::default(),
        operation: "".into(),
        actor: None,
        holder: "".into(),
        trace: None,
        credential: None,
    });
    let about = About {
        slot: &Slot::from_bytes([0; Slot::BYTES]),
        meta: &nothing,
        fingerprint: None,
        intake: None,
        route: None,
    };
    tell(&about, &Event::Operated(Box::new(operated)))
}

/// Everyone who listens.
#[derive(Clone)]
pub struct Observers {
    metrics: Arc<Metrics>,
    feed: Arc<Feed>,
    hot: Arc<HotKeys>,
    audit: Option<Arc<Audit>>,
    ends: Arc<Ends>,
    /// Those of the service itself, besides these.
    own: Arc<[Arc<dyn Subscriber>]>,
}

impl Observers {
    /// `sweep` asks for a sweep of a store that hands over what has ended.
    pub(crate) fn new(
        store: StoreWatch,
        audit: Option<Audit>,
        own: Vec<Arc<dyn Subscriber>>,
        sweep: Option<Arc<Notify>>,
    ) -> Self {
        let metrics = Arc::new(Metrics::new(store));
        if sweep.is_some() {
            metrics.count_ends_told();
        }
        let feed = Arc::new(Feed::new());
        let audit = audit.map(Arc::new);
        let mut concerned: Vec<Arc<dyn Subscriber>> = Vec::new();
        concerned.extend(audit.clone().map(|audit| audit as Arc<dyn Subscriber>));
        if tracing::enabled!(target: "onlyonce", Level::INFO) {
            concerned.push(Arc::new(TracingSubscriber));
        }
        let mut handed: Vec<Arc<dyn Subscriber>> =
            vec![Arc::clone(&metrics) as _, Arc::clone(&feed) as _];
        handed.extend(concerned.iter().cloned());
        let told = Told {
            remembered: concerned,
            handed,
        };
        Self {
            metrics,
            feed,
            hot: Arc::default(),
            audit,
            ends: Ends::start(told, sweep),
            own: own.into(),
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

    /// What tells of keys that end.
    pub(crate) fn ends(&self) -> &Arc<Ends> {
        &self.ends
    }

    /// Whom an engine shall tell, besides the log.
    pub(crate) fn subscribers(&self) -> Vec<Arc<dyn Subscriber>> {
        let mut all: Vec<Arc<dyn Subscriber>> = vec![
            Arc::clone(&self.metrics) as _,
            Arc::clone(&self.feed) as _,
            Arc::clone(&self.hot) as _,
            Arc::clone(&self.ends) as _,
        ];
        all.extend(self.audit.clone().map(|audit| audit as Arc<dyn Subscriber>));
        all.extend(self.own.iter().cloned());
        all
    }

    /// Tells what an operator did to `record`, which is as it was before, or as it is now where it is still
    /// there.
    pub fn operated(&self, slot: &Slot, record: &Record, operated: Operated) {
        let about = About {
            slot,
            meta: &record.meta,
            fingerprint: Some(&record.fingerprint),
            intake: None,
            route: None,
        };
        let is_gone = matches!(operated.deed, Deed::Forgot | Deed::Discarded);
        if let Deed::Extended { by } = operated.deed
            && record.response().is_some()
        {
            let keep_for = kept_for(record).saturating_sub(by);
            let keep_left = record.keep_left.saturating_sub(by);
            self.metrics.extended(&about, keep_left, keep_for, by);
            self.ends.extended(slot, record.keep_left, by);
        }
        self.tell(&about, &Event::Operated(Box::new(operated)));
        if is_gone {
            self.tell(&about, &gone(record));
        }
    }

    /// Tells what an operator did to no record in particular.
    pub fn operated_at_large(&self, operated: Operated) {
        at_large(operated, |about, event| self.tell(about, event));
    }

    fn tell(&self, about: &About<'_>, event: &Event) {
        TracingSubscriber.on_event(about, event);
        self.metrics.on_event(about, event);
        self.feed.on_event(about, event);
        self.ends.on_event(about, event);
        if let Some(audit) = &self.audit {
            audit.on_event(about, event);
        }
        for subscriber in &*self.own {
            subscriber.on_event(about, event);
        }
    }

    /// Writes what is still to be written.
    pub async fn close(&self) {
        self.ends.close();
        if let Some(audit) = &self.audit {
            audit.close().await;
        }
    }
}

/// The end of a record that an operator has removed.
fn gone(record: &Record) -> Event {
    let keep_for = kept_for(record);
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

fn kept_for(record: &Record) -> Duration {
    let since = record.completed_at.unwrap_or(record.created_at);
    record.expires_at.since(since)
}
