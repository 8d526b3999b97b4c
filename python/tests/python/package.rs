//! The wheel of what cargo just built, in a virtual environment of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const REQUIREMENTS: &str = include_str!("requirements.txt");
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The folder of the package, also from the tests of the Node package beside it.
pub(crate) fn here() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../python"))
}

/// Runs a command to its end; what it said is shown if it fails.
pub(crate) fn run(command: &mut Command) -> String {
    command
        .env("NO_PROXY", "*")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{said}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

/// The Python of a virtual environment with the package, and with what the tests import.
pub(crate) fn python() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| with_package("python-package", REQUIREMENTS))
}

/// The Python of an environment of this name, with the pinned requirements and the package.
pub(crate) fn with_package(name: &str, requirements: &str) -> PathBuf {
    let python = environment(name, requirements);
    let staging = tempfile::tempdir().unwrap();
    let wheel = wheel(&python, staging.path());
    let mut pip = Command::new(&python);
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--force-reinstall",
    ]);
    run(pip.arg(wheel));
    python
}

/// An environment with the pinned requirements: made once, and for good.
fn environment(name: &str, requirements: &str) -> PathBuf {
    let all = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = all.join(name);
    let noted = folder.join("requirements.txt");
    let python = folder.join("bin/python");
    if fs::read_to_string(&noted).is_ok_and(|it| it == requirements) {
        return python;
    }
    drop(fs::remove_dir_all(&folder));
    run(Command::new("python3").args(["-m", "venv"]).arg(&folder));
    let wanted = folder.join("wanted.txt");
    fs::write(&wanted, requirements).unwrap();
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--no-deps", "--quiet", "-r"]);
    run(pip.arg(&wanted));
    // Last, so that half an installation is never taken for one.
    fs::rename(&wanted, &noted).unwrap();
    python
}

/// Packs what cargo built for these tests. `cargo xtask package python` lets maturin do it, which builds
/// everything again, optimised.
fn wheel(python: &Path, staging: &Path) -> PathBuf {
    let tree = staging.join("tree");
    let package = tree.join("onlyonce");
    let info = tree.join(format!("onlyonce-{VERSION}.dist-info"));
    fs::create_dir_all(&package).unwrap();
    fs::create_dir_all(&info).unwrap();
    for file in fs::read_dir(here().join("onlyonce")).unwrap().flatten() {
        if file.file_type().unwrap().is_file() {
            fs::copy(file.path(), package.join(file.file_name())).unwrap();
        }
    }
    let built = std::env::current_exe().unwrap();
    let built = built.with_file_name("libonlyonce_native.so");
    let mut strip = Command::new("strip");
    strip.arg("--strip-debug").arg("-o");
    run(strip.arg(package.join("_native.abi3.so")).arg(built));
    let metadata = format!("Metadata-Version: 2.1\nName: onlyonce\nVersion: {VERSION}\n");
    fs::write(info.join("METADATA"), metadata).unwrap();
    let tag = "Wheel-Version: 1.0\nGenerator: onlyonce\nRoot-Is-Purelib: false\nTag: cp39-abi3-linux_x86_64\n";
    fs::write(info.join("WHEEL"), tag).unwrap();
    let mut pack = Command::new(python);
    pack.args(["-m", "wheel", "pack", "--dest-dir"])
        .arg(staging);
    run(pack.arg(&tree));
    staging.join(format!("onlyonce-{VERSION}-cp39-abi3-linux_x86_64.whl"))
}
