//! Each keyed request runs once, whatever the service behind it does.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use tokio::net::TcpSocket;

use crate::support::{Service, checked, client, eventually, gateway, order_with, settings};

#[tokio::test]
async fn a_retry_gets_the_same_answer_and_never_reaches_the_service() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;

    let first = order_with(&gateway, "key-1", "{}").await;
    let retry = order_with(&gateway, "key-1", "{}").await;

    assert_eq!(
        (first.status(), retry.status()),
        (http::StatusCode::CREATED, http::StatusCode::CREATED)
    );
    assert!(first.headers().contains_key("set-cookie"));
    assert!(!retry.headers().contains_key("set-cookie"));
    assert_eq!(retry.headers()["idempotent-replayed"], "true");
    assert_eq!(retry.headers()["x-order"], "made");
    assert_eq!(first.text().await.unwrap(), "order 1");
    assert_eq!(retry.text().await.unwrap(), "order 1");
    assert_eq!(service.work.runs(), 1);
}

#[tokio::test]
async fn another_payload_under_the_same_key_is_refused() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    order_with(&gateway, "key-1", "{\"amount\":1}").await;

    let other = order_with(&gateway, "key-1", "{\"amount\":2}").await;

    assert_eq!(other.status(), 422);
    assert_eq!(service.work.runs(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_duplicates_at_once_run_once() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;

    let url = format!("http://{}/slow", gateway.address());
    let sent: Vec<_> = (0..64)
        .map(|_| {
            let request = client().post(&url).header("idempotency-key", "key").send();
            tokio::spawn(async move { request.await.unwrap().text().await.unwrap() })
        })
        .collect();
    eventually(|| service.work.runs() == 1).await;
    service.work.gate.notify_one();

    for answer in sent {
        assert_eq!(answer.await.unwrap(), "slow 1");
    }
    assert_eq!(service.work.runs(), 1);
}

#[tokio::test]
async fn a_client_that_hangs_up_finds_its_answer_later() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    let url = format!("http://{}/slow", gateway.address());
    let request = client().post(&url).header("idempotency-key", "key").send();
    let hung = tokio::spawn(request);
    eventually(|| service.work.runs() == 1).await;

    hung.abort();
    service.work.gate.notify_one();
    let retry = client()
        .post(&url)
        .header("idempotency-key", "key")
        .send()
        .await
        .unwrap();

    assert_eq!(retry.text().await.unwrap(), "slow 1");
    assert_eq!(service.work.runs(), 1);
}

#[tokio::test]
async fn a_service_that_cannot_be_reached_gives_the_key_back() {
    // Its port is taken, so that nobody else answers there, and refuses until it listens.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let gateway = gateway(socket.local_addr().unwrap(), "").await;
    let down = order_with(&gateway, "key", "{}").await;
    assert_eq!(down.status(), 502);
    assert!(down.headers().contains_key("retry-after"));
    assert!(down.text().await.unwrap().contains("was not sent to it"));

    let listener = socket.listen(16).unwrap();
    tokio::spawn(async move {
        let app = axum::Router::new().route("/orders", axum::routing::post(async || "late"));
        axum::serve(listener, app).await
    });

    assert_eq!(
        order_with(&gateway, "key", "{}")
            .await
            .text()
            .await
            .unwrap(),
        "late"
    );
}

/// A service that takes a request, and is lost before it answers: nobody knows what it did.
fn vanishing_service() -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut lost = false;
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut bytes = [0; 4096];
            let read = stream.read(&mut bytes).unwrap();
            assert!(read > 0);
            if lost {
                let answer =
                    "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nagain";
                stream.write_all(answer.as_bytes()).unwrap();
            }
            lost = true;
        }
    });
    address
}

#[tokio::test]
async fn a_service_lost_in_the_middle_is_run_again_where_the_rule_says_so() {
    let gateway = gateway(vanishing_service(), "").await;
    let lost = order_with(&gateway, "key", "{}").await;
    assert_eq!(lost.status(), 502);

    let retry = order_with(&gateway, "key", "{}").await;

    assert_eq!(retry.text().await.unwrap(), "again");
}

#[tokio::test]
async fn a_service_lost_in_the_middle_is_held_where_the_rule_says_so() {
    let gateway = gateway(vanishing_service(), "[rules]\non_lapse = \"hold\"").await;
    assert_eq!(order_with(&gateway, "key", "{}").await.status(), 502);

    for _ in 0..2 {
        let retry = order_with(&gateway, "key", "{}").await;
        assert_eq!(retry.status(), 409);
        assert!(retry.text().await.unwrap().contains("unknown"));
    }
}

#[tokio::test]
async fn a_service_slower_than_the_lease_is_renewed_not_doubled() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "[rules]\nlease = \"1s\"\nwait = \"20s\"").await;
    let url = format!("http://{}/slow", gateway.address());
    let send = || {
        let request = client().post(&url).header("idempotency-key", "key").send();
        tokio::spawn(async move { request.await.unwrap().text().await.unwrap() })
    };
    let first = send();
    eventually(|| service.work.runs() == 1).await;

    // Longer than the lease; nothing depends on how much longer.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let retry = send();
    tokio::time::sleep(Duration::from_millis(100)).await;
    service.work.gate.notify_one();

    assert_eq!(first.await.unwrap(), "slow 1");
    assert_eq!(retry.await.unwrap(), "slow 1");
    assert_eq!(service.work.runs(), 1);
}

#[tokio::test]
async fn routes_have_rules_of_their_own() {
    let service = Service::start().await;
    let routes = "[[route]]\nmatch = \"POST /orders\"\nprofile = \"formbridge\"\n\
                  [[route]]\nmatch = \"* /echo\"\npass = true\n";
    let gateway = gateway(service.address, routes).await;
    order_with(&gateway, "key-1", "{}").await;

    let retry = order_with(&gateway, "key-1", "{}").await;
    let url = format!("http://{}/echo", gateway.address());
    let mut passed = Vec::new();
    for body in ["one", "two"] {
        let request = client()
            .post(&url)
            .header("idempotency-key", "key")
            .body(body);
        passed.push(request.send().await.unwrap().text().await.unwrap());
    }

    assert_eq!(retry.status(), 200);
    assert!(retry.headers().contains_key("x-original-request-time"));
    assert_eq!(passed, ["one", "two"]);
}

#[tokio::test]
async fn a_reload_changes_the_rules_and_keeps_the_records() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    order_with(&gateway, "key-1", "{}").await;

    gateway
        .reload(&settings(service.address, "[rules]\nkey = \"required\""))
        .unwrap();

    assert_eq!(
        order_with(&gateway, "key-1", "{}")
            .await
            .text()
            .await
            .unwrap(),
        "order 1"
    );
    let url = format!("http://{}/orders", gateway.address());
    assert_eq!(client().post(url).send().await.unwrap().status(), 400);
}

#[tokio::test]
async fn a_reload_that_cannot_be_done_says_which_setting_and_changes_nothing() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;

    for (more, named) in [
        ("namespace = \"other\"", "namespace"),
        ("[limits]\nconnections = 5", "limits.connections"),
    ] {
        let more = format!("{more}\n[rules]\nkey = \"required\"");
        let error = gateway.reload(&settings(service.address, &more));
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with(named), "{error}");
    }

    let unreadable = "[jwt]\nkey_file = \"/nowhere/keys.json\"";
    let error = checked(service.address, unreadable).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("/nowhere/keys.json: cannot be read"),
        "{error}"
    );
    let url = format!("http://{}/orders", gateway.address());
    assert_eq!(client().post(url).send().await.unwrap().status(), 201);
}

#[tokio::test]
async fn draining_lets_what_runs_end() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    let url = format!("http://{}/slow", gateway.address());
    let request = client().post(&url).header("idempotency-key", "key").send();
    let running = tokio::spawn(async move { request.await.unwrap().text().await.unwrap() });
    eventually(|| service.work.runs() == 1).await;

    let drained = tokio::spawn(gateway.drain());
    tokio::time::sleep(Duration::from_millis(50)).await;
    service.work.gate.notify_one();

    assert_eq!(running.await.unwrap(), "slow 1");
    assert_eq!(drained.await.unwrap(), 0);
}

/// Two routes of one store: neither sees the other's records, in whatever order they are used.
#[tokio::test]
async fn a_key_runs_once_in_each_scope_that_it_is_used_in() {
    let service = Service::start().await;
    let routes = "[[route]]\nmatch = \"POST /echo\"\nscope = [\"route\", \"caller\"]\n\
        [[route]]\nmatch = \"PUT /echo\"\nscope = [\"trusted-header:x-account\"]\n\
        [[route]]\nmatch = \"PATCH /echo\"\nscope = [\"trusted-header:x-account\"]\n";
    let gateway = gateway(service.address, routes).await;
    let send = async |method: &str| {
        let request = client()
            .request(
                method.parse().unwrap(),
                format!("http://{}/echo", gateway.address()),
            )
            .header("x-account", "7")
            .header("authorization", "ada")
            .header("idempotency-key", "key");
        let answer = request.body(method.to_owned()).send().await.unwrap();
        let is_replay = answer.headers().contains_key("idempotent-replayed");
        (answer.status().as_u16(), is_replay)
    };

    for is_replay in [false, true] {
        for method in ["POST", "PUT"] {
            assert_eq!(send(method).await, (200, is_replay), "{method}");
        }
    }
    // In one scope a key names one operation, whichever route it came by.
    assert_eq!(send("PATCH").await.0, 422);
}
