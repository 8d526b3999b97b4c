//! The Python package as its users get it: a wheel, installed into a virtual environment, used by
//! Python code, by FastAPI and by Flask. `onlyonce verify` is the judge of the middleware.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its support too"
)]

mod agents;
mod judge;
mod package;
mod profiles;
mod shipped;

use std::fs;
use std::path::Path;
use std::process::Command;

use onlyonce_testkit::servers::{Postgres, PostgresOptions, Server as _};
use rcgen::{CertifiedKey, generate_simple_self_signed};

use package::{here, python, run};

/// Runs a file of tests written in Python.
fn pytest(file: &str) {
    pytest_with(python(), file);
}

/// Runs it with the Python of another environment.
fn pytest_with(python: &Path, file: &str) {
    run(&mut pytest_of(python, file));
}

fn pytest_of(python: &Path, file: &str) -> Command {
    let mut command = Command::new(python);
    command
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider"])
        .arg(file)
        // Not beside the sources: what is installed is what is tested.
        .current_dir(here().join("tests"));
    command
}

#[test]
fn functions_run_once_per_key() {
    pytest("test_functions.py");
}

#[test]
fn steps_run_once_in_their_operation_and_values_are_stored_with_their_effects() {
    pytest("test_steps.py");
}

#[test]
fn answers_are_stored_in_transactions_of_psycopg_sqlalchemy_and_django() {
    let postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let mut tests = pytest_of(python(), "test_transactions.py");
    run(tests.env("DATABASE_URL", postgres.url()));
}

#[test]
fn the_client_and_its_queue_send_each_request_once() {
    pytest("test_client.py");
}

#[test]
fn the_client_and_its_queue_survive_hostile_keys_bodies_networks_and_processes() {
    pytest("test_client_hostile.py");
}

#[test]
fn the_client_trusts_whom_the_machine_trusts() {
    let folder = tempfile::tempdir().unwrap();
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(folder.path().join("cert.pem"), cert.pem()).unwrap();
    fs::write(folder.path().join("key.pem"), signing_key.serialize_pem()).unwrap();

    run(pytest_of(python(), "test_tls.py").env("TLS", folder.path()));
}

#[test]
fn an_engine_survives_forks_loops_signals_and_the_end_of_its_process() {
    pytest("test_processes.py");
}

#[test]
fn asgi_applications_answer_each_key_once() {
    pytest("test_asgi.py");
}

#[test]
fn wsgi_applications_answer_each_key_once() {
    pytest("test_wsgi.py");
}

#[test]
fn django_answers_each_key_once() {
    pytest("test_django.py");
}

#[test]
fn the_first_lines_of_the_readme_work() {
    let readme = fs::read_to_string(here().join("README.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let blocks = readme.split("```python\n").skip(1);
    let blocks: Vec<_> = blocks
        .map(|block| block.split("```").next().unwrap())
        .collect();
    assert!(
        blocks.len() >= 3,
        "the README shows a function, FastAPI and Flask"
    );

    for block in blocks {
        let mut command = Command::new(python());
        command.args(["-c", block]).current_dir(folder.path());
        run(&mut command);
    }
}

#[test]
fn the_package_is_typed_and_tidy() {
    let mut mypy = Command::new(python());
    mypy.args(["-m", "mypy", "--no-incremental", "--cache-dir=/dev/null"])
        .current_dir(here());
    run(&mut mypy);
    let mut ruff = Command::new(python());
    ruff.args(["-m", "ruff", "check", "--no-cache", "onlyonce", "tests"])
        .current_dir(here());
    run(&mut ruff);
}
