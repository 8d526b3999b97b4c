//! Operators that gave the token to the console. Their browsers hold the random name of a session, not
//! the token; it is kept in memory only, as a digest, and ends by itself.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use http::header::COOKIE;
use onlyonce_core::{Clock as _, Entropy as _, OsEntropy, SystemClock};

use super::super::guard::{Digest, digest};

/// Sessions at a time; the one that was used longest ago ends for the next.
const SESSIONS_MAX: usize = 64;
/// A session that is not used for this long ends. An open page that updates itself uses it.
const IDLE_MAX: Duration = Duration::from_secs(30 * 60);
/// A session ends after this time, however it is used.
const WHOLE_MAX: Duration = Duration::from_secs(12 * 3600);
const NAME_BYTES: usize = 32;

/// The sessions of one admin address.
pub(in crate::admin) struct Sessions {
    /// Cookies know hosts and no ports: two gateways on one host need two names.
    cookie: String,
    clock: SystemClock,
    entropy: OsEntropy,
    live: Mutex<BTreeMap<Digest, Session>>,
}

#[derive(Clone, Copy)]
struct Session {
    began: Duration,
    used: Duration,
}

impl Session {
    fn is_live(&self, now: Duration) -> bool {
        now.saturating_sub(self.used) < IDLE_MAX && now.saturating_sub(self.began) < WHOLE_MAX
    }
}

impl Sessions {
    pub(in crate::admin) fn new(port: u16) -> Self {
        Self {
            cookie: format!("onlyonce_session_{port}"),
            clock: SystemClock::new(),
            entropy: OsEntropy::new(),
            live: Mutex::default(),
        }
    }

    /// Opens a session; returns what the browser shall keep.
    pub(super) fn open(&self, is_secure: bool) -> String {
        let mut name = [0; NAME_BYTES];
        self.entropy.fill(&mut name);
        let name: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        let now = self.clock.now();
        let mut live = self.live();
        live.retain(|_, session| session.is_live(now));
        while live.len() >= SESSIONS_MAX {
            let oldest = live.iter().min_by_key(|(_, session)| session.used);
            let Some(oldest) = oldest.map(|(digest, _)| *digest) else {
                break;
            };
            live.remove(&oldest);
        }
        let session = Session {
            began: now,
            used: now,
        };
        live.insert(digest(&name), session);
        self.set_cookie(&name, "", is_secure)
    }

    /// Ends the sessions of a request; returns what makes its browser forget them.
    pub(super) fn close(&self, headers: &HeaderMap) -> String {
        let mut live = self.live();
        for name in self.names(headers) {
            live.remove(&digest(name));
        }
        self.set_cookie("", "; Max-Age=0", false)
    }

    /// Whether a request belongs to a session, which is thereby used.
    pub(in crate::admin) fn is_live(&self, headers: &HeaderMap) -> bool {
        let now = self.clock.now();
        let mut live = self.live();
        let is_live = |name: &str| {
            let digest = digest(name);
            let session = live.get_mut(&digest);
            let session = session.filter(|session| session.is_live(now));
            session.map(|session| session.used = now).is_some()
        };
        self.names(headers).any(is_live)
    }

    /// The sessions that a request names. A neighbour on another port of the host may have set one
    /// too, which is none of ours.
    fn names<'a>(&'a self, headers: &'a HeaderMap) -> impl Iterator<Item = &'a str> {
        let lines = headers.get_all(COOKIE).iter();
        let pairs = lines.filter_map(|line| line.to_str().ok());
        let pairs = pairs.flat_map(|line| line.split(';')).map(str::trim);
        pairs.filter_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            (name == self.cookie).then_some(value)
        })
    }

    fn set_cookie(&self, value: &str, more: &str, is_secure: bool) -> String {
        let secure = if is_secure { "; Secure" } else { "" };
        let cookie = &self.cookie;
        format!("{cookie}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{more}")
    }

    fn live(&self) -> MutexGuard<'_, BTreeMap<Digest, Session>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
