//! The admin API's document, read by somebody else: Schemathesis makes requests from it, right ones
//! and wrong ones, and compares what comes back. Whatever the document allows must be taken, and
//! whatever it does not must be refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use tokio::process::Command;

use crate::support::{Service, gateway, order_with};

/// Schemathesis and all that it needs, each in one version.
const REQUIREMENTS: &str = include_str!("openapi/requirements.txt");
/// Without end, so that no answer to it can be compared.
const EVENTS: &str = "/api/v1/events";

async fn run(program: &Path, arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(program);
    let command = command.args(arguments).current_dir(folder);
    // Only the gateway of this test is asked, and that directly.
    let command = command.env("NO_PROXY", "127.0.0.1").kill_on_drop(true);
    let output = command.output().await;
    output.unwrap_or_else(|error| panic!("{} cannot be run: {error}", program.display()))
}

/// The folder of a virtual environment with Schemathesis: made once, and for good.
async fn environment() -> PathBuf {
    let all = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = all.join("schemathesis");
    let noted = folder.join("requirements.txt");
    if fs::read_to_string(&noted).is_ok_and(|it| it == REQUIREMENTS) {
        return folder;
    }
    drop(fs::remove_dir_all(&folder));
    let python = Path::new("python3");
    let made = run(python, &["-m", "venv", "schemathesis"], all).await;
    assert!(
        made.status.success(),
        "no virtual environment: apt-get install python3-venv: {made:?}"
    );
    let wanted = folder.join("wanted.txt");
    fs::write(&wanted, REQUIREMENTS).unwrap();
    let pip = folder.join("bin/pip");
    let arguments = ["install", "--no-deps", "--quiet", "-r", "wanted.txt"];
    let installed = run(&pip, &arguments, &folder).await;
    assert!(installed.status.success(), "pip: {installed:?}");
    // Last, so that half an installation is never taken for one.
    fs::rename(&wanted, &noted).unwrap();
    folder
}

#[tokio::test(flavor = "multi_thread")]
async fn schemathesis_finds_nothing_in_the_document_of_the_admin_api() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    for number in 0..5 {
        order_with(&gateway, &format!("key-{number}"), "{}").await;
    }
    let environment = environment().await;
    let folder = tempfile::tempdir().unwrap();
    let document = format!("http://{}/api/v1/openapi.json", gateway.admin_address());

    let program = environment.join("bin/schemathesis");
    let arguments = [
        "run",
        &document,
        "--exclude-path",
        EVENTS,
        "--checks",
        "all",
        "--mode",
        "all",
        "--phases",
        "examples,coverage,fuzzing",
        "--max-examples",
        "50",
        "--continue-on-failure",
        "--generation-deterministic",
        "--seed",
        "1",
        "--no-color",
    ];
    let output = run(&program, &arguments, folder.path()).await;

    let told = [output.stdout, output.stderr].concat();
    let told = String::from_utf8_lossy(&told);
    assert!(output.status.success(), "{told}");
    assert!(
        told.contains("12 passed"),
        "every operation is asked: {told}"
    );
    assert!(!told.contains("failed"), "{told}");
}
