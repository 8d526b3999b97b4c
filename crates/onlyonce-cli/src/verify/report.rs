//! What was found: a judgement for every check, why, and the answers that show it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cause::{Cause, Code};

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// The promise was seen to hold.
    Pass,
    /// The promise was seen broken.
    Fail,
    /// It could not be seen from outside.
    Inconclusive,
    /// The profile promises nothing here, or there is nothing to ask.
    NotApplicable,
}

/// A judgement and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Judged {
    pub(crate) judgement: Judgement,
    pub(crate) because: String,
    /// The cause of a failure, where it is another than the check's usual one.
    pub(crate) code: Option<Code>,
}

impl Judged {
    /// The same, with this cause.
    pub(crate) fn code(self, code: Code) -> Self {
        Self {
            code: Some(code),
            ..self
        }
    }

    pub(crate) fn pass(because: impl Into<String>) -> Self {
        Self::new(Judgement::Pass, because)
    }

    pub(crate) fn fail(because: impl Into<String>) -> Self {
        Self::new(Judgement::Fail, because)
    }

    pub(crate) fn inconclusive(because: impl Into<String>) -> Self {
        Self::new(Judgement::Inconclusive, because)
    }

    pub(crate) fn not_applicable(because: impl Into<String>) -> Self {
        Self::new(Judgement::NotApplicable, because)
    }

    fn new(judgement: Judgement, because: impl Into<String>) -> Self {
        Self {
            judgement,
            because: because.into(),
            code: None,
        }
    }
}

/// What one check found.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The check's name on the command line.
    pub id: &'static str,
    /// The promise, as a sentence.
    pub title: &'static str,
    /// The requirements it is part of.
    pub proves: &'static [&'static str],
    /// How it came out.
    pub judgement: Judgement,
    /// Why.
    pub because: String,
    /// The cause of a failure.
    #[serde(skip)]
    pub code: Option<Code>,
    /// What was asked and answered.
    pub evidence: Vec<Evidence>,
}

/// One request and its answer, shortened and without secrets.
#[derive(Clone, Debug, Serialize)]
pub struct Evidence {
    /// The request, in words.
    pub sent: String,
    /// The answer's status; nothing if there was no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The answer's headers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Vec<String>>,
    /// The start of the answer's body.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub body: String,
    /// Why there was no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

impl Evidence {
    /// The request and its answer in one line.
    pub fn line(&self) -> String {
        let Self { sent, body, .. } = self;
        let mut line = match (self.status, &self.trouble) {
            (Some(status), _) => format!("{sent} → {status} {body}"),
            (None, Some(trouble)) => format!("{sent} → {trouble}"),
            (None, None) => sent.clone(),
        };
        line.truncate(line.trim_end().len());
        line
    }
}

/// How many checks came out how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Seen to hold.
    pub passed: usize,
    /// Seen broken.
    pub failed: usize,
    /// Not to be seen.
    pub inconclusive: usize,
    /// Not promised, or not asked.
    pub not_applicable: usize,
}

impl Summary {
    pub(crate) fn of(findings: &[Finding]) -> Self {
        let mut summary = Self::default();
        for finding in findings {
            *match finding.judgement {
                Judgement::Pass => &mut summary.passed,
                Judgement::Fail => &mut summary.failed,
                Judgement::Inconclusive => &mut summary.inconclusive,
                Judgement::NotApplicable => &mut summary.not_applicable,
            } += 1;
        }
        summary
    }

    /// Whether some promise was seen to hold, none broken, and, if strict, none left unseen.
    pub(crate) fn conforms(&self, strict: bool) -> bool {
        self.passed > 0 && self.failed == 0 && !(strict && self.inconclusive > 0)
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} inconclusive, {} not applicable",
            self.passed, self.failed, self.inconclusive, self.not_applicable
        )
    }
}

/// What a whole run found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The endpoint, without its query.
    pub url: String,
    /// How it was called.
    pub method: String,
    /// Whose promises it was held to.
    pub profile: String,
    /// Whether some promise was seen to hold and none broken (and, if strict, none left unseen).
    pub conforms: bool,
    /// How many checks came out how.
    pub summary: Summary,
    /// How many requests were sent.
    pub requests: usize,
    /// How long it took.
    pub millis: u64,
    /// Why checks failed, the most harmful first.
    pub causes: Vec<Cause>,
    /// Every check that was asked for.
    pub checks: Vec<Finding>,
}

impl Report {
    /// The cause that made the check called `id` fail.
    pub fn cause_of(&self, id: &str) -> Option<&Cause> {
        self.causes.iter().find(|cause| cause.checks.contains(&id))
    }

    /// What the check called `id` found, if it ran.
    pub fn finding(&self, id: &str) -> Option<&Finding> {
        self.checks.iter().find(|finding| finding.id == id)
    }
}
