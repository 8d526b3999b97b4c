//! The wheel that `cargo xtask dist python` makes, where there is nothing but a Python: no toolchain, no index to ask,
//! and nobody's settings.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::package::{here, run};

fn wheel() -> PathBuf {
    let wheel = env::var_os("ONLYONCE_TEST_WHEEL");
    wheel
        .expect("`cargo xtask test` makes the wheel, and says in ONLYONCE_TEST_WHEEL where it is")
        .into()
}

/// A program that finds no other one.
fn alone(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", "").env("HOME", folder);
    command.current_dir(folder);
    command
}

#[test]
fn the_wheel_installs_and_works_where_there_is_no_toolchain() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(Command::new("python3")
        .args(["-m", "venv"])
        .arg(folder.join("venv")));
    let python = folder.join("venv/bin/python");
    let readme = fs::read_to_string(here().join("README.md")).unwrap();
    let lines = readme.split("```python\n").nth(1).unwrap();
    let lines = lines.split("```").next().unwrap();

    let mut pip = alone(&python, folder);
    pip.args(["-m", "pip", "install", "--quiet", "--no-index"]);
    run(pip.arg(wheel()));
    run(alone(&python, folder).args(["-c", lines]));
    let also =
        "import shutil, onlyonce, onlyonce.agents; print(shutil.which('cargo'), onlyonce.__file__)";
    let said = run(alone(&python, folder).args(["-c", also]));

    let installed = folder.join("venv/lib").canonicalize().unwrap();
    let expected = format!("None {}", installed.display());
    assert!(said.starts_with(&expected), "{said}");
}
