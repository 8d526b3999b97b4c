//! The circuit breaker's settings: their bounds, and what they are unless given.

use std::ops::RangeInclusive;
use std::time::Duration;

use onlyonce_stores::Guarded;

use super::{Breaker, Span};

const FAILURES: RangeInclusive<u32> = 1..=5;
const RESET: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60);
const PROBE: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);
const PROBE_DEFAULT: Duration = Duration::from_secs(1);

impl Breaker {
    /// What is out of bounds, and what would be right.
    pub(super) fn problem(&self) -> Option<String> {
        if let Some(failures) = self.failures
            && !FAILURES.contains(&failures)
        {
            let (least, most) = (FAILURES.start(), FAILURES.end());
            return Some(format!(
                "breaker.failures = {failures} is not from {least} to {most}: write failures = 3"
            ));
        }
        let spans = [
            ("reset", self.reset, RESET, "30s"),
            ("probe", self.probe, PROBE, "1s"),
        ];
        spans.into_iter().find_map(|(name, span, bounds, example)| {
            let Span(span) = span.filter(|Span(span)| !bounds.contains(span))?;
            Some(format!(
                "breaker.{name} = {span:?} is not from {:?} to {:?}: write {name} = \"{example}\"",
                bounds.start(),
                bounds.end()
            ))
        })
    }

    /// The store with these settings.
    pub(crate) fn guard(&self, store: Guarded) -> Guarded {
        let failures = self.failures.unwrap_or(*FAILURES.end());
        let reset = self.reset.map_or(*RESET.end(), |Span(span)| span);
        let probe = self.probe.map_or(PROBE_DEFAULT, |Span(span)| span);
        store.breaker(failures, reset).probe(probe)
    }
}
