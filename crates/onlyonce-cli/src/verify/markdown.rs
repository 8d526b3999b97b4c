//! A report as Markdown, for a comment, a ticket or a job summary.

use super::plan::Plan;
use super::report::{Evidence, Judgement, Report};
use super::unusable::Unusable;

/// The report of a run.
pub(crate) fn report(report: &Report) -> String {
    let verdict = if report.conforms {
        "conforms"
    } else {
        "does not conform"
    };
    let mut lines = vec![
        format!("# {} {} {verdict}", report.method, span(&report.url)),
        String::new(),
        format!(
            "Held to the profile {}: {} ({} requests, {:.1} s).",
            escaped(&report.profile),
            report.summary,
            report.requests,
            report.millis as f64 / 1000.0
        ),
    ];
    if report.summary.passed == 0 && report.summary.failed == 0 {
        lines.push("Nothing was seen to hold, so nothing is proven.".to_owned());
    }
    for (index, cause) in report.causes.iter().enumerate() {
        lines.push(String::new());
        lines.push(format!(
            "## {}. {}: {}",
            index + 1,
            first_upper(cause.harm.words()),
            cause.title
        ));
        lines.push(String::new());
        lines.push(format!("- **Code:** `{}`", cause.code));
        lines.push(format!("- **Why it matters:** {}", cause.why));
        lines.push(format!("- **How to mend it:** {}", cause.mend));
        lines.push("- **Seen by:**".to_owned());
        lines.extend(seen(report, &cause.checks));
        lines.extend(evidence(report, cause.checks.first().copied()));
    }
    lines.push(String::new());
    lines.push("## All checks".to_owned());
    lines.push(String::new());
    lines.push("| check | promise | result | |".to_owned());
    lines.push("|---|---|---|---|".to_owned());
    for finding in &report.checks {
        lines.push(format!(
            "| `{}` | {} | {} | {} |",
            finding.id,
            finding.title,
            word(finding.judgement),
            escaped(&finding.because)
        ));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// The report of an endpoint that cannot be used.
pub(crate) fn unusable(plan: &Plan, unusable: &Unusable) -> String {
    format!(
        "# {} {} was not verified\n\n{}\n\nHint: {}\n",
        plan.method,
        span(&plan.target.shown()),
        escaped(&unusable.problem),
        escaped(&unusable.hint)
    )
}

fn seen(report: &Report, checks: &[&str]) -> Vec<String> {
    let findings = checks.iter().filter_map(|id| report.finding(id));
    findings
        .map(|it| format!("  - `{}`: {}", it.id, escaped(&it.because)))
        .collect()
}

/// What the check that shows a cause best asked and was answered.
fn evidence(report: &Report, check: Option<&str>) -> Vec<String> {
    let finding = check.and_then(|id| report.finding(id));
    let Some(finding) = finding.filter(|it| !it.evidence.is_empty()) else {
        return Vec::new();
    };
    // Indented by four: a fence could be closed by what the server sent.
    let mut lines = vec![String::new(), format!("Evidence of `{}`:", finding.id)];
    lines.push(String::new());
    let told = finding.evidence.iter().map(Evidence::line);
    lines.extend(told.map(|line| format!("    {line}")));
    lines
}

fn word(judgement: Judgement) -> &'static str {
    match judgement {
        Judgement::Pass => "pass",
        Judgement::Fail => "**FAIL**",
        Judgement::Inconclusive => "inconclusive",
        Judgement::NotApplicable => "not applicable",
    }
}

fn first_upper(words: &str) -> String {
    let mut chars = words.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}

fn span(text: &str) -> String {
    format!("`{}`", text.replace('`', "'"))
}

/// Text that a server or a file gave: one line, and no markup of its own.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' => escaped.push(' '),
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' => {
                escaped.push('\\');
                escaped.push(c);
            }
            _ => escaped.push(c),
        }
    }
    escaped
}
