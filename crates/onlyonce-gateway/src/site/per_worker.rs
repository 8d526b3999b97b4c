//! One site for each thread that serves connections, and all of them replaced at once.

use std::sync::Arc;

use onlyonce_core::Engine;
use onlyonce_observe::traces::Traces;

use super::{Bounds, Site};
use crate::settings::Settings;
use crate::upstream::Healths;

/// The same site for each worker, so that a connection to an upstream stays on its thread.
pub(crate) struct PerWorker(Vec<Arc<Site>>);

/// What is in force; a reload replaces it.
pub(crate) type Sites = Arc<arc_swap::ArcSwap<PerWorker>>;

impl PerWorker {
    /// What the settings describe, for so many workers.
    pub(crate) fn new(
        count: usize,
        settings: &Settings,
        engine: &Engine,
        bounds: &Bounds,
        traces: Option<&Traces>,
        healths: &Healths,
    ) -> Self {
        let first = Site::new(settings, engine, bounds, traces, healths);
        let others: Vec<_> = (1..count).map(|_| Arc::new(first.again())).collect();
        let all = std::iter::once(Arc::new(first)).chain(others);
        Self(all.collect())
    }

    /// The site of a worker, by its number.
    pub(crate) fn of(&self, worker: usize) -> Arc<Site> {
        Arc::clone(&self.0[worker])
    }
}
