//! What no rule may go beyond. A lease of nothing would be renewed without end, a retention of
//! nothing protects nobody, and a sum of two times must not overflow in any store.

use std::time::Duration;

use super::{Duplicate, Policy};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const YEARS_10: Duration = Duration::from_secs(3650 * 24 * 60 * 60);
/// Renewed at a third of it, it is still longer than a store takes.
const LEASE_MIN: Duration = Duration::from_millis(10);
const SPAN_MIN: Duration = Duration::from_millis(1);
const WAITERS_MAX: usize = 1_000_000;
const GIBIBYTE: usize = 1 << 30;

impl Policy {
    /// The same rules with every length of time, size and count within its bounds: what is outside
    /// of them is raised or cut, with a warning in the log. A layer, a job and an engine's call
    /// do this with the rules they are given.
    ///
    /// ```
    /// use onlyonce_core::Policy;
    /// use std::time::Duration;
    ///
    /// let mut policy = Policy::default();
    /// policy.lease_for = Duration::ZERO;
    /// assert_eq!(policy.bounded().lease_for, Duration::from_millis(10));
    /// ```
    #[must_use]
    pub fn bounded(mut self) -> Self {
        for (name, span, min, max) in self.spans() {
            let bounded = (*span).clamp(min, max);
            if bounded != *span {
                tracing::warn!(
                    target: "onlyonce", given = ?*span, used = ?bounded,
                    "the rule {name} is out of bounds"
                );
                *span = bounded;
            }
        }
        for (name, number, max) in self.numbers() {
            if *number > max {
                tracing::warn!(
                    target: "onlyonce", given = *number, used = max,
                    "the rule {name} is out of bounds"
                );
                *number = max;
            }
        }
        if let Some(ttl) = &mut self.ttl {
            ttl.max = ttl.max.max(ttl.min);
        }
        self
    }

    /// Whether [`bounded`](Self::bounded) would change nothing.
    pub(crate) fn is_bounded(&self) -> bool {
        let patience = self.duplicate.patience();
        let ttl = self.ttl.as_ref();
        (LEASE_MIN..=DAY).contains(&self.lease_for)
            && (SPAN_MIN..=YEARS_10).contains(&self.keep_for)
            && (SPAN_MIN..=YEARS_10).contains(&self.execution_max)
            && self.retry_after <= DAY
            && patience <= YEARS_10
            && ttl
                .is_none_or(|ttl| SPAN_MIN <= ttl.min && ttl.min <= ttl.max && ttl.max <= YEARS_10)
            && self.waiters_max.max(self.local_waiters_max) <= WAITERS_MAX
            && self.limits.request_bytes_max <= GIBIBYTE
            && self.limits.response_bytes_max <= GIBIBYTE
            && self.limits.header_bytes_max <= GIBIBYTE
    }

    /// Every length of time with its bounds.
    fn spans(&mut self) -> Vec<(&'static str, &mut Duration, Duration, Duration)> {
        let mut spans = vec![
            ("lease_for", &mut self.lease_for, LEASE_MIN, DAY),
            ("keep_for", &mut self.keep_for, SPAN_MIN, YEARS_10),
            ("execution_max", &mut self.execution_max, SPAN_MIN, YEARS_10),
            ("retry_after", &mut self.retry_after, Duration::ZERO, DAY),
        ];
        match &mut self.duplicate {
            Duplicate::Wait(at_most) => {
                spans.push(("duplicate", at_most, Duration::ZERO, YEARS_10));
            }
            Duplicate::Refuse => {}
        }
        if let Some(ttl) = &mut self.ttl {
            spans.push(("ttl.min", &mut ttl.min, SPAN_MIN, YEARS_10));
            spans.push(("ttl.max", &mut ttl.max, SPAN_MIN, YEARS_10));
        }
        spans
    }

    /// Every size and count with its bound.
    fn numbers(&mut self) -> [(&'static str, &mut usize, usize); 5] {
        let limits = &mut self.limits;
        [
            ("waiters_max", &mut self.waiters_max, WAITERS_MAX),
            (
                "local_waiters_max",
                &mut self.local_waiters_max,
                WAITERS_MAX,
            ),
            ("request_bytes_max", &mut limits.request_bytes_max, GIBIBYTE),
            (
                "response_bytes_max",
                &mut limits.response_bytes_max,
                GIBIBYTE,
            ),
            ("header_bytes_max", &mut limits.header_bytes_max, GIBIBYTE),
        ]
    }
}
