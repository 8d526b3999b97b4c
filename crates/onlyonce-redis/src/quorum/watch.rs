//! Servers that are not what they were: one that counts fewer votes than it did has gone back to an older
//! state of its own, and one whose clock has jumped ahead has dropped what it was to keep. Either has
//! lost something, though it still knows who it is.

use std::sync::Mutex;
use std::time::Duration;

use onlyonce_quorum::Identity;

use crate::lock;

/// What is dropped this much too early is over all the same: registers stay so long after their end.
const JUMP_MAX: Duration = Duration::from_secs(60);

/// What a process remembers of a server from one look to the next.
#[derive(Debug, Default)]
pub(super) struct Watch(Mutex<Option<Sight>>);

/// One look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    /// When it began, by this process's clock.
    asked: Duration,
    /// The server's date.
    date: Duration,
    /// How often it had voted.
    cast: u64,
    is_older: bool,
    /// By how much its clock went further than ours, at least.
    ahead: Option<Duration>,
}

impl Watch {
    /// What was known before a look.
    pub(super) fn last(&self) -> Option<Sight> {
        *lock(&self.0)
    }

    /// A look that began at `asked` and ended at `now` has found this.
    pub(super) fn saw(
        &self,
        before: Option<Sight>,
        found: &Identity,
        asked: Duration,
        now: Duration,
    ) {
        let sight = Sight {
            asked,
            date: found.now,
            cast: found.cast,
            is_older: before.is_some_and(|before| found.cast < before.cast),
            ahead: before.map(|before| {
                let passed = found.now.saturating_sub(before.date);
                passed.saturating_sub(now.saturating_sub(before.asked))
            }),
        };
        *lock(&self.0) = Some(sight);
    }

    /// Whether it has gone back to an older state.
    pub(super) fn is_older(&self) -> bool {
        self.last().is_some_and(|sight| sight.is_older)
    }

    /// Why it must not vote on, if all of them were seen like this.
    pub(super) fn lost_something(&self, usual: Option<Duration>) -> Option<&'static str> {
        let sight = self.last()?;
        if self.is_older() {
            return Some("it has gone back to an older state");
        }
        let has_jumped = sight.ahead?.saturating_sub(usual?) > JUMP_MAX;
        has_jumped.then_some("its clock has jumped ahead, and it dropped records too early")
    }
}

/// By how much more than ours most clocks went on: if all of them seem to have jumped, it is our own that
/// stood still.
pub(super) fn usual<'a>(all: impl Iterator<Item = &'a Watch>, majority: usize) -> Option<Duration> {
    let mut ahead: Vec<_> = all.filter_map(|it| it.last()?.ahead).collect();
    ahead.sort_unstable();
    // A majority is not further ahead than this.
    ahead.get(majority.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlyonce_quorum::Votes;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn look(watch: &Watch, date: u64, cast: u64, asked: u64, now: u64) {
        let found = Identity {
            now: seconds(date),
            seat: String::new(),
            members: String::new(),
            epoch: 1,
            votes: Votes::Yes,
            joined: Duration::ZERO,
            longest: Duration::ZERO,
            round: 1,
            cast,
        };
        watch.saw(watch.last(), &found, seconds(asked), seconds(now));
    }

    /// Three servers, seen twice ten seconds apart; the first one's second date is given.
    fn told(date: u64, cast: u64, others: u64) -> Option<&'static str> {
        let all: Vec<_> = (0..3).map(|_| Watch::default()).collect();
        for watch in &all {
            look(watch, 1000, 50, 0, 1);
        }
        look(&all[0], date, cast, 10, 11);
        for watch in &all[1..] {
            look(watch, others, 60, 10, 11);
        }
        all[0].lost_something(usual(all.iter(), 2))
    }

    #[test]
    fn a_server_that_counts_fewer_votes_than_before_has_gone_back() {
        assert_eq!(told(1010, 50, 1010), None);
        assert_eq!(
            told(1010, 49, 1010),
            Some("it has gone back to an older state")
        );
    }

    #[test]
    fn a_clock_that_jumps_ahead_alone_is_noticed() {
        assert_eq!(told(1065, 50, 1010), None);
        assert!(told(1080, 50, 1010).is_some());
        // One that goes back keeps everything for longer.
        assert_eq!(told(500, 50, 1010), None);
    }

    #[test]
    fn if_all_clocks_jump_it_was_ours_that_stood_still() {
        assert_eq!(told(5000, 50, 5000), None);
    }
}
