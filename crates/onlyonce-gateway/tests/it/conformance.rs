//! Clients that were not written here: curl, nghttp2's nghttp and h2load, wrk, and Python's httpx, h11
//! and h2. Each has its own idea of HTTP, and none gets anything twice.

use std::io::Write as _;
use std::path::Path;

use onlyonce_gateway::Gateway;
use tempfile::NamedTempFile;
use tokio::process::Command;

use crate::python;
use crate::support::{Service, gateway};

/// httpx, h11, h2 and all that they need, each in one version.
const PYTHON: &str = include_str!("conformance/requirements.txt");

/// Runs a program to its end and gives what it wrote.
async fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().await;
    let output = output.unwrap_or_else(|error| panic!("{program} does not start: {error}"));
    let mut text = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{program}: {text}{said}");
    text += &said;
    text
}

fn orders(gateway: &Gateway) -> String {
    format!("http://{}/orders", gateway.address())
}

fn file_with(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[tokio::test]
async fn curl_orders_once_by_whatever_protocol_it_asks_for() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    let url = orders(&gateway);
    let dotted = format!("http://{}/x/../%6frders", gateway.address());
    let ways: [&[&str]; 6] = [
        &["--http2", &url],
        &["--http2-prior-knowledge", &url],
        &["--http1.1", &url],
        &["--http1.0", &url],
        &["--path-as-is", &dotted],
        // As to a proxy: with the whole URL in the request line.
        &["--request-target", &url, &url],
    ];

    for way in ways {
        let arguments = [
            &["-sS", "-H", "Idempotency-Key: key", "-d", "tea=2"][..],
            way,
        ];
        for _ in 0..3 {
            assert_eq!(run("curl", &arguments.concat()).await, "order 1", "{way:?}");
        }
    }
    assert_eq!(service.work.runs(), 1);
}

#[tokio::test]
async fn nghttp_orders_once_on_fifty_streams() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    let body = file_with("tea=2");
    let body = body.path().to_str().unwrap();
    let key = "idempotency-key: key";

    let url = orders(&gateway);
    let said = run("nghttp", &["-m", "50", "-d", body, "-H", key, &url]).await;

    assert_eq!(said.matches("order 1").count(), 50);
    assert_eq!(service.work.runs(), 1);
}

#[tokio::test]
async fn h2load_finds_nothing_wrong_with_two_thousand_duplicates() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    let body = file_with("tea=2");
    let body = body.path().to_str().unwrap();
    let load = ["-n", "2000", "-c", "4", "-m", "50", "-d", body];
    let key = ["-H", "idempotency-key: key"];

    let url = orders(&gateway);
    let said = run("h2load", &[&load[..], &key, &[&url]].concat()).await;

    assert!(
        said.contains("2000 succeeded, 0 failed, 0 errored"),
        "{said}"
    );
    assert!(said.contains("status codes: 2000 2xx"), "{said}");
    assert_eq!(service.work.runs(), 1);
}

#[tokio::test]
async fn wrk_hears_an_answer_to_each_of_its_pipelined_requests() {
    const PIPELINED: usize = 16;
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    let script = file_with(&format!(
        "init = function()
           local all = {{}}
           for key = 1, {PIPELINED} do
             all[key] = wrk.format('POST', '/orders', {{['Idempotency-Key'] = 'key-' .. key}}, 'tea=2')
           end
           pipelined = table.concat(all)
         end
         request = function() return pipelined end"
    ));
    let script = script.path().to_str().unwrap();

    let url = orders(&gateway);
    let said = run("wrk", &["-t1", "-c4", "-d1s", "-s", script, &url]).await;

    assert!(!said.contains("Socket errors"), "{said}");
    assert!(!said.contains("Non-2xx"), "{said}");
    assert!(!said.contains("\n  0 requests"), "{said}");
    assert_eq!(service.work.runs(), PIPELINED);
}

/// The script judges: h11 and h2 raise whatever breaks the protocol, and it compares what was made.
#[tokio::test(flavor = "multi_thread")]
async fn pythons_libraries_find_nothing_wrong_and_order_once() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "[rules]\nrequest_bytes_max = 65536").await;
    let environment = python::environment("http-clients", PYTHON).await;
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/it/conformance/clients.py"
    );
    let address = gateway.address();

    let program = environment.join("bin/python");
    let arguments = [
        script,
        &address.ip().to_string(),
        &address.port().to_string(),
    ];
    let output = python::run(&program, &arguments, Path::new(&environment)).await;

    let told = [output.stdout, output.stderr].concat();
    let told = String::from_utf8_lossy(&told);
    assert!(output.status.success(), "{told}");
    // One order for each check that ends with its name.
    let checks = told.lines().filter(|line| line.starts_with("ok ")).count();
    assert_eq!(checks, 12, "{told}");
    assert_eq!(service.work.runs(), 9, "{told}");
}
