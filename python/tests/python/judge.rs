//! A service in another process, and `onlyonce verify` as its judge. The Node package's tests use it too.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use clap::Parser as _;
use onlyonce_cli::verify::{Judgement, Plan, verify};
use onlyonce_cli::{Cli, Command as Asked};
use onlyonce_core::Profile;

/// A service that ends with the test.
pub(crate) struct Service {
    process: Child,
    pub(crate) url: String,
}

impl Service {
    /// Starts a program that prints its URL once it listens.
    pub(crate) fn start(command: &mut Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        let output = process.stdout.take().expect("its stdout is a pipe");
        BufReader::new(output).read_line(&mut line).unwrap();
        let url = line.trim().to_owned();
        assert!(url.starts_with("http://"), "{command:?}: {line:?}");
        Self { process, url }
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Holds a service to the promises of a profile: no check fails, and none is inconclusive.
pub(crate) async fn assert_conforms(service: &Service, profile: Profile) {
    let url = format!("{}/orders", service.url);
    let named = format!("--profile={profile}");
    let line = [
        "onlyonce",
        "verify",
        &url,
        "--slow-path=/slow",
        "--header=Authorization: Bearer alice-token",
        "--other-header=Authorization: Bearer bobby-token",
        "--concurrency=32",
        &named,
    ];
    let Asked::Verify(args) = Cli::try_parse_from(line).unwrap().command else {
        panic!("another command was read");
    };

    let plan = Plan::resolve(&args).unwrap();
    let report = verify(&plan, &mut |_| ()).await.unwrap();

    let wrong: Vec<_> = report
        .checks
        .iter()
        .filter(|it| !matches!(it.judgement, Judgement::Pass | Judgement::NotApplicable))
        .map(|it| {
            format!(
                "{} {:?}: {} {:?}",
                it.id, it.judgement, it.because, it.evidence
            )
        })
        .collect();
    assert!(wrong.is_empty(), "{profile}: {}", wrong.join("\n"));
    assert!(report.conforms);
}
