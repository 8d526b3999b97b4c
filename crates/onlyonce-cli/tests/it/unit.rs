//! packaging/onlyonce.service, as far as systemd judges it without running it. `cargo xtask dist --check` runs
//! it.

use std::fs;
use std::path::{Path, PathBuf};

use tokio::process::Command;

/// The most exposure that is allowed, in tenths: systemd calls less than 2.0 OK.
const EXPOSURE_MAX: &str = "--threshold=12";

fn unit() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/onlyonce.service")
}

/// Whether systemd is content, and what it says.
async fn analyze(args: &[&str], unit: &Path) -> (bool, String) {
    let mut command = Command::new("systemd-analyze");
    let output = command.args(args).arg(unit).output().await;
    let output = output.expect("systemd-analyze is in the Debian package systemd");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (output.status.success(), said)
}

#[tokio::test]
async fn the_unit_is_hardened_as_far_as_a_gateway_can_be() {
    let args = ["security", "--offline=true", "--no-pager", EXPOSURE_MAX];

    let (is_hardened, said) = analyze(&args, &unit()).await;

    assert!(is_hardened, "{said}");
}

#[tokio::test]
async fn systemd_knows_every_line_of_the_unit() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("onlyonce.service");
    let text = fs::read_to_string(unit()).unwrap();
    // It looks for the programs too.
    let text = text.replace("/usr/bin/onlyonce", env!("CARGO_BIN_EXE_onlyonce"));
    let verify = ["verify", "--man=no"];

    fs::write(&copy, &text).unwrap();
    let (is_known, said) = analyze(&verify, &copy).await;
    fs::write(&copy, text.replace("ProtectProc=", "ProtectProk=")).unwrap();
    let (_, of_typo) = analyze(&verify, &copy).await;

    assert!(is_known, "{said}");
    assert!(!said.contains("onlyonce.service"), "{said}");
    assert!(
        of_typo.contains("onlyonce.service"),
        "a typo is told: {of_typo}"
    );
}
