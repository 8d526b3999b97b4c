//! Reports for people and for programs. Colours and progress only on a terminal.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use onlyonce_core::Timestamp;
use serde::Serialize;
use serde_json::json;

use super::check::CHECKS;
use super::plan::Plan;
use super::report::{Evidence, Finding, Judgement, Report};
use super::unusable::Unusable;
use super::{FAILED, Progress};

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
    is_json: bool,
    shows_progress: bool,
    has_started: bool,
}

impl Printer {
    pub(crate) fn new(is_json: bool) -> Self {
        let choice = if is_json {
            ColorChoice::Never
        } else {
            AutoStream::choice(&io::stdout())
        };
        Self {
            out: AutoStream::new(io::stdout(), choice),
            is_json,
            shows_progress: io::stderr().is_terminal(),
            has_started: false,
        }
    }

    /// The checks there are.
    pub(crate) fn list(&mut self) -> io::Result<()> {
        if self.is_json {
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
                if self.is_json {
                    Ok(())
                } else {
                    self.head(plan).and_then(|()| self.finding(finding))
                }
            }
        };
    }

    /// The end of a report for people, or all of one for programs.
    pub(crate) fn report(&mut self, report: &Report) -> io::Result<()> {
        if self.is_json {
            return self.json(report, true);
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
        if self.is_json {
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
                for evidence in &finding.evidence {
                    self.evidence(evidence)?;
                }
            }
        }
        self.out.flush()
    }

    fn evidence(&mut self, evidence: &Evidence) -> io::Result<()> {
        let Evidence { sent, body, .. } = evidence;
        match (evidence.status, &evidence.trouble) {
            (Some(status), _) => writeln!(self.out, "        {sent} → {status} {body}")?,
            (None, Some(trouble)) => writeln!(self.out, "        {sent} → {trouble}")?,
            (None, None) => writeln!(self.out, "        {sent}")?,
        }
        let headers: Vec<_> = evidence
            .headers
            .iter()
            .filter(|(name, _)| SHOWN.contains(&name.as_str()) || name.contains("idempoten"))
            .map(|(name, lines)| format!("{name}: {}", lines.join(" | ")))
            .collect();
        if !headers.is_empty() {
            writeln!(self.out, "          {DIM}{}{DIM:#}", headers.join("; "))?;
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
