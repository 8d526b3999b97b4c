//! Servers to verify, and the ways to verify them.

use std::collections::BTreeMap;

use axum::Router;
use clap::Parser;
use onlyonce_cli::verify::{Judgement, Plan, Report, Unusable, verify};
use onlyonce_cli::{Cli, Command};
use tokio::net::TcpListener;

pub(crate) mod foreign;
pub(crate) mod gateway;
pub(crate) mod npm;
pub(crate) mod ours;
pub(crate) mod program;
pub(crate) mod prometheus;
pub(crate) mod secured;

/// Serves on a free port; gives the URL of its orders.
pub(crate) async fn serve(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, app).into_future());
    format!("http://{address}/orders")
}

/// The plan that a command line makes.
pub(crate) fn plan(url: &str, args: &[&str]) -> Result<Plan, String> {
    let line = ["onlyonce", "verify", url]
        .into_iter()
        .chain(args.iter().copied());
    let cli = Cli::try_parse_from(line).map_err(|error| error.to_string())?;
    let Command::Verify(args) = cli.command else {
        panic!("another command was read");
    };
    Plan::resolve(&args).map_err(|error| error.to_string())
}

pub(crate) async fn try_verify(url: &str, args: &[&str]) -> Result<Report, Unusable> {
    verify(&plan(url, args).unwrap(), &mut |_| ()).await
}

pub(crate) async fn report(url: &str, args: &[&str]) -> Report {
    try_verify(url, args).await.unwrap()
}

/// The checks that did not simply pass, and how they came out.
pub(crate) fn unpassed(report: &Report) -> BTreeMap<&str, Judgement> {
    report
        .checks
        .iter()
        .filter(|finding| finding.judgement != Judgement::Pass)
        .map(|finding| (finding.id, finding.judgement))
        .collect()
}

/// The checks that failed.
pub(crate) fn failed(report: &Report) -> Vec<&str> {
    let findings = report.checks.iter();
    findings
        .filter(|finding| finding.judgement == Judgement::Fail)
        .map(|finding| finding.id)
        .collect()
}

/// Everything but the passes, to understand a red test.
pub(crate) fn told(report: &Report) -> String {
    let findings = report.checks.iter();
    let told: Vec<_> = findings
        .filter(|finding| finding.judgement != Judgement::Pass)
        .map(|it| {
            format!(
                "{} {:?}: {} {:?}",
                it.id, it.judgement, it.because, it.evidence
            )
        })
        .collect();
    told.join("\n")
}
