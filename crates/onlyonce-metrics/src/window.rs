//! Counts over the last while: what was counted now, less what was counted then. A scrape takes
//! note of the counts, so that nothing has to be done between scrapes.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Notes kept at most, however often somebody scrapes.
const NOTES_MAX: usize = 256;

/// Notes of `N` growing counts.
#[derive(Debug)]
pub(crate) struct Window<const N: usize> {
    notes: Mutex<VecDeque<(Duration, [u64; N])>>,
}

impl<const N: usize> Default for Window<N> {
    fn default() -> Self {
        Self {
            notes: Mutex::new(VecDeque::from([(Duration::ZERO, [0; N])])),
        }
    }
}

impl<const N: usize> Window<N> {
    /// What was counted in the last `span`: since the newest note that is so old, or else the
    /// oldest there is.
    pub(crate) fn since(&self, now: Duration, span: Duration, counts: [u64; N]) -> [u64; N] {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let start = now.saturating_sub(span);
        while notes.get(1).is_some_and(|(at, _)| *at <= start) {
            notes.pop_front();
        }
        let (_, then) = notes.front().copied().unwrap_or((now, counts));
        let often = span / NOTES_MAX as u32;
        if notes
            .back()
            .is_none_or(|(at, _)| now.saturating_sub(*at) >= often)
        {
            notes.push_back((now, counts));
        }
        std::array::from_fn(|it| counts[it].saturating_sub(then[it]))
    }
}

#[cfg(test)]
mod tests {
    use super::Window;
    use std::time::Duration;

    const SPAN: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn what_was_counted_before_the_span_does_not_count() {
        let window = Window::default();

        assert_eq!(window.since(at(10), SPAN, [5]), [5]);
        assert_eq!(window.since(at(50), SPAN, [7]), [7]);
        assert_eq!(window.since(at(100), SPAN, [9]), [4]);
        assert_eq!(window.since(at(500), SPAN, [9]), [0]);
    }

    #[test]
    fn notes_do_not_pile_up() {
        let window = Window::default();

        for milli in 0..1_000_000 {
            window.since(Duration::from_millis(milli), SPAN, [milli]);
        }

        assert!(window.notes.lock().unwrap().len() <= super::NOTES_MAX + 2);
    }
}
