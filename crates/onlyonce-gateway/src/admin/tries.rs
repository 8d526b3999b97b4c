//! How often the admin token may be guessed: from one address ten wrong tokens in a minute, in the
//! console's form and over the API together. Then no token from there is looked at, not even the right
//! one, until the minute is over: an answer to it would tell which one is right.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use onlyonce_core::{Clock as _, SystemClock};
use subtle::ConstantTimeEq as _;

use super::guard::Digest;

/// Wrong tokens from one address within `WINDOW`, at most.
pub(super) const TRIES_MAX: u32 = 10;
/// How long wrong tokens are remembered, from the first of them.
pub(super) const WINDOW: Duration = Duration::from_secs(60);
/// Addresses whose tries are counted apart; more share one count.
const ADDRESSES_MAX: usize = 10_000;

/// What a token is that somebody sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    /// The token of this gateway.
    Right,
    /// Another one.
    Wrong,
    /// It was not looked at: too many wrong ones came from this address.
    TooMany,
}

/// The wrong tokens of the last minute, by address.
#[derive(Default)]
pub(super) struct Tries {
    clock: SystemClock,
    by_address: Mutex<BTreeMap<IpAddr, Wrong>>,
}

/// The wrong tokens of one address.
struct Wrong {
    since: Duration,
    count: u32,
    last: Digest,
}

impl Wrong {
    fn is_over(&self, now: Duration) -> bool {
        now.saturating_sub(self.since) >= WINDOW
    }
}

impl Tries {
    /// Compares what a person typed with the token. Every wrong one counts.
    pub(super) fn typed(&self, sent: &Digest, token: &Digest, from: Option<IpAddr>) -> Tried {
        self.judge(sent, token, from, false)
    }

    /// Compares what a program sent with the token. A program with an outdated token sends it again and
    /// again, which is no guess: what is as wrong as the last one from there counts once.
    pub(super) fn presented(&self, sent: &Digest, token: &Digest, from: Option<IpAddr>) -> Tried {
        self.judge(sent, token, from, true)
    }

    /// All under one lock, so that no more are compared at once than may be.
    fn judge(
        &self,
        sent: &Digest,
        token: &Digest,
        from: Option<IpAddr>,
        may_repeat: bool,
    ) -> Tried {
        let now = self.clock.now();
        let by_address = self.by_address.lock();
        let mut by_address = by_address.unwrap_or_else(PoisonError::into_inner);
        let address = place(&mut by_address, from, now);
        let wrong = by_address.get_mut(&address);
        let wrong = wrong.filter(|wrong| !wrong.is_over(now));
        if wrong.as_ref().is_some_and(|it| it.count >= TRIES_MAX) {
            return Tried::TooMany;
        }
        if sent.ct_eq(token).into() {
            return Tried::Right;
        }
        let Some(wrong) = wrong else {
            let (since, count, last) = (now, 1, *sent);
            by_address.insert(address, Wrong { since, count, last });
            return Tried::Wrong;
        };
        if may_repeat && wrong.last == *sent {
            return Tried::Wrong;
        }
        wrong.count += 1;
        wrong.last = *sent;
        if wrong.count == TRIES_MAX {
            let seconds = WINDOW.as_secs();
            tracing::warn!(target: "onlyonce", %address, seconds, "too many wrong admin tokens came from this address: for some time it is refused");
        }
        Tried::Wrong
    }
}

/// Where the tries of an address are counted.
fn place(by_address: &mut BTreeMap<IpAddr, Wrong>, from: Option<IpAddr>, now: Duration) -> IpAddr {
    let shared = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let address = from.map_or(shared, network);
    if by_address.contains_key(&address) || by_address.len() < ADDRESSES_MAX {
        return address;
    }
    by_address.retain(|_, wrong| !wrong.is_over(now));
    if by_address.len() < ADDRESSES_MAX {
        address
    } else {
        shared
    }
}

/// Whoever has an address of IPv6 has all of its network.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from(network))
        }
    }
}

#[cfg(test)]
mod tests;
