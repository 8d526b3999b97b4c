//! One holder's time at a slot, from its claim to the record's end, and what can be asked of it
//! later: was it pending, in doubt, finished at some moment of a call?

use std::sync::Arc;

use onlyonce_core::{Claim, Fingerprint, Meta, OnLapse, Record, Response, State, Token};

use super::Sender;
use crate::sim::clock::{Ms, in_millis, millis, wall};

pub(in crate::sim) struct Tenure {
    pub(in crate::sim) token: Token,
    pub(in crate::sim) fingerprint: Fingerprint,
    pub(in crate::sim) on_lapse: OnLapse,
    pub(in crate::sim) attempt: u32,
    pub(in crate::sim) meta: Arc<Meta>,
    /// The process that claimed it.
    pub(in crate::sim) process: usize,
    /// Granted to a late copy of a claim: no process knows that it holds it.
    pub(in crate::sim) orphan: bool,
    /// When the slot was first claimed, by this holder or by one it took over from.
    pub(in crate::sim) created: Ms,
    pub(in crate::sim) granted: Ms,
    /// When its holder last prolonged its lease. A late copy prolongs it too, but is no sign of
    /// life.
    pub(in crate::sim) renewed: Ms,
    pub(in crate::sim) lease_until: Ms,
    /// Until when docs/protocol.md#rule-6 promises "never twice" under `hold`: lease and retention from the claim.
    pub(in crate::sim) promised: Ms,
    tail: Ms,
    pub(in crate::sim) expires: Ms,
    pub(in crate::sim) phase: Phase,
    /// When it was finished, and every expiry an answer could have named since.
    pub(in crate::sim) finished: Option<Ms>,
    shown: Vec<Ms>,
    /// Its answer is an operator's, not its holder's.
    pub(in crate::sim) resolved: bool,
    /// When it was released as unknown.
    pub(in crate::sim) doubted: Option<Ms>,
    /// Lapses that ended because the holder came back before anyone else.
    lapses: Vec<Window>,
    pub(in crate::sim) replays: u64,
    pub(in crate::sim) closed: Option<(Ms, Closing)>,
}

pub(in crate::sim) enum Phase {
    Pending,
    Finished(Arc<Response>),
    Unknown,
}

/// How a holder's time ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sim) enum Closing {
    TakenOver,
    NotRun,
    Expired,
    Forgotten,
}

/// A stretch of time, both ends included.
#[derive(Clone, Copy, Debug)]
pub(in crate::sim) struct Window {
    pub(in crate::sim) from: Ms,
    pub(in crate::sim) to: Ms,
}

impl Window {
    pub(in crate::sim) fn new(from: Ms, to: Ms) -> Self {
        Self { from, to }
    }

    pub(in crate::sim) fn meets(self, other: Self) -> bool {
        self.from <= other.to && other.from <= self.to && self.from <= self.to
    }

    pub(in crate::sim) fn contains(self, moment: Ms) -> bool {
        self.from <= moment && moment <= self.to
    }
}

impl Tenure {
    pub(super) fn granted(
        claim: &Claim,
        sender: Sender,
        attempt: u32,
        created: Ms,
        now: Ms,
    ) -> Self {
        let lease_until = now + in_millis(claim.lease_for);
        let tail = in_millis(claim.keep_for);
        Self {
            token: claim.token,
            fingerprint: claim.fingerprint,
            on_lapse: claim.on_lapse,
            attempt,
            meta: Arc::clone(&claim.meta),
            process: sender.process,
            orphan: sender.copy,
            created,
            granted: now,
            renewed: now,
            lease_until,
            promised: lease_until + tail,
            tail,
            expires: lease_until + tail,
            phase: Phase::Pending,
            finished: None,
            shown: Vec::new(),
            resolved: false,
            doubted: None,
            lapses: Vec::new(),
            replays: 0,
            closed: None,
        }
    }

    pub(super) fn prolong(&mut self, lease_for: Ms, sender: Sender, now: Ms) {
        if self.lease_until <= now {
            self.lapses.push(Window::new(self.lease_until, now));
        }
        if !sender.copy {
            self.renewed = now;
        }
        self.lease_until = now + lease_for;
        self.expires = self.lease_until + self.tail;
    }

    /// What it was extended by since its claim, which asked to be kept for `asked`.
    pub(super) fn extended(&self, asked: Ms) -> Ms {
        self.tail.saturating_sub(asked)
    }

    pub(super) fn finish(&mut self, response: &Arc<Response>, keep_for: Ms, now: Ms) {
        self.phase = Phase::Finished(Arc::clone(response));
        self.finished = Some(now);
        self.expires = now + keep_for;
        self.shown.push(self.expires);
    }

    pub(super) fn doubt(&mut self, now: Ms) {
        self.doubted.get_or_insert(now);
        self.lease_until = self.lease_until.min(now);
        if self.on_lapse == OnLapse::Hold {
            self.phase = Phase::Unknown;
        }
    }

    pub(super) fn extend(&mut self, extra: Ms) {
        self.tail += extra;
        self.expires += extra;
        if self.finished.is_some() {
            self.shown.push(self.expires);
        }
    }

    pub(super) fn record(&self, now: Ms) -> Record {
        Record {
            token: self.token,
            fingerprint: self.fingerprint,
            on_lapse: self.on_lapse,
            attempt: self.attempt,
            meta: Arc::clone(&self.meta),
            created_at: wall(self.created),
            completed_at: self.finished.map(wall),
            expires_at: wall(self.expires),
            keep_left: millis(self.expires.saturating_sub(now)),
            replays: self.replays,
            state: match &self.phase {
                Phase::Pending => State::Pending {
                    lease_left: millis(self.lease_until.saturating_sub(now)),
                },
                Phase::Finished(response) => State::finished(Arc::clone(response)),
                Phase::Unknown => State::Unknown,
            },
        }
    }

    /// From the claim to the record's end, or until it expires.
    pub(in crate::sim) fn whole(&self) -> Window {
        let to = self.closed.map_or(self.expires, |(at, _)| at);
        Window::new(self.granted, to)
    }

    /// While it was claimed and had no answer.
    pub(in crate::sim) fn unfinished(&self) -> Window {
        let whole = self.whole();
        Window::new(whole.from, self.finished.unwrap_or(whole.to))
    }

    /// While its lease was live.
    pub(in crate::sim) fn live(&self) -> Window {
        let pending = self.pending();
        Window::new(pending.from, pending.to.min(self.lease_until))
    }

    /// While it was claimed under a lease, live or lapsed.
    fn pending(&self) -> Window {
        let unfinished = self.unfinished();
        let to = match (self.on_lapse, self.doubted) {
            (OnLapse::Hold, Some(at)) => at,
            (OnLapse::Hold | OnLapse::Rerun, _) => unfinished.to,
        };
        Window::new(unfinished.from, to)
    }

    /// Whether nobody could say, at some moment of `window`, if it had happened.
    pub(in crate::sim) fn in_doubt(&self, window: Window) -> bool {
        let unfinished = self.unfinished();
        Window::new(self.lease_until, unfinished.to).meets(window)
            || self.lapses.iter().any(|lapse| lapse.meets(window))
            || self
                .doubted
                .is_some_and(|at| Window::new(at, unfinished.to).meets(window))
    }

    /// When its lease was over, as far as it is by now: finished, released, lapsed, gone.
    pub(in crate::sim) fn over(&self, now: Ms) -> Option<Ms> {
        let end = self.live().to;
        (end <= now).then_some(end)
    }

    pub(in crate::sim) fn response(&self) -> Option<&Arc<Response>> {
        match &self.phase {
            Phase::Finished(response) => Some(response),
            Phase::Pending | Phase::Unknown => None,
        }
    }

    /// While its answer was stored.
    pub(in crate::sim) fn stored(&self) -> Option<Window> {
        Some(Window::new(self.finished?, self.whole().to))
    }

    /// Whether an answer could have named `expiry` as the end of its retention.
    pub(in crate::sim) fn showed(&self, expiry: onlyonce_core::Timestamp) -> bool {
        self.shown.iter().any(|it| wall(*it) == expiry)
    }
}
