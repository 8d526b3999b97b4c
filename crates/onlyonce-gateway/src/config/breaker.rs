//! The circuit breaker's settings: what they are unless given.

use std::time::Duration;

use onlyonce_stores::Guarded;

use super::{Breaker, Count, Span};

pub(crate) const FAILURES: u32 = 5;
pub(crate) const RESET: Duration = Duration::from_secs(60);
pub(crate) const PROBE: Duration = Duration::from_secs(1);

impl Breaker {
    /// The store with these settings.
    pub(crate) fn guard(&self, store: Guarded) -> Guarded {
        let failures = self.failures.map_or(FAILURES, Count::as_u32);
        let reset = self.reset.map_or(RESET, Span::get);
        let probe = self.probe.map_or(PROBE, Span::get);
        store.breaker(failures, reset).probe(probe)
    }
}
