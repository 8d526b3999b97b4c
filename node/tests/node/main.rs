//! The Node package as its users get it: a tarball, installed into a folder with Express, Fastify and
//! Hono. `onlyonce verify` is the judge of the middleware; and services in Python, in Node and behind
//! the gateway run a key once between them.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its support too"
)]

mod faults;
#[path = "../../../python/tests/python/judge.rs"]
mod judge;
mod package;
#[path = "../../../python/tests/python/package.rs"]
mod python;
mod shipped;
mod together;

use std::process::Command;
use std::time::Duration;

use onlyonce_core::Profile;
use onlyonce_demo::{Demo, Options};
use tokio::net::TcpListener;

use judge::{Service, assert_conforms};
use package::{here, installed, run, shop};

/// Runs a file of tests written in JavaScript.
fn node_test(file: &str) {
    run(&mut node_tests(file));
}

fn node_tests(file: &str) -> Command {
    let mut node = Command::new("node");
    node.arg("--test").arg(file).current_dir(installed());
    node
}

#[test]
fn functions_run_once_per_key() {
    node_test("functions.test.js");
}

#[test]
fn servers_answer_each_key_once() {
    node_test("http.test.js");
}

#[test]
fn a_route_handler_of_next_answers_each_key_once() {
    node_test("next.test.mjs");
}

#[test]
fn the_client_keeps_one_key_for_one_intention() {
    node_test("client.test.mjs");
}

#[test]
fn the_client_keeps_its_promises_in_a_real_browser() {
    node_test("browser.test.mjs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_makes_one_record_of_the_demos_form_in_a_real_browser() {
    let folder = tempfile::tempdir().unwrap();
    let database = format!("sqlite:{}", folder.path().join("demo.db").display());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let options = Options::new(database);
    let demo = Demo::start(&options, listener).await.unwrap();

    let tests = tokio::task::spawn_blocking(move || {
        run(node_tests("demo.test.mjs").env("DEMO", format!("http://{address}")));
    });

    tests.await.unwrap();
    demo.stop(Duration::from_secs(1)).await;
}

async fn keeps_every_profile(framework: &str) {
    for profile in Profile::ALL {
        let service = Service::start(shop(framework).args(["--profile", profile.name()]));
        assert_conforms(&service, profile).await;
    }
}

#[tokio::test]
async fn express_keeps_the_promises_of_every_profile() {
    keeps_every_profile("express").await;
}

#[tokio::test]
async fn fastify_keeps_the_promises_of_every_profile() {
    keeps_every_profile("fastify").await;
}

/// The headers of a fetch handler are joined, if one comes twice.
#[tokio::test]
async fn a_fetch_handler_keeps_the_promises_of_every_profile() {
    keeps_every_profile("hono").await;
}

#[test]
fn the_first_lines_of_the_readme_work() {
    let readme = std::fs::read_to_string(here().join("README.md")).unwrap();
    let blocks = readme.split("```js\n").skip(1);
    let blocks: Vec<_> = blocks
        .map(|block| block.split("```").next().unwrap())
        .collect();
    assert!(blocks.len() >= 2, "the README shows a function and Express");

    for (number, block) in blocks.into_iter().enumerate() {
        let script = installed().join(format!("readme-{number}.js"));
        std::fs::write(&script, block).unwrap();
        run(Command::new("node").arg(script).current_dir(installed()));
    }
}

#[test]
fn the_package_is_typed_and_tidy() {
    let programs = installed().join("node_modules/.bin");
    let mut tsc = Command::new(programs.join("tsc"));
    tsc.args([
        "--noEmit", "--strict", "--target", "es2023", "--module", "nodenext",
    ])
    .arg("types.ts")
    .current_dir(installed());
    run(&mut tsc);
    let mut biome = Command::new(programs.join("biome"));
    biome.args(["lint", "--error-on-warnings", "lib", "tests"]);
    run(biome.current_dir(here()));
}
