//! The tarball that `cargo xtask dist node` makes, where there is nothing but Node and npm: no toolchain, no registry
//! to ask, and nobody's settings.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::package::{here, run};

fn tarball() -> PathBuf {
    let tarball = env::var_os("ONLYONCE_TEST_TARBALL");
    tarball
        .expect(
            "`cargo xtask test` makes the tarball, and says in ONLYONCE_TEST_TARBALL where it is",
        )
        .into()
}

/// Where a program is, links followed.
fn found(program: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap();
    let mut files = env::split_paths(&path).map(|folder| folder.join(program));
    let found = files.find(|file| file.is_file());
    found.expect(program).canonicalize().unwrap()
}

/// Node, which finds no other program but itself.
fn alone(folder: &Path) -> Command {
    let mut command = Command::new(folder.join("bin/node"));
    command.env_clear().env("PATH", folder.join("bin"));
    command.env("HOME", folder).current_dir(folder);
    command
}

#[test]
fn the_tarball_installs_and_works_where_there_is_no_toolchain() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("bin")).unwrap();
    symlink(found("node"), folder.join("bin/node")).unwrap();
    fs::write(folder.join("package.json"), "{\"private\": true}").unwrap();
    let readme = fs::read_to_string(here().join("README.md")).unwrap();
    let lines = readme.split("```js\n").nth(1).unwrap();
    fs::write(folder.join("lines.js"), lines.split("```").next().unwrap()).unwrap();

    let mut npm = alone(folder);
    npm.arg(found("npm"))
        .args(["install", "--offline", "--no-audit", "--no-fund"]);
    run(npm.arg(tarball()));
    run(alone(folder).arg("lines.js"));
    let also =
        "import('onlyonce/client').then((it) => console.log(typeof it.Client, process.env.PATH))";
    let said = run(alone(folder).args(["-e", also]));

    assert_eq!(
        said.trim(),
        format!("function {}", folder.join("bin").display())
    );
    let licences = fs::read_dir(folder.join("node_modules/onlyonce")).unwrap();
    let licences = licences
        .flatten()
        .filter(|it| it.file_name().to_string_lossy().starts_with("LICENSE"));
    assert_eq!(licences.count(), 2);
}

/// As on a system that the native part is not made for.
#[test]
fn where_the_native_part_cannot_be_loaded_it_says_so_and_the_client_works() {
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("node_modules/onlyonce");
    fs::create_dir_all(package.join("lib")).unwrap();
    fs::copy(here().join("package.json"), package.join("package.json")).unwrap();
    for file in fs::read_dir(here().join("lib")).unwrap().flatten() {
        fs::copy(file.path(), package.join("lib").join(file.file_name())).unwrap();
    }
    fs::write(package.join("lib/onlyonce.node"), "of another system").unwrap();
    let code =
        "try { require('onlyonce') } catch (error) { console.log(error.name, error.message) }
        import('onlyonce/client').then((it) => console.log(typeof it.Client))";

    let said = run(Command::new("node")
        .args(["-e", code])
        .current_dir(folder.path()));

    assert!(said.starts_with("OnlyonceError the native part"), "{said}");
    assert!(said.contains("onlyonce/client needs none"), "{said}");
    assert!(said.ends_with("function\n"), "{said}");
}
