//! The admin API's document, read by somebody else: Schemathesis makes requests from it, right ones
//! and wrong ones, and compares what comes back. Whatever the document allows must be taken, and
//! whatever it does not must be refused.

use crate::python::{environment, run};
use crate::support::{Service, gateway, order_with};

/// Schemathesis and all that it needs, each in one version.
const REQUIREMENTS: &str = include_str!("openapi/requirements.txt");
/// Without end, so that no answer to it can be compared.
const EVENTS: &str = "/api/v1/events";

#[tokio::test(flavor = "multi_thread")]
async fn schemathesis_finds_nothing_in_the_document_of_the_admin_api() {
    let service = Service::start().await;
    let trail = tempfile::tempdir().unwrap();
    let path = trail.path().join("audit.jsonl");
    let gateway = gateway(service.address, &format!("[audit]\npath = {path:?}\n")).await;
    for number in 0..5 {
        order_with(&gateway, &format!("key-{number}"), "{}").await;
    }
    let environment = environment("schemathesis", REQUIREMENTS).await;
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
        told.contains("21 passed"),
        "every operation is asked: {told}"
    );
    assert!(!told.contains("failed"), "{told}");
}
