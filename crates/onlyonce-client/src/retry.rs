//! When to try again. Pure: the randomness is passed in.

use std::time::Duration;

use onlyonce_core::Entropy;

use crate::cause::{Cause, Failure};

#[cfg(test)]
mod tests;

/// How often to try, and how long to wait between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// How often an operation is tried; an answer "still running" does not count.
    pub attempts_max: u32,
    /// How long one attempt may take.
    pub attempt_timeout: Duration,
    /// The first pause is at most this long; each one after it at most twice the one before.
    pub backoff_min: Duration,
    /// No pause is longer, but by the service's own wish.
    pub backoff_max: Duration,
    /// The pause after "still running", if the service asks for none.
    pub in_progress_delay: Duration,
    /// No attempt begins later than this after the first.
    pub total_max: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts_max: 3,
            attempt_timeout: Duration::from_secs(30),
            backoff_min: Duration::from_secs(1),
            backoff_max: Duration::from_secs(10),
            in_progress_delay: Duration::from_secs(2),
            total_max: Duration::from_secs(120),
        }
    }
}

impl Retry {
    /// The pause after a failure, the `failures`th: what the service asks for, or a random part of
    /// an exponentially growing bound ("full jitter").
    pub fn delay(&self, failure: &Failure, failures: u32, entropy: &dyn Entropy) -> Duration {
        match (failure.cause, failure.retry_after) {
            (_, Some(asked)) => asked,
            (Cause::InProgress, None) => self.in_progress_delay,
            _ => random_part(self.bound(failures), entropy),
        }
    }

    fn bound(&self, failures: u32) -> Duration {
        let doubled = 1u32.checked_shl(failures.saturating_sub(1));
        let factor = doubled.unwrap_or(u32::MAX);
        self.backoff_min
            .saturating_mul(factor)
            .min(self.backoff_max)
    }
}

fn random_part(bound: Duration, entropy: &dyn Entropy) -> Duration {
    let mut random = [0; 8];
    entropy.fill(&mut random);
    let part = (bound.as_nanos().min(u128::from(u64::MAX)) + 1)
        .saturating_mul(u128::from(u64::from_le_bytes(random)))
        >> 64;
    Duration::from_nanos(u64::try_from(part).unwrap_or(u64::MAX))
}
