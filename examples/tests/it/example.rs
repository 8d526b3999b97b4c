//! An example's program: found next to this test, run within a time limit, killed if left behind.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// By when an example must have ended. Far more than it takes; nothing depends on how long.
const RUN_MAX: Duration = Duration::from_secs(60);

pub(crate) struct Example {
    name: &'static str,
    command: Command,
}

impl Example {
    pub(crate) fn new(name: &'static str) -> Self {
        let mut command = Command::new(program(name));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        Self { name, command }
    }

    pub(crate) fn arg(mut self, arg: &str) -> Self {
        self.command.arg(arg);
        self
    }

    /// Runs it to its good end; gives what it told.
    pub(crate) async fn succeeds(mut self) -> Told {
        let output = timeout(RUN_MAX, self.command.output())
            .await
            .unwrap_or_else(|_| panic!("{} did not end within {RUN_MAX:?}", self.name))
            .expect("the example starts");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        let (name, status) = (self.name, output.status);
        assert!(status.success(), "{name}: {status}\n{told}\n{errors}");
        Told(told)
    }

    /// Runs it until it dies by itself.
    pub(crate) async fn dies(mut self) {
        let status = timeout(RUN_MAX, self.command.status())
            .await
            .unwrap_or_else(|_| panic!("{} did not end within {RUN_MAX:?}", self.name))
            .expect("the example starts");
        assert!(!status.success(), "{} was to die", self.name);
    }

    /// Starts it, to be ended by the test or with it.
    pub(crate) fn starts(mut self) -> Started {
        self.command.stderr(Stdio::inherit());
        let mut child = self.command.spawn().expect("the example starts");
        let stdout = child.stdout.take().expect("its output is piped");
        Started {
            child,
            told: BufReader::new(stdout).lines(),
        }
    }
}

/// Cargo puts examples next to the directory of the test programs.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let built = test.ancestors().nth(2).expect("target/PROFILE/deps/it");
    let program = built
        .join("examples")
        .join(name)
        .with_extension(std::env::consts::EXE_EXTENSION);
    assert!(
        program.exists(),
        "{} is not built: `cargo test -p onlyonce-examples` builds all examples, `--test it` alone does not",
        program.display()
    );
    program
}

/// What an example wrote on standard output.
pub(crate) struct Told(String);

impl Told {
    /// Asserts that some line starts with `start`.
    #[track_caller]
    pub(crate) fn has(&self, start: &str) {
        assert!(self.count(start) > 0, "no line {start:?} in:\n{}", self.0);
    }

    pub(crate) fn count(&self, start: &str) -> usize {
        self.0
            .lines()
            .filter(|line| line.starts_with(start))
            .count()
    }
}

/// A running example.
pub(crate) struct Started {
    child: Child,
    told: Lines<BufReader<ChildStdout>>,
}

impl Started {
    /// What follows `start` on the first line that begins with it.
    pub(crate) async fn tells(&mut self, start: &str) -> String {
        let found = async {
            while let Some(line) = self.told.next_line().await.expect("its output is text") {
                if let Some(rest) = line.strip_prefix(start) {
                    return rest.to_owned();
                }
            }
            panic!("it ended without a line {start:?}");
        };
        timeout(RUN_MAX, found)
            .await
            .unwrap_or_else(|_| panic!("no line {start:?} within {RUN_MAX:?}"))
    }

    /// Kills this very process, and waits for its end.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("it was still running");
    }

    /// Presses Ctrl-C; gives whether it ended well.
    #[cfg(unix)]
    pub(crate) async fn interrupt(mut self) -> bool {
        let id = self.child.id().expect("it is still running");
        let mut kill = Command::new("kill");
        let sent = kill.args(["-INT", &id.to_string()]).status().await;
        assert!(sent.expect("kill starts").success());
        let ended = timeout(RUN_MAX, self.child.wait()).await;
        ended.expect("it ends").expect("it has a status").success()
    }
}
