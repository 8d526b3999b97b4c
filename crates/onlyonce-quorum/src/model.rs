//! An acceptor as a pure state machine: the same decisions as the scripts of `onlyonce-redis`, for
//! the simulator, for exhaustive models and for tests that compare the two.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use bytes::Bytes;

use crate::acceptor::{Accept, Accepted, Held, Prepare, Prepared, Seen};
use crate::ballot::Ballot;

pub use self::server::{ModelServer, Pass, Turned};

mod server;

/// How long a promise is kept for a register that has no value. A forgotten promise breaks nothing,
/// because only a ballot that was promised is accepted; but its proposer has to ask again.
pub const PROMISE_KEPT: Duration = Duration::from_secs(600);
/// A register that was promised something stays at least so long.
pub const PROMISED_KEPT_MIN: Duration = Duration::from_secs(60);
/// How often the highest round becomes the floor for registers that a server does not have. Less than
/// half of [`PROMISED_KEPT_MIN`]: what has vanished is always below the floor.
pub const FLOOR_EVERY: Duration = Duration::from_secs(25);

/// So long after it was asked, a question is no longer heard as a vote: less than a register stays after
/// the last record in it. So what a server hears late is over for it before the others drop it.
pub const VOTE_GOOD_FOR: Duration = Duration::from_secs(30);

/// The registers of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Model {
    registers: BTreeMap<Vec<u8>, Register>,
    /// The highest round that was promised for any register, also for those that vanished.
    round_max: u64,
    /// Below or at this round, nothing is promised for a register that is not there.
    floor: u64,
    /// When the floor was last raised.
    floor_at: Duration,
    /// The longest time that anything was kept.
    longest: Duration,
    /// How often it has promised and accepted.
    cast: Tally,
}

/// A count that makes no difference: servers that differ in nothing else are equal.
#[derive(Clone, Copy, Debug, Default)]
struct Tally(u64);

impl PartialEq for Tally {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Tally {}

impl Hash for Tally {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Register {
    promised: Option<Ballot>,
    accepted: Option<(Ballot, Bytes, Duration)>,
    /// When it vanishes, by this server's clock.
    until: Option<Duration>,
}

impl Model {
    /// A server that is admitted promises nothing new at or below this round.
    fn raise_floor(&mut self, floor: u64, now: Duration) {
        self.round_max = self.round_max.max(floor);
        self.floor = self.round_max;
        self.floor_at = now;
    }

    /// [`Acceptor::prepare`](crate::Acceptor::prepare) at the moment `now` of this server's clock.
    pub fn prepare(&mut self, ask: &Prepare, now: Duration) -> Prepared {
        self.tidy(&ask.key, now);
        let found = self.registers.get(&ask.key[..]);
        if ask.only_if_new && found.is_some_and(|it| it.accepted.is_some()) {
            return Prepared::Told(self.look(&ask.key, now));
        }
        let promised = match found.and_then(|it| it.promised) {
            Some(promised) => promised,
            None => Ballot::end_of(self.floor),
        };
        if ask.ballot < promised {
            return Prepared::Refused(promised);
        }
        self.round_max = self.round_max.max(ask.ballot.round());
        self.cast.0 += 1;
        let register = self.registers.entry(ask.key.to_vec()).or_default();
        register.promised = Some(ask.ballot);
        if register.accepted.is_none() {
            register.until = Some(now.saturating_add(PROMISE_KEPT));
        } else if let Some(until) = &mut register.until {
            *until = (*until).max(now.saturating_add(PROMISED_KEPT_MIN));
        }
        Prepared::Promised(self.look(&ask.key, now))
    }

    /// [`Acceptor::accept`](crate::Acceptor::accept) at the moment `now` of this server's clock.
    pub fn accept(&mut self, ask: &Accept, now: Duration) -> Accepted {
        self.tidy(&ask.key, now);
        let Some(register) = self.registers.get_mut(&ask.key[..]) else {
            return Accepted::No(None);
        };
        if let Some((ballot, ..)) = &register.accepted
            && *ballot == ask.ballot
        {
            return Accepted::Yes;
        }
        if register.promised != Some(ask.ballot) {
            return Accepted::No(register.promised);
        }
        if let Some(next) = ask.next {
            register.promised = Some(next);
            self.round_max = self.round_max.max(next.round());
        }
        self.cast.0 += 1;
        self.longest = self.longest.max(ask.keep_for.unwrap_or_default());
        register.accepted = Some((ask.ballot, ask.value.clone(), now));
        register.until = ask
            .keep_for
            .map(|keep_for| now.saturating_add(keep_for.max(PROMISED_KEPT_MIN)));
        Accepted::Yes
    }

    /// [`Acceptor::look`](crate::Acceptor::look) at the moment `now` of this server's clock.
    pub fn look(&self, key: &[u8], now: Duration) -> Seen {
        let register = self.registers.get(key).filter(|it| it.lives(now));
        let accepted = register.and_then(|it| it.accepted.as_ref());
        Seen {
            wall: now,
            promised: register.and_then(|it| it.promised),
            accepted: accepted.map(|(ballot, value, since)| Held {
                ballot: *ballot,
                value: value.clone(),
                elapsed: now.saturating_sub(*since),
            }),
        }
    }

    /// The keys of all registers.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.registers.keys().map(Vec::as_slice)
    }

    /// Raises the floor if that is due, and drops the register if its time is over.
    fn tidy(&mut self, key: &[u8], now: Duration) {
        if now.abs_diff(self.floor_at) >= FLOOR_EVERY {
            self.floor = self.round_max;
            self.floor_at = now;
        }
        if self.registers.get(key).is_some_and(|it| !it.lives(now)) {
            self.registers.remove(key);
        }
    }
}

impl Register {
    fn lives(&self, now: Duration) -> bool {
        self.until.is_none_or(|until| until > now)
    }
}
