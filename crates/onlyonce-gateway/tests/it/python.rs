//! Programs in Python, each with packages of its own in versions that do not change.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use tokio::process::Command;

pub(crate) async fn run(program: &Path, arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(program);
    let command = command.args(arguments).current_dir(folder);
    // Only the gateway of this test is asked, and that directly.
    let command = command.env("NO_PROXY", "127.0.0.1").kill_on_drop(true);
    let output = command.output().await;
    output.unwrap_or_else(|error| panic!("{} cannot be run: {error}", program.display()))
}

/// The folder of a virtual environment with these packages: made once, and for good.
pub(crate) async fn environment(name: &str, requirements: &str) -> PathBuf {
    let all = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = all.join(name);
    let noted = folder.join("requirements.txt");
    if fs::read_to_string(&noted).is_ok_and(|it| it == requirements) {
        return folder;
    }
    drop(fs::remove_dir_all(&folder));
    let made = run(Path::new("python3"), &["-m", "venv", name], all).await;
    assert!(
        made.status.success(),
        "no virtual environment: apt-get install python3-venv: {made:?}"
    );
    let wanted = folder.join("wanted.txt");
    fs::write(&wanted, requirements).unwrap();
    let pip = folder.join("bin/pip");
    let arguments = ["install", "--no-deps", "--quiet", "-r", "wanted.txt"];
    let installed = run(&pip, &arguments, &folder).await;
    assert!(installed.status.success(), "pip: {installed:?}");
    // Last, so that half an installation is never taken for one.
    fs::rename(&wanted, &noted).unwrap();
    folder
}
