//! An engine with the threads it needs, for a process that has no runtime of its own.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use onlyonce_core::Engine;
use onlyonce_observe::{Observed, OpenError, Setup};
use onlyonce_stores::backend;
use thiserror::Error;
use tokio::runtime::Handle;

use crate::forks::{OpenInParent, opens_store};
use crate::run::{Job, JobSettings};
use crate::site::{Site, SiteError, SiteSettings};
use crate::threads::{CloseError, Threads};

/// How an engine is opened.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Keeps its records apart from those of other environments on the same store.
    pub namespace: Option<String>,
    /// What this process is called in records; a random name otherwise.
    pub instance: Option<String>,
}

/// Why an engine did not open.
#[derive(Debug, Error)]
pub enum OpenFailure {
    /// No threads.
    #[error("cannot start the engine's threads")]
    Threads(#[source] std::io::Error),
    /// It was open before a fork.
    #[error(transparent)]
    OpenInParent(#[from] OpenInParent),
    /// The store.
    #[error(transparent)]
    Store(#[from] onlyonce_stores::OpenError),
    /// The engine on it.
    #[error(transparent)]
    Engine(#[from] OpenError),
}

/// An engine, its runtime and its metrics. Any thread may use it while another one closes it: only a second one
/// that closes it has to wait.
pub struct Host {
    threads: Threads,
    observed: Observed,
    closing: Mutex<()>,
}

impl Host {
    /// Opens the store at `url` and an engine on it. Blocks.
    pub fn open(url: &str, settings: &Settings) -> Result<Self, OpenFailure> {
        opens_store(url)?;
        let threads = Threads::start("engine").map_err(OpenFailure::Threads)?;
        let runtime = threads.handle().expect("they were just started");
        let observed = runtime.block_on(async {
            let store = onlyonce_stores::open(url).await?;
            let configure = |mut engine: onlyonce_core::engine::Builder| {
                if let Some(namespace) = &settings.namespace {
                    engine = engine.namespace(namespace);
                }
                if let Some(instance) = &settings.instance {
                    engine = engine.instance(instance);
                }
                engine
            };
            let observed = Setup::new(backend(url), store).open(configure).await?;
            Ok::<_, OpenFailure>(observed)
        })?;
        Ok(Self {
            threads,
            observed,
            closing: Mutex::default(),
        })
    }

    /// Whether it can be used in this process.
    pub fn check(&self) -> Result<(), CloseError> {
        self.handle().map(drop)
    }

    fn handle(&self) -> Result<&Handle, CloseError> {
        self.threads.handle()
    }

    fn engine(&self) -> Engine {
        self.observed.engine.clone()
    }

    /// The layer with these settings.
    pub fn site(&self, settings: &SiteSettings) -> Result<Result<Site, SiteError>, CloseError> {
        let handle = self.handle()?.clone();
        let _entered = handle.enter();
        Ok(Site::new(self.engine(), settings, handle.clone()))
    }

    /// A named kind of function.
    pub fn job(&self, name: &str, settings: &JobSettings) -> Result<Job, CloseError> {
        let handle = self.handle()?.clone();
        Ok(Job::new(&self.engine(), name, settings, handle))
    }

    /// Everything it has counted, as Prometheus reads it.
    pub fn metrics(&self) -> Result<String, CloseError> {
        self.check()?;
        Ok(self.observed.observers.metrics().page())
    }

    /// How many calls run or wait.
    pub fn in_flight(&self) -> usize {
        self.observed.engine.in_flight()
    }

    /// Takes no more calls, and waits for those that run and for what is not stored yet, at most for
    /// `grace`; returns how many were still running then. Blocks. After a fork there is nothing to
    /// wait for in the child. To close it again does nothing.
    pub fn close(&self, grace: Duration) -> Result<usize, CloseError> {
        if let Err(forked @ CloseError::Forked { .. }) = self.handle() {
            return Err(forked);
        }
        let _closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(handle) = self.handle() else {
            return Ok(0);
        };
        let left = handle.block_on(self.observed.engine.shutdown(grace));
        self.threads.stop();
        Ok(left)
    }
}
