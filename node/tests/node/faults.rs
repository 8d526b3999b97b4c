//! The clients for Python and TypeScript before a gateway, over a network that breaks every answer in some way:
//! each order has one effect, and its client gets the answer of that effect.

mod proxy;

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use onlyonce_gateway::{Gateway, Settings};
use tokio::net::TcpListener;

use self::proxy::{FAULTS, FaultyProxy, header};
use crate::package::{here, installed, run};
use crate::python::python;

const ORDERS: usize = 27;
/// Large enough to break off in the middle.
const FILLER: usize = 32 * 1024;

/// Orders in the order in which they took effect.
type Effects = Arc<Mutex<Vec<String>>>;

async fn order(State(effects): State<Effects>, order: String) -> (StatusCode, String) {
    let mut effects = effects.lock().unwrap();
    effects.push(order.clone());
    let answer = format!("{order} {} {}", effects.len(), "x".repeat(FILLER));
    (StatusCode::CREATED, answer)
}

async fn shop(effects: &Effects) -> Gateway {
    let app = Router::new().route("/orders", post(order));
    let app = app.with_state(Arc::clone(effects));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    let settings = format!(
        "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nupstream = \"http://{upstream}\"\nstore = \"memory:\"\n"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), settings).unwrap();
    let settings = Settings::load(Some(file.path()), [], &[]).unwrap();
    Gateway::start(&settings).await.unwrap()
}

/// Lets a program place its orders, which says each answer on a line: the order, and its number among effects.
async fn each_order_has_one_effect(program: impl FnOnce(&str) -> Command) {
    let effects = Effects::default();
    let gateway = shop(&effects).await;
    let key_of = |request: &[u8]| header(request, "idempotency-key");
    let proxy = FaultyProxy::start(gateway.address(), key_of).await;
    let mut command = program(&format!("http://{}/orders", proxy.address));
    command.arg(ORDERS.to_string());

    let said = tokio::task::spawn_blocking(move || run(&mut command));
    let said = said.await.unwrap();

    let effects = effects.lock().unwrap().clone();
    let numbered = effects.iter().zip(1..);
    let expected: BTreeMap<String, usize> = numbered
        .map(|(order, number)| (order.clone(), number))
        .collect();
    let pairs = said.lines().map(|line| line.split_once(' ').unwrap());
    let answers: BTreeMap<String, usize> = pairs
        .map(|(order, number)| (order.to_owned(), number.parse().unwrap()))
        .collect();
    assert_eq!(effects.len(), ORDERS, "{effects:?}");
    assert_eq!(answers, expected);
    let happened = proxy.happened();
    for fault in FAULTS {
        assert!(happened.contains_key(&fault), "{fault:?}: {happened:?}");
    }
}

fn python_client(mode: &str, url: &str) -> Command {
    let mut command = Command::new(python());
    command.arg(here().join("../python/tests/orders.py"));
    command.args([mode, url]);
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client_has_one_effect_per_order_over_a_faulty_network() {
    each_order_has_one_effect(|url| python_client("client", url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_queue_has_one_effect_per_order_over_a_faulty_network() {
    each_order_has_one_effect(|url| python_client("queue", url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_typescript_client_has_one_effect_per_order_over_a_faulty_network() {
    each_order_has_one_effect(|url| {
        let mut command = Command::new("node");
        command.current_dir(installed()).args(["orders.mjs", url]);
        command
    })
    .await;
}
