//! `onlyonce verify`: a black-box conformance run. It sends real requests to any HTTP server, ours
//! or not, and judges the answers by a profile's promises. What to expect is read from the
//! profile's policy; nothing here knows a profile.

use std::process::ExitCode;
use std::time::Duration;

mod answer;
mod args;
mod ask;
mod cause;
mod check;
mod checks;
mod client;
mod explain;
mod journal;
mod json;
mod junit;
mod keys;
mod markdown;
mod payload;
mod plan;
mod print;
mod probe;
mod refusal;
mod report;
mod secrets;
mod target;
mod telling;
mod tls;
mod unusable;
mod watch;

pub use args::{Args, Format, Need};
pub use cause::{CODES, Cause, Code, Harm};
pub use check::{CHECKS, Check};
pub use plan::{Plan, PlanError};
pub use report::{Evidence, Finding, Judgement, Report, Summary};
pub use unusable::Unusable;

use self::cause::causes;
use self::check::Ruling;
use self::print::Printer;
use self::probe::Probe;
use self::report::Judged;

/// How long a run may take; what is left then is inconclusive.
const RUN_MAX: Duration = Duration::from_secs(300);

const CONFORMS: u8 = 0;
const DOES_NOT_CONFORM: u8 = 1;
const FAILED: u8 = 2;

/// Does what the arguments say; returns the exit code.
pub async fn run(args: &Args) -> ExitCode {
    let mut printer = Printer::new(args.format());
    if args.list {
        return printer.list().map_or(FAILED.into(), |()| CONFORMS.into());
    }
    if let Some(code) = &args.explain {
        return match explain::explain(code) {
            Ok(text) => printer
                .text(&text)
                .map_or(FAILED.into(), |()| CONFORMS.into()),
            Err(error) => printer.trouble(&error),
        };
    }
    if args.watch && ![Format::Text, Format::Json].contains(&args.format()) {
        let error = PlanError::new("--watch writes text or json: one line per round");
        return printer.trouble(&error);
    }
    let plan = match Plan::resolve(args) {
        Ok(plan) => plan,
        Err(error) => return printer.trouble(&error),
    };
    if args.watch {
        return watch::watch(&plan, args.every, &mut printer).await;
    }
    match verify(&plan, &mut |progress| printer.progress(&plan, &progress)).await {
        Ok(report) => match printer.report(&report, plan.strict) {
            Ok(()) if report.conforms => CONFORMS.into(),
            Ok(()) => DOES_NOT_CONFORM.into(),
            // The reader of the report has gone.
            Err(_) => FAILED.into(),
        },
        Err(unusable) => printer.unusable(&plan, &unusable),
    }
}

/// What is going on in a run.
pub enum Progress<'a> {
    /// This check is next; it is the so-and-so-many-th of all.
    Checking(&'static Check, usize, usize),
    /// A check has ended.
    Checked(&'a Finding),
}

/// Runs the plan's checks, one after the other.
pub async fn verify(plan: &Plan, on: &mut dyn FnMut(Progress<'_>)) -> Result<Report, Unusable> {
    let probe = Probe::open(plan).await?;
    let mut findings = Vec::new();
    for (index, check) in plan.checks.iter().enumerate() {
        on(Progress::Checking(check, index + 1, plan.checks.len()));
        let finding = find(&probe, check).await;
        on(Progress::Checked(&finding));
        findings.push(finding);
    }
    let summary = Summary::of(&findings);
    Ok(Report {
        url: plan.target.shown(),
        method: plan.method.to_string(),
        profile: plan.profile.clone(),
        conforms: summary.conforms(plan.strict),
        summary,
        requests: probe.sent(),
        millis: u64::try_from(probe.now().as_millis()).unwrap_or(u64::MAX),
        causes: causes(&findings),
        checks: findings,
    })
}

async fn find(probe: &Probe<'_>, check: &'static Check) -> Finding {
    let left = RUN_MAX.saturating_sub(probe.now());
    let ruling: Ruling = tokio::time::timeout(left, (check.run)(probe))
        .await
        .unwrap_or_else(|_| {
            let limit = humantime::format_duration(RUN_MAX);
            Err(Judged::inconclusive(format!("the run's {limit} are over")))
        });
    let (Ok(judged) | Err(judged)) = ruling;
    let mut journal = probe.journal();
    Finding {
        id: check.id,
        title: check.title,
        proves: check.proves,
        judgement: judged.judgement,
        code: (judged.judgement == Judgement::Fail).then(|| judged.code.unwrap_or(check.code)),
        because: journal.hidden(&judged.because),
        evidence: journal.take(),
    }
}
