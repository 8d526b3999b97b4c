//! The one way to build an engine that is observed and guarded.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::engine::{self, Builder};
use onlyonce_core::{Engine, Store, Subscriber};
use onlyonce_metrics::StoreWatch;
use onlyonce_stores::Guarded;
use onlyonce_stores::guarded::BreakerState;
use thiserror::Error;

use crate::audit::{Audit, AuditError, AuditSettings};
use crate::observers::Observers;

/// The kind of store that is in this process: it cannot hang, and what it refuses it refuses for
/// good reason.
const MEMORY: &str = "memory";

type Guard = Box<dyn FnOnce(Guarded) -> Guarded + Send>;

/// Why an engine did not open.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The audit trail cannot be written.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The engine cannot be opened on the store.
    #[error(transparent)]
    Engine(#[from] engine::OpenError),
}

/// An engine, and everyone who is told what it does. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Observed {
    /// The engine.
    pub engine: Engine,
    /// Who is told.
    pub observers: Observers,
    guard: Option<Arc<Guarded>>,
}

impl Observed {
    /// Where the circuit breaker of the store stands; closed where there is none.
    pub fn breaker(&self) -> BreakerState {
        let guard = self.guard.as_ref();
        guard.map_or(BreakerState::Closed, |guard| guard.state())
    }
}

/// What an observed engine is built from.
pub struct Setup {
    backend: &'static str,
    store: Arc<dyn Store>,
    guard: Guard,
    audit: Option<AuditSettings>,
    subscribers: Vec<Arc<dyn Subscriber>>,
}

impl Setup {
    /// On `store`, which metrics and log call `backend`; everything else as usual.
    pub fn new(backend: &'static str, store: Arc<dyn Store>) -> Self {
        Self {
            backend,
            store,
            guard: Box::new(|guarded| guarded),
            audit: None,
            subscribers: Vec::new(),
        }
    }

    /// Sets the timeouts, retries and the circuit breaker around the store.
    #[must_use]
    pub fn guard(mut self, guard: impl FnOnce(Guarded) -> Guarded + Send + 'static) -> Self {
        self.guard = Box::new(guard);
        self
    }

    /// Writes an audit trail.
    #[must_use]
    pub fn audit(mut self, settings: Option<AuditSettings>) -> Self {
        self.audit = settings;
        self
    }

    /// Tells `subscriber` too.
    #[must_use]
    pub fn subscribe(mut self, subscriber: Arc<dyn Subscriber>) -> Self {
        self.subscribers.push(subscriber);
        self
    }

    /// Opens the engine; `configure` sets what is the engine's own.
    pub async fn open(
        self,
        configure: impl FnOnce(Builder) -> Builder,
    ) -> Result<Observed, OpenError> {
        let mut guard = None;
        let (store, watch) = if self.backend == MEMORY {
            StoreWatch::around(self.backend, self.store)
        } else {
            let (guarded, watch) = StoreWatch::guarding(self.backend, self.store, self.guard);
            guard = Some(Arc::clone(&guarded));
            (guarded as Arc<dyn Store>, watch)
        };
        let audit = self.audit.as_ref().map(Audit::open).transpose()?;
        let observers = Observers::new(watch, audit);
        let mut builder = configure(Engine::builder(store));
        for subscriber in observers.subscribers().into_iter().chain(self.subscribers) {
            builder = builder.subscribe(subscriber);
        }
        Ok(Observed {
            engine: builder.open().await?,
            observers,
            guard,
        })
    }
}

impl AuditSettings {
    /// A trail whose newest file is at `path`, kept for 90 days.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            keep: Duration::from_secs(90 * 24 * 3600),
            file_bytes_max: 64 << 20,
        }
    }
}
