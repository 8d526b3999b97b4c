//! What the answers of a majority mean together.

use std::time::Duration;

use bytes::Bytes;

use crate::acceptor::{Held, Seen};
use crate::ballot::Ballot;

/// What a majority of the servers has of a register.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Found {
    /// The value of the highest ballot, if there is one.
    pub value: Option<Bytes>,
    /// That ballot.
    pub ballot: Option<Ballot>,
    /// Whether a majority has accepted that ballot, so that it can never be lost. What is not there
    /// at all counts as decided.
    pub is_decided: bool,
    /// How long ago it was accepted: a majority says at least so long. If it is not decided, all that
    /// have it say so.
    pub elapsed: Duration,
    /// Whether only one server says so, and none can agree with it: then the date must.
    pub is_of_one: bool,
    /// The servers' date: a majority says at least so late.
    pub wall: Duration,
}

impl Found {
    /// What a process wrote itself this long ago, and nobody else has touched: it has the promise
    /// that came with it.
    pub fn own(value: Bytes, elapsed: Duration) -> Self {
        Self {
            value: Some(value),
            ballot: None,
            is_decided: true,
            elapsed,
            is_of_one: false,
            wall: Duration::ZERO,
        }
    }

    /// What `seen`, of at least `majority` servers, means.
    pub fn of(seen: &[Seen], majority: usize) -> Self {
        let wall = said_by(majority, seen.iter().map(|seen| seen.wall));
        let newest = |held: &&Held| held.ballot;
        let held: Vec<&Held> = seen.iter().filter_map(|it| it.accepted.as_ref()).collect();
        let Some(highest) = held.iter().copied().max_by_key(newest) else {
            return Self {
                value: None,
                ballot: None,
                is_decided: true,
                elapsed: Duration::ZERO,
                is_of_one: false,
                wall,
            };
        };
        let same = held.iter().filter(|held| held.ballot == highest.ballot);
        let ages: Vec<Duration> = same.map(|held| held.elapsed).collect();
        let is_decided = ages.len() >= majority;
        let is_of_one = !is_decided && ages.len() == 1;
        let witnesses = ages.len().min(majority);
        let elapsed = said_by(witnesses, ages.into_iter());
        Self {
            value: Some(highest.value.clone()),
            ballot: Some(highest.ballot),
            is_decided,
            elapsed,
            is_of_one,
            wall,
        }
    }

    /// How long ago a value of this date was accepted.
    pub(crate) fn age(&self, at: Duration) -> Duration {
        match self.is_of_one {
            true => self.elapsed.min(self.wall.saturating_sub(at)),
            false => self.elapsed,
        }
    }
}

/// The longest time that at least `majority` of those who speak agree has passed.
fn said_by(majority: usize, said: impl Iterator<Item = Duration>) -> Duration {
    let mut said: Vec<Duration> = said.collect();
    said.sort_unstable_by(|one, two| two.cmp(one));
    said.get(majority.saturating_sub(1))
        .copied()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(round: u8, elapsed: u64) -> Seen {
        Seen {
            wall: Duration::from_secs(100 + elapsed),
            promised: None,
            accepted: Some(Held {
                ballot: Ballot::from_bytes([round; Ballot::BYTES]),
                value: Bytes::from(vec![round]),
                elapsed: Duration::from_secs(elapsed),
            }),
        }
    }

    #[test]
    fn one_clock_that_runs_ahead_ages_nothing() {
        let found = Found::of(&[seen(1, 5), seen(1, 9_999), seen(1, 6)], 2);
        assert!(found.is_decided);
        assert_eq!(found.elapsed, Duration::from_secs(6));

        let found = Found::of(&[seen(1, 5), seen(1, 9_999)], 2);
        assert_eq!(found.elapsed, Duration::from_secs(5));
    }

    #[test]
    fn the_highest_ballot_counts_even_if_only_one_server_has_it() {
        let found = Found::of(&[seen(1, 5), seen(2, 1)], 2);
        assert_eq!(found.value.as_deref(), Some(&[2][..]));
        assert!(!found.is_decided);
    }

    #[test]
    fn what_is_not_decided_ages_by_all_that_have_it() {
        let found = Found::of(&[seen(1, 9), seen(2, 8), seen(2, 7)], 3);
        assert!(!found.is_decided);
        assert_eq!(found.elapsed, Duration::from_secs(7));

        let found = Found::of(&[seen(1, 9), seen(1, 9), seen(2, 8)], 3);
        assert!(found.is_of_one);
        let (witness, date) = (Duration::from_secs(8), found.wall);
        assert_eq!(found.age(date - Duration::from_secs(60)), witness);
        assert_eq!(
            found.age(date - Duration::from_secs(3)),
            Duration::from_secs(3)
        );
        assert_eq!(found.age(date + witness), Duration::ZERO);
    }

    #[test]
    fn nothing_at_a_majority_is_nothing() {
        let empty = Seen {
            wall: Duration::from_secs(7),
            promised: None,
            accepted: None,
        };
        let found = Found::of(&[empty.clone(), empty], 2);
        assert_eq!((found.value, found.is_decided), (None, true));
        assert_eq!(found.wall, Duration::from_secs(7));
    }
}
