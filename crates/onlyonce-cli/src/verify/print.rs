//! Reports for people and for programs. Colours and progress only on a terminal.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use onlyonce_core::Timestamp;
use serde::Serialize;
use serde_json::json;

use super::args::Format;
use super::cause::Cause;
use super::check::CHECKS;
use super::plan::Plan;
use super::report::{Evidence, Finding, Judgement, Report};
use super::unusable::Unusable;
use super::{FAILED, Progress, junit, markdown};

const DIM: Style = Style::new().dimmed();
const BOLD: Style = Style::new().bold();
const ERASE_LINE: &str = "\r\x1b[2K";
/// Headers worth showing to people; JSON has them all.
const SHOWN: [&str; 7] = [
    "content-type",
    "date",
    "etag",
    "idempotency-key",
    "location",
    "retry-after",
    "set-cookie",
];

/// Writes what a run finds.
pub(crate) struct Printer {
    out: AutoStream<io::Stdout>,
    format: Format,
    shows_progress: bool,
    has_started: bool,
}

impl Printer {
    pub(crate) fn new(format: Format) -> Self {
        let choice = match format {
            Format::Text => AutoStream::choice(&io::stdout()),
            Format::Markdown | Format::Junit | Format::Json => ColorChoice::Never,
        };
        Self {
            out: AutoStream::new(io::stdout(), choice),
            format,
            shows_progress: io::stderr().is_terminal(),
            has_started: false,
        }
    }

    /// The checks there are.
    pub(crate) fn list(&mut self) -> io::Result<()> {
        if self.format == Format::Json {
            let checks: Vec<_> = CHECKS
                .iter()
                .map(|it| json!({"id": it.id, "title": it.title, "proves": it.proves}))
                .collect();
            return self.json(&checks, true);
        }
        for check in CHECKS {
            let proves = check.proves.join(" ");
            writeln!(
                self.out,
                "{BOLD}{:<19}{BOLD:#} {DIM}{proves:<7}{DIM:#} {}",
                check.id, check.title
            )?;
        }
        self.out.flush()
    }

    /// A text as it is.
    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        write!(self.out, "{text}")?;
        self.out.flush()
    }

    /// An endpoint that cannot be used: said to people, and in the report that programs wait for.
    pub(crate) fn unusable(&mut self, plan: &Plan, unusable: &Unusable) -> ExitCode {
        let written = match self.format {
            Format::Text => Ok(()),
            Format::Markdown => self.text(&markdown::unusable(plan, unusable)),
            Format::Junit => junit::unusable(plan, unusable).and_then(|text| self.text(&text)),
            Format::Json => {
                let told = json!({
                    "url": plan.target.shown(),
                    "method": plan.method.as_str(),
                    "profile": plan.profile,
                    "conforms": false,
                    "error": unusable.problem,
                    "hint": unusable.hint,
                });
                self.json(&told, true)
            }
        };
        drop(written);
        self.trouble(unusable)
    }

    /// Why there is no report.
    pub(crate) fn trouble(&mut self, error: &dyn Display) -> ExitCode {
        self.erase();
        // If stderr is closed, there is no other place to report it.
        let _ = writeln!(io::stderr(), "error: {error}");
        FAILED.into()
    }

    /// Shows a check when it begins and when it has ended.
    pub(crate) fn progress(&mut self, plan: &Plan, progress: &Progress<'_>) {
        // A closed output is noticed when the report is finished.
        let _ = match progress {
            Progress::Checking(check, index, of) => {
                if self.shows_progress {
                    write!(io::stderr(), "{ERASE_LINE}{index}/{of} {}…", check.id)
                } else {
                    Ok(())
                }
            }
            Progress::Checked(finding) => {
                self.erase();
                if self.format == Format::Text {
                    self.head(plan).and_then(|()| self.finding(finding))
                } else {
                    Ok(())
                }
            }
        };
    }

    /// The end of a report for people, or all of one for programs.
    pub(crate) fn report(&mut self, report: &Report, strict: bool) -> io::Result<()> {
        match self.format {
            Format::Text => self.summary(report),
            Format::Markdown => self.text(&markdown::report(report)),
            Format::Junit => self.text(&junit::report(report, strict)?),
            Format::Json => self.json(report, true),
        }
    }

    fn summary(&mut self, report: &Report) -> io::Result<()> {
        if !report.causes.is_empty() {
            writeln!(self.out, "\n{BOLD}What to mend, the worst first{BOLD:#}")?;
        }
        for (index, cause) in report.causes.iter().enumerate() {
            self.cause(report, cause, index + 1)?;
        }
        if report.summary.passed == 0 && report.summary.failed == 0 {
            writeln!(
                self.out,
                "\nNothing was seen to hold, so nothing is proven."
            )?;
        }
        let style = if report.conforms {
            Style::new().fg_color(Some(AnsiColor::Green.into()))
        } else {
            Style::new().fg_color(Some(AnsiColor::Red.into())).bold()
        };
        let seconds = report.millis as f64 / 1000.0;
        writeln!(
            self.out,
            "\n{style}{}{style:#} {DIM}({} requests, {seconds:.1} s){DIM:#}",
            report.summary, report.requests
        )?;
        self.out.flush()
    }

    /// One round of a watch, as one line.
    pub(crate) fn round(
        &mut self,
        at: Timestamp,
        round: &Result<Report, Unusable>,
    ) -> io::Result<()> {
        if self.format == Format::Json {
            let line = match round {
                Ok(report) => {
                    json!({"at": at.to_rfc3339(), "conforms": report.conforms, "report": report})
                }
                Err(error) => {
                    json!({"at": at.to_rfc3339(), "conforms": false, "error": error.problem})
                }
            };
            return self.json(&line, false);
        }
        match round {
            Ok(report) => {
                let failed: Vec<_> = report
                    .checks
                    .iter()
                    .filter(|finding| finding.judgement == Judgement::Fail)
                    .map(|finding| format!("{} ({})", finding.id, finding.because))
                    .collect();
                let word = if report.conforms { "ok" } else { "FAILED" };
                write!(self.out, "{at} {word}: {}", report.summary)?;
                if !failed.is_empty() {
                    write!(self.out, ": {}", failed.join("; "))?;
                }
                writeln!(self.out)?;
            }
            Err(error) => writeln!(self.out, "{at} FAILED: {}", error.problem)?,
        }
        self.out.flush()
    }

    fn head(&mut self, plan: &Plan) -> io::Result<()> {
        if std::mem::replace(&mut self.has_started, true) {
            return Ok(());
        }
        writeln!(
            self.out,
            "{BOLD}{} {}{BOLD:#} held to the profile {BOLD}{}{BOLD:#}\n",
            plan.method,
            plan.target.shown(),
            plan.profile
        )
    }

    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        let (word, color) = match finding.judgement {
            Judgement::Pass => ("pass", AnsiColor::Green),
            Judgement::Fail => ("FAIL", AnsiColor::Red),
            Judgement::Inconclusive => ("?", AnsiColor::Yellow),
            Judgement::NotApplicable => ("-", AnsiColor::BrightBlack),
        };
        let style = Style::new().fg_color(Some(color.into()));
        let proves = finding.proves.join(" ");
        writeln!(
            self.out,
            "{style}{word:<4}{style:#}  {:<19} {DIM}{proves:<7}{DIM:#} {}",
            finding.id, finding.title
        )?;
        match finding.judgement {
            Judgement::Pass => {}
            Judgement::Inconclusive | Judgement::NotApplicable => {
                writeln!(self.out, "      {DIM}{}{DIM:#}", finding.because)?;
            }
            Judgement::Fail => {
                writeln!(self.out, "      {style}{}{style:#}", finding.because)?;
            }
        }
        self.out.flush()
    }

    /// A root cause, with the evidence of the check that shows it best.
    fn cause(&mut self, report: &Report, cause: &Cause, number: usize) -> io::Result<()> {
        let style = Style::new().fg_color(Some(AnsiColor::Red.into()));
        writeln!(
            self.out,
            "\n{number}. {style}{}{style:#}: {} {DIM}[{}]{DIM:#}",
            cause.harm.words().to_uppercase(),
            cause.title,
            cause.code
        )?;
        writeln!(self.out, "   why   {}", cause.why)?;
        writeln!(self.out, "   mend  {}", cause.mend)?;
        let findings: Vec<_> = cause
            .checks
            .iter()
            .filter_map(|id| report.finding(id))
            .collect();
        for (index, finding) in findings.iter().enumerate() {
            let lead = if index == 0 { "seen" } else { "" };
            writeln!(self.out, "   {lead:<5} {}: {}", finding.id, finding.because)?;
            // The others show the same again; --json has all of it.
            if index == 0 {
                for evidence in &finding.evidence {
                    self.evidence(evidence)?;
                }
            }
        }
        Ok(())
    }

    fn evidence(&mut self, evidence: &Evidence) -> io::Result<()> {
        writeln!(self.out, "           {}", evidence.line())?;
        let headers: Vec<_> = evidence
            .headers
            .iter()
            .filter(|(name, _)| SHOWN.contains(&name.as_str()) || name.contains("idempoten"))
            .map(|(name, lines)| format!("{name}: {}", lines.join(" | ")))
            .collect();
        if !headers.is_empty() {
            writeln!(self.out, "             {DIM}{}{DIM:#}", headers.join("; "))?;
        }
        Ok(())
    }

    fn json(&mut self, value: &impl Serialize, is_pretty: bool) -> io::Result<()> {
        let text = if is_pretty {
            serde_json::to_string_pretty(value)
        } else {
            serde_json::to_string(value)
        };
        writeln!(self.out, "{}", text.map_err(io::Error::other)?)?;
        self.out.flush()
    }

    fn erase(&mut self) {
        if self.shows_progress {
            let _ = write!(io::stderr(), "{ERASE_LINE}");
        }
    }
}
