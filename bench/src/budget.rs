//! How long a run may take. What is out of time does fewer rounds, or is left out and told.

use std::sync::LazyLock;
use std::time::Duration;

use onlyonce_core::{Clock, SystemClock};

use crate::noise;

static CLOCK: LazyLock<SystemClock> = LazyLock::new(SystemClock::new);

/// A time by which something shall be done.
#[derive(Clone, Copy)]
pub(crate) struct Budget {
    /// Since the first budget was made.
    until: Option<Duration>,
}

impl Budget {
    pub(crate) fn unlimited() -> Self {
        Self { until: None }
    }

    pub(crate) fn new(time: Duration) -> Self {
        Self {
            until: Some(CLOCK.now() + time),
        }
    }

    /// A part of it that takes no longer than this.
    pub(crate) fn part(self, time: Duration) -> Self {
        let until = CLOCK.now() + time;
        Self {
            until: Some(self.until.map_or(until, |whole| whole.min(until))),
        }
    }

    pub(crate) fn has_time(self) -> bool {
        self.until.is_none_or(|until| CLOCK.now() < until)
    }

    /// Two thirds of what is left of it, and no longer than this.
    pub(crate) fn most(self, at_most: Duration) -> Self {
        self.part(at_most.min(self.left() / 3 * 2))
    }

    pub(crate) fn left(self) -> Duration {
        let until = self.until.unwrap_or(Duration::MAX);
        until.saturating_sub(CLOCK.now())
    }

    /// The numbers of the rounds, up to this one: the first in any case, further ones in time. The machine
    /// is measured before each.
    pub(crate) fn rounds(self, count: u32) -> impl Iterator<Item = u32> {
        let rounds = (1..=count).take_while(move |round| *round == 1 || self.has_time());
        rounds.inspect(|_| noise::take())
    }
}

#[cfg(test)]
mod tests {
    use super::Budget;
    use std::time::Duration;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn most_of_a_budget_is_two_thirds_of_it_and_of_none_the_bound() {
        let of_three = Budget::new(3 * MINUTE).most(10 * MINUTE).left();
        let of_any = Budget::unlimited().most(10 * MINUTE).left();

        assert!(of_three <= 2 * MINUTE && of_three > MINUTE);
        assert!(of_any <= 10 * MINUTE && of_any > 9 * MINUTE);
    }
}
