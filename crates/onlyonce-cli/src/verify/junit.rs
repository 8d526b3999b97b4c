//! A report as JUnit XML, as CI systems read it: one test case per check.

use std::io;

use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};

use super::plan::Plan;
use super::report::{Evidence, Finding, Judgement, Report};
use super::unusable::Unusable;

const SUITE: &str = "onlyonce verify";
const INDENT: usize = 2;

type Out = Writer<Vec<u8>>;

/// The report of a run.
pub(crate) fn report(report: &Report, strict: bool) -> io::Result<String> {
    // What nothing was seen of must not look like success.
    let proves_nothing = report.summary.passed == 0 && report.summary.failed == 0;
    let failures = report
        .checks
        .iter()
        .filter(|finding| is_failure(finding, strict))
        .count();
    let skipped = report.checks.len() - report.summary.passed - failures;
    let cases = report.checks.len() + usize::from(proves_nothing);
    let seconds = format!("{:.3}", report.millis as f64 / 1000.0);
    document(|out| {
        out.create_element("testsuite")
            .with_attribute(("name", SUITE))
            .with_attribute(("tests", cases.to_string().as_str()))
            .with_attribute(("failures", failures.to_string().as_str()))
            .with_attribute(("errors", if proves_nothing { "1" } else { "0" }))
            .with_attribute(("skipped", skipped.to_string().as_str()))
            .with_attribute(("time", seconds.as_str()))
            .write_inner_content(|out| {
                properties(out, &report.url, &report.method, &report.profile)?;
                for finding in &report.checks {
                    case(out, report, finding, strict)?;
                }
                if proves_nothing {
                    error(out, "no check passed", "nothing was seen to hold")?;
                }
                Ok(())
            })?;
        Ok(())
    })
}

/// The report of an endpoint that cannot be used: an error, never an empty success.
pub(crate) fn unusable(plan: &Plan, unusable: &Unusable) -> io::Result<String> {
    document(|out| {
        out.create_element("testsuite")
            .with_attribute(("name", SUITE))
            .with_attribute(("tests", "1"))
            .with_attribute(("failures", "0"))
            .with_attribute(("errors", "1"))
            .with_attribute(("skipped", "0"))
            .write_inner_content(|out| {
                let url = plan.target.shown();
                properties(out, &url, plan.method.as_str(), &plan.profile)?;
                error(out, &unusable.problem, &unusable.hint)
            })?;
        Ok(())
    })
}

fn document(suite: impl FnOnce(&mut Out) -> io::Result<()>) -> io::Result<String> {
    let mut out = Writer::new_with_indent(Vec::new(), b' ', INDENT);
    out.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    out.create_element("testsuites")
        .write_inner_content(suite)?;
    let mut text = String::from_utf8(out.into_inner()).map_err(io::Error::other)?;
    text.push('\n');
    Ok(text)
}

fn properties(out: &mut Out, url: &str, method: &str, profile: &str) -> io::Result<()> {
    out.create_element("properties")
        .write_inner_content(|out| {
            for (name, value) in [("url", url), ("method", method), ("profile", profile)] {
                out.create_element("property")
                    .with_attribute(("name", name))
                    .with_attribute(("value", allowed(value).as_str()))
                    .write_empty()?;
            }
            Ok(())
        })?;
    Ok(())
}

fn case(out: &mut Out, report: &Report, finding: &Finding, strict: bool) -> io::Result<()> {
    let name = format!("{}: {}", finding.id, finding.title);
    let case = out
        .create_element("testcase")
        .with_attribute(("classname", SUITE))
        .with_attribute(("name", name.as_str()));
    let because = allowed(&finding.because);
    if is_failure(finding, strict) {
        let cause = report.cause_of(finding.id);
        let kind = cause.map_or("inconclusive", |cause| cause.code);
        case.write_inner_content(|out| {
            out.create_element("failure")
                .with_attribute(("type", kind))
                .with_attribute(("message", because.as_str()))
                .write_text_content(BytesText::new(&details(report, finding)))?;
            Ok(())
        })?;
        return Ok(());
    }
    match finding.judgement {
        Judgement::Pass => case.write_empty()?,
        Judgement::Fail | Judgement::Inconclusive | Judgement::NotApplicable => case
            .write_inner_content(|out| {
                out.create_element("skipped")
                    .with_attribute(("message", because.as_str()))
                    .write_empty()?;
                Ok(())
            })?,
    };
    Ok(())
}

fn error(out: &mut Out, problem: &str, hint: &str) -> io::Result<()> {
    out.create_element("testcase")
        .with_attribute(("classname", SUITE))
        .with_attribute(("name", "the endpoint can be verified"))
        .write_inner_content(|out| {
            out.create_element("error")
                .with_attribute(("type", "not-verified"))
                .with_attribute(("message", allowed(problem).as_str()))
                .write_text_content(BytesText::new(&allowed(hint)))?;
            Ok(())
        })?;
    Ok(())
}

fn is_failure(finding: &Finding, strict: bool) -> bool {
    match finding.judgement {
        Judgement::Fail => true,
        Judgement::Inconclusive => strict,
        Judgement::Pass | Judgement::NotApplicable => false,
    }
}

/// Why it matters, how to mend it, and what was seen.
fn details(report: &Report, finding: &Finding) -> String {
    let mut lines = Vec::new();
    if let Some(cause) = report.cause_of(finding.id) {
        lines.push(format!("{}: {}", cause.harm.words(), cause.title));
        lines.push(format!("why: {}", cause.why));
        lines.push(format!("mend: {}", cause.mend));
    }
    lines.extend(finding.evidence.iter().map(Evidence::line));
    allowed(&lines.join("\n"))
}

/// Without the characters that no XML document may contain.
fn allowed(text: &str) -> String {
    let is_allowed = |c: &char| !c.is_control() || ['\n', '\t'].contains(c);
    text.chars()
        .filter(|c| is_allowed(c) && !['\u{fffe}', '\u{ffff}'].contains(c))
        .collect()
}
