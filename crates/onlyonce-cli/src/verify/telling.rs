//! Comparing answers: whether two come from one execution, and when that cannot be told.

use onlyonce_core::Reason;

use super::answer::{Answer, replay_status};
use super::cause::Code;
use super::probe::Probe;
use super::refusal::check_refusal;
use super::report::Judged;

/// Whether sameness was seen, or only not refuted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// Two executions would have answered differently.
    Same,
    /// Two executions answer the same bytes, so one cannot be told from two.
    CannotTell,
}

impl Told {
    /// Passes if it was seen.
    pub(crate) fn conclude(self, because: impl Into<String>) -> Judged {
        match self {
            Self::Same => Judged::pass(because),
            Self::CannotTell => Judged::inconclusive(
                "cannot tell: two executions answer the same bytes, so a second one would not show",
            ),
        }
    }
}

impl Probe<'_> {
    /// Holds `retry` against `first`: a replay of it, as the profile says. Fails otherwise.
    pub(crate) fn replays(
        &self,
        first: &Answer,
        retry: &Answer,
        what: &str,
    ) -> Result<Told, Judged> {
        let is_telling = self.is_telling;
        self.replays_telling(first, retry, what, is_telling)
    }

    /// The same, where it is known otherwise whether two executions answer differently.
    pub(crate) fn replays_telling(
        &self,
        first: &Answer,
        retry: &Answer,
        what: &str,
        is_telling: bool,
    ) -> Result<Told, Judged> {
        let expected = replay_status(self.policy(), first.status);
        if retry.status != expected {
            let judged = Judged::fail(format!(
                "{what} was answered {}, the profile says {expected}",
                retry.status
            ));
            let is_another = is_telling && !first.is_like(retry, self.policy());
            return Err(match retry.is_success() {
                // Whatever its status, an answer of another execution shows that it ran.
                true if is_another => judged,
                true => judged.code(Code::WrongStatus),
                false => judged.code(Code::GoodRefused),
            });
        }
        self.is_of(first, retry, what, is_telling)
    }

    /// Holds `other` against `one`, whatever their status: fails if they are of two executions.
    pub(crate) fn is_of(
        &self,
        one: &Answer,
        other: &Answer,
        what: &str,
        is_telling: bool,
    ) -> Result<Told, Judged> {
        if !one.is_like(other, self.policy()) {
            let why = if is_telling {
                "another answer: it ran again, or the answer was not kept as it was"
            } else {
                "another answer"
            };
            return Err(Judged::fail(format!("{what} got {why}")));
        }
        Ok(if is_telling {
            Told::Same
        } else {
            Told::CannotTell
        })
    }

    /// Holds `answer` to be of an execution of its own, not a replay of `first`.
    pub(crate) fn runs_anew(&self, first: &Answer, answer: &Answer, what: &str) -> Judged {
        if answer.is_flagged(self.policy()) == Some(true) {
            return Judged::fail(format!("{what} got a replay"));
        }
        if !answer.is_success() {
            return Judged::fail(format!(
                "{what} was answered {} instead of run",
                answer.status
            ))
            .code(Code::GoodRefused);
        }
        if !first.is_like(answer, self.policy()) {
            return Judged::pass(format!("{what} got an answer of its own"));
        }
        if self.is_telling {
            return Judged::fail(format!("{what} got the answer of the first"));
        }
        Told::CannotTell.conclude("")
    }

    /// Holds `answer` to be the profile's refusal for `reason`.
    pub(crate) fn refuses(
        &self,
        answer: &Answer,
        reason: Reason,
        what: &str,
    ) -> Result<(), Judged> {
        check_refusal(self.policy(), answer, reason).map_err(|problem| {
            let judged = Judged::fail(format!("{what}: {problem}"));
            let expected = self.policy().http.refusals.row(reason).status;
            if answer.status == expected {
                judged.code(Code::ErrorShape)
            } else if answer.is_success() {
                // Not refused at all: what that means is the check's own matter.
                judged
            } else {
                judged.code(Code::WrongStatus)
            }
        })
    }

    /// Whether `answer` is one that a duplicate may get while the original runs.
    pub(crate) fn is_told_to_wait(&self, answer: &Answer) -> bool {
        let refusals = &self.policy().http.refusals;
        [Reason::InProgress, Reason::TooManyWaiters]
            .iter()
            .any(|reason| refusals.row(*reason).status == answer.status)
    }
}
