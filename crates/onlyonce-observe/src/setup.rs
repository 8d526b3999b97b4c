//! The one way to build an engine that is observed and guarded.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::engine::{self, Builder};
use onlyonce_core::event::ServerAddress;
use onlyonce_core::{Engine, Operate, Store, Subscriber};
use onlyonce_metrics::StoreWatch;
use onlyonce_stores::Guarded;
use onlyonce_stores::guarded::BreakerState;
use thiserror::Error;
use tokio::sync::Notify;

use crate::audit::{Audit, AuditError, AuditSettings};
use crate::observers::Observers;
use crate::resume::resume;

/// The kind of store that is in this process: it cannot hang, and what it refuses it refuses for
/// good reason.
const MEMORY: &str = "memory";
/// The kind that only one process has: all of its records are that one's.
const FILE: &str = "file";

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
    server: Option<ServerAddress>,
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
            server: None,
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

    /// Tells where the store's server is when the store fails, by the store's URL.
    #[must_use]
    pub fn url(mut self, url: &str) -> Self {
        self.server = onlyonce_stores::server(url);
        self
    }

    /// Tells `subscriber` too, of what the engine does and of what operators do.
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
        // What ended before this start is told at once, where the store knows of it.
        let sweep = Arc::new(Notify::new());
        sweep.notify_one();
        let hands_over = store.operate().is_some_and(Operate::hands_over_ended);
        let early = hands_over.then(|| Arc::clone(&sweep));
        let observers = Observers::new(watch, audit, self.subscribers, early);
        let mut builder = configure(Engine::builder(store)).sweep_early(sweep);
        if let Some(server) = self.server {
            builder = builder.server(server);
        }
        for subscriber in observers.subscribers() {
            builder = builder.subscribe(subscriber);
        }
        // A name made at random is nobody's before.
        let has_earlier = self.backend == FILE || builder.has_instance();
        let engine = builder.open().await?;
        if has_earlier {
            let metrics = Arc::clone(observers.metrics());
            let ends = Arc::clone(observers.ends());
            let is_alone = self.backend == FILE;
            tokio::spawn(resume(engine.clone(), metrics, ends, is_alone));
        }
        Ok(Observed {
            engine,
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
