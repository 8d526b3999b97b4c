//! What operators do to a record, over all its tries. What a try wrote may have been carried on by another
//! process, whose next step hides it: then it has happened. It is not reported as nothing, and not done once
//! more to what has come after it.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::entry::{Change, Kept, Phase, timestamp};
use onlyonce_core::operate::Resolved;
use onlyonce_core::{Response, Timestamp, Token};

use super::SlotRegister;

/// So long a register remembers that something was done to it: longer than its steps are tried.
const DONE_KEPT: Duration = Duration::from_secs(60);

/// One extension of a record, which must not add up over its tries.
pub(crate) struct Extending {
    mark: Token,
    extra: Duration,
}

impl Extending {
    pub(crate) fn new(mark: Token, extra: Duration) -> Self {
        Self { mark, extra }
    }

    /// One try.
    pub(crate) fn step(&mut self, register: &mut SlotRegister, now: Duration) -> (bool, Change) {
        if register.is_dead(&self.mark, now) {
            return (true, Change::Nothing);
        }
        let (is_there, change) = register.entry.extend(self.extra, now);
        register.mark(self.mark, change, now);
        (is_there, change)
    }
}

/// One count of replays, which must not add up over its tries.
pub(crate) struct Counting {
    mark: Token,
    count: u64,
    /// The number that the last try arrived at.
    number: Option<u64>,
}

impl Counting {
    pub(crate) fn new(mark: Token, count: u64) -> Self {
        let number = None;
        Self {
            mark,
            count,
            number,
        }
    }

    /// One try.
    pub(crate) fn step(
        &mut self,
        register: &mut SlotRegister,
        now: Duration,
    ) -> (Option<u64>, Change) {
        if register.is_dead(&self.mark, now) {
            return (self.number, Change::Nothing);
        }
        let change = register.entry.count_replays(self.count, now);
        register.mark(self.mark, change, now);
        self.number = register.entry.live(now).map(|kept| kept.replays);
        (self.number, change)
    }
}

impl SlotRegister {
    /// Remembers a change among the tokens that are used up.
    fn mark(&mut self, mark: Token, change: Change, now: Duration) {
        if change != Change::Nothing {
            self.dead.push((mark, now.saturating_add(DONE_KEPT)));
        }
    }
}

/// One order to forget what is in a slot.
#[derive(Default)]
pub(crate) struct Forgetting {
    /// What the last try was to forget: whose claim, and when its slot was first claimed.
    last: Option<(Token, Timestamp)>,
}

impl Forgetting {
    /// One try.
    pub(crate) fn step(&mut self, register: &mut SlotRegister, now: Duration) -> (bool, Change) {
        let there = register.entry.live(now);
        if let Some(last) = self.last
            && !there.is_some_and(|kept| goes_on(last, kept))
        {
            return (true, Change::Nothing);
        }
        self.last = there.map(|kept| (kept.token, kept.created_at));
        register.entry.forget(now)
    }
}

/// One order to forget what is in doubt in a slot.
#[derive(Default)]
pub(crate) struct Discarding {
    /// What the last try was to forget: whose claim, and when its slot was first claimed.
    last: Option<(Token, Timestamp)>,
}

impl Discarding {
    /// One try.
    pub(crate) fn step(
        &mut self,
        register: &mut SlotRegister,
        now: Duration,
    ) -> (Resolved, Change) {
        let there = register.entry.live(now);
        if let Some(last) = self.last
            && !there.is_some_and(|kept| goes_on(last, kept))
        {
            return (Resolved::Stored, Change::Nothing);
        }
        let there = there.map(|kept| (kept.token, kept.created_at));
        let (discarded, change) = register.entry.discard(now);
        self.last = there.filter(|_| matches!(discarded, Resolved::Stored));
        (discarded, change)
    }
}

/// Whether this is the record that was there before: an attempt that takes over keeps when it was made.
fn goes_on((token, created_at): (Token, Timestamp), kept: &Kept) -> bool {
    kept.token == token || (kept.attempt > 1 && kept.created_at == created_at)
}

/// One answer given for what is in doubt.
pub(crate) struct Resolving<'a> {
    response: &'a Arc<Response>,
    keep_for: Duration,
    /// Whose claim the last try was to answer for, and when.
    last: Option<(Token, Timestamp)>,
}

impl<'a> Resolving<'a> {
    pub(crate) fn new(response: &'a Arc<Response>, keep_for: Duration) -> Self {
        Self {
            response,
            keep_for,
            last: None,
        }
    }

    /// One try.
    pub(crate) fn step(
        &mut self,
        register: &mut SlotRegister,
        now: Duration,
    ) -> (Resolved, Change) {
        let there = register.entry.live(now);
        if there.is_some_and(|kept| self.is_answered(kept)) {
            return (Resolved::Stored, Change::Nothing);
        }
        let token = there.map(|kept| kept.token);
        let (resolved, change) = register.entry.resolve(self.response, self.keep_for, now);
        let is_stored = matches!(resolved, Resolved::Stored);
        self.last = token.filter(|_| is_stored).map(|it| (it, timestamp(now)));
        (resolved, change)
    }

    /// Whether the last try has happened: its answer is there, as of then.
    fn is_answered(&self, kept: &Kept) -> bool {
        let is_ours = match &kept.phase {
            Phase::Finished(response) => {
                response.status == self.response.status && response.body == self.response.body
            }
            Phase::Pending { .. } | Phase::Unknown => false,
        };
        let told = self.last.map(|(token, at)| (token, Some(at)));
        is_ours && told == Some((kept.token, kept.completed_at))
    }
}
