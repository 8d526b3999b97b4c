//! The real program, run to its end.

use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

/// By when the program must have ended. Far more than it takes; nothing depends on how long.
pub(crate) const RUN_MAX: Duration = Duration::from_secs(120);

pub(crate) fn onlyonce(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Exit code, stdout and stderr.
pub(crate) async fn run(args: &[&str]) -> (i32, String, String) {
    run_with(args, "").await
}

/// The same, with something on stdin.
pub(crate) async fn run_with(args: &[&str], stdin: &str) -> (i32, String, String) {
    let mut program = onlyonce(args).stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = program.stdin.take().unwrap();
    pipe.write_all(stdin.as_bytes()).await.unwrap();
    drop(pipe);
    let output: Output = timeout(RUN_MAX, program.wait_with_output())
        .await
        .unwrap()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// The same program on a terminal of its own, as util-linux's `script` makes one: what it shows there.
pub(crate) fn on_a_terminal(args: &[&str]) -> Command {
    let program = [env!("CARGO_BIN_EXE_onlyonce")];
    let words = program.iter().chain(args);
    // Quoted for the shell that `script` starts.
    let words = words.map(|word| format!("'{}'", word.replace('\'', "'\\''")));
    let words = words.collect::<Vec<_>>().join(" ");
    // A terminal that goes away only has a gateway read its settings again.
    let line = format!("timeout --foreground {} {words}", RUN_MAX.as_secs());
    let mut command = Command::new("script");
    command
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}
