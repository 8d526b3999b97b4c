//! What was found: a judgement for every check, why, and the answers that show it.

use std::collections::BTreeMap;

use serde::Serialize;

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
}

impl Judged {
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

    /// Whether no promise was seen broken, and, if strict, none left unseen.
    pub(crate) fn conforms(&self, strict: bool) -> bool {
        self.failed == 0 && !(strict && self.inconclusive > 0)
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
    pub profile: &'static str,
    /// Whether no promise was seen broken (and, if strict, none left unseen).
    pub conforms: bool,
    /// How many checks came out how.
    pub summary: Summary,
    /// How many requests were sent.
    pub requests: usize,
    /// How long it took.
    pub millis: u64,
    /// Every check that was asked for.
    pub checks: Vec<Finding>,
}

impl Report {
    /// What the check called `id` found, if it ran.
    pub fn finding(&self, id: &str) -> Option<&Finding> {
        self.checks.iter().find(|finding| finding.id == id)
    }
}
