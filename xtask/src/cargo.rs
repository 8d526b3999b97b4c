//! Cargo as the other modules see it: commands to run, packages, features and test executables.
//!
//! What cargo says in JSON is read here and nowhere else; what leaves this module has types.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::env;
use std::io::{self, PipeReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};

use serde_json::Value;

use crate::Failure;

/// One member of the workspace.
pub(crate) struct Package {
    id: String,
    pub(crate) name: String,
    pub(crate) features: Vec<String>,
    /// Whether it is meant for crates.io.
    pub(crate) is_published: bool,
    /// What a published crate has to state in its manifest, and this one does not.
    pub(crate) unstated: Vec<&'static str>,
    /// The members of the workspace that it does not build without; tests may need more.
    pub(crate) needs: Vec<String>,
}

/// What crates.io and docs.rs show or check.
const STATED: [&str; 7] = [
    "categories",
    "description",
    "keywords",
    "license",
    "readme",
    "repository",
    "rust_version",
];

/// What the variables start with that cargo sets for the package it runs.
const OUR_PACKAGE: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

/// From the file name of a test executable to what the names of its tests start with: the package,
/// followed by the target where that is not the package's own library or program.
pub(crate) type Executables = BTreeMap<String, String>;

/// The directory of the workspace, where every command runs.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is a directory of the workspace")
}

/// Where cargo builds.
pub(crate) fn built_in() -> PathBuf {
    let folder = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    root().join(folder)
}

/// The cargo that runs us, with these arguments, as if it were called by hand: with what it told us
/// of our own package, build scripts would see a changed environment, and most of the workspace would
/// be built anew after every `cargo build`.
pub(crate) fn cargo<A: AsRef<str>>(args: &[A]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(args.iter().map(AsRef::as_ref))
        .current_dir(root());
    for (name, _) in env::vars_os() {
        let is_ours = |name: &str| OUR_PACKAGE.iter().any(|start| name.starts_with(start));
        if name.to_str().is_some_and(is_ours) {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a command to its end on our own terminal.
pub(crate) fn status(command: &mut Command) -> Result<ExitStatus, Failure> {
    command
        .status()
        .map_err(|error| cannot_run(command, &error))
}

/// Starts a command whose stdout and stderr share one pipe, so that their order is kept.
pub(crate) fn merged(mut command: Command) -> Result<(Child, PipeReader), Failure> {
    let start = |command: &mut Command| {
        let (reader, writer) = io::pipe()?;
        command.stdout(writer.try_clone()?).stderr(writer);
        Ok((command.spawn()?, reader))
    };
    // `command` is dropped on return, and with it our copies of the pipe's writing end: the reader
    // sees the end of the output when the last process that writes to it is gone.
    start(&mut command).map_err(|error| cannot_run(&command, &error))
}

/// Runs a command and returns what it wrote to stdout, or `None` when it failed.
pub(crate) fn stdout(command: &mut Command) -> Result<Option<String>, Failure> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| cannot_run(command, &error))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(output.status.success().then_some(text))
}

/// The members of the workspace.
pub(crate) fn packages() -> Result<Vec<Package>, Failure> {
    let args = ["metadata", "--no-deps", "--format-version", "1"];
    let text = stdout(&mut cargo(&args))?.ok_or_else(|| Failure::new("cargo metadata failed"))?;
    let metadata = json(&text)?;
    metadata["packages"]
        .as_array()
        .and_then(|packages| packages.iter().map(package).collect())
        .ok_or_else(|| Failure::new("cargo metadata wrote something unexpected"))
}

/// Builds all tests and says which executable belongs to which target, or `None` when the build
/// failed; the compiler's messages go to the terminal.
pub(crate) fn test_executables() -> Result<Option<Executables>, Failure> {
    let packages = packages()?;
    let mut build = cargo(&[
        "test",
        "--workspace",
        "--all-features",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]);
    let Some(messages) = stdout(&mut build)? else {
        return Ok(None);
    };

    let mut executables = Executables::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        executables.extend(executable(&json(line)?, &packages));
    }
    Ok(Some(executables))
}

/// Builds an example and says where its program is, or `None` when the build failed. The features
/// are those of the tests, so that what they built is used.
pub(crate) fn example(name: &str) -> Result<Option<PathBuf>, Failure> {
    let build = ["build", "--workspace", "--all-features", "--example", name];
    program(name, &build)
}

/// Builds programs as the tests have them, and says where the one of this name is, or `None` when
/// the build failed.
pub(crate) fn as_tested(programs: &[&str], name: &str) -> Result<Option<PathBuf>, Failure> {
    let mut build = vec!["build", "--workspace", "--all-features"];
    build.extend(programs.iter().flat_map(|program| ["--bin", program]));
    program(name, &build)
}

/// Builds packages as they are packaged, and says where the program of this name is, or `None` when the build
/// failed. What is built together shares its dependencies.
pub(crate) fn optimised(packages: &[&str], name: &str) -> Result<Option<PathBuf>, Failure> {
    let mut build = vec!["build", "--profile", "dist"];
    build.extend(packages.iter().flat_map(|package| ["-p", package]));
    program(name, &build)
}

fn program(name: &str, build: &[&str]) -> Result<Option<PathBuf>, Failure> {
    let mut build = cargo(build);
    build.arg("--message-format=json-render-diagnostics");
    let Some(messages) = stdout(&mut build)? else {
        return Ok(None);
    };
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message = json(line)?;
        if message["target"]["name"] == name
            && let Some(path) = message["executable"].as_str()
        {
            return Ok(Some(path.into()));
        }
    }
    Err(Failure::new(format!("cargo built no program {name}")))
}

/// `cargo xtask sim`: exits as the simulator does.
pub(crate) fn sim(args: &[String]) -> Result<ExitCode, Failure> {
    exit_code(sim_command(args))
}

/// The simulator, optimised.
pub(crate) fn sim_command<A: AsRef<str>>(args: &[A]) -> Command {
    let run = "run --release --quiet -p onlyonce-testkit --example sim --";
    let mut command = cargo(&run.split(' ').collect::<Vec<_>>());
    command.args(args.iter().map(AsRef::as_ref));
    command
}

/// `cargo xtask model`: exits as the exploration does.
pub(crate) fn model(args: &[String]) -> Result<ExitCode, Failure> {
    let run = "run --release --quiet -p onlyonce-model --example model --";
    let mut command = cargo(&run.split(' ').collect::<Vec<_>>());
    command.args(args);
    exit_code(command)
}

pub(crate) fn exit_code(mut command: Command) -> Result<ExitCode, Failure> {
    let code = status(&mut command)?.code();
    // No code means a signal ended it.
    let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(2);
    Ok(ExitCode::from(code))
}

pub(crate) fn package(value: &Value) -> Option<Package> {
    Some(Package {
        id: value["id"].as_str()?.to_owned(),
        name: value["name"].as_str()?.to_owned(),
        features: value["features"].as_object()?.keys().cloned().collect(),
        is_published: value["publish"].is_null(),
        unstated: unstated(value),
        needs: needs(value)?,
    })
}

fn unstated(value: &Value) -> Vec<&'static str> {
    let is_empty = |field: &Value| match field {
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => true,
    };
    let mut unstated: Vec<_> = STATED
        .into_iter()
        .filter(|field| is_empty(&value[*field]))
        .collect();
    if !value["metadata"]["docs"]["rs"].is_object() {
        unstated.push("metadata.docs.rs");
    }
    unstated
}

/// A dependency with a path is a member of the workspace; only those of tests have the kind `dev`.
fn needs(value: &Value) -> Option<Vec<String>> {
    let dependencies = value["dependencies"].as_array()?.iter();
    let built = dependencies.filter(|one| one["path"].is_string() && one["kind"] != "dev");
    built
        .map(|one| Some(one["name"].as_str()?.to_owned()))
        .collect()
}

/// The file name and the test name prefix of an executable, where the message announces one.
fn executable(message: &Value, packages: &[Package]) -> Option<(String, String)> {
    let file = Path::new(message["executable"].as_str()?).file_name()?;
    let id = message["package_id"].as_str()?;
    let package = &packages.iter().find(|package| package.id == id)?.name;
    if !message["profile"]["test"].as_bool()? {
        return None;
    }

    let target = &message["target"];
    let kind = target["kind"][0].as_str()?;
    let prefix = match kind {
        "test" | "bench" | "example" => format!("{package}::{}", target["name"].as_str()?),
        _ => package.clone(),
    };
    Some((file.to_string_lossy().into_owned(), prefix))
}

fn json(text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text)
        .map_err(|error| Failure::new(format!("cannot read what cargo wrote: {error}")))
}

pub(crate) fn cannot_run(command: &Command, error: &io::Error) -> Failure {
    let program = command.get_program().to_string_lossy();
    Failure::new(format!("cannot run {program}: {error}"))
}
