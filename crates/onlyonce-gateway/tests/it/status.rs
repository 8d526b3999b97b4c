//! G14: a client asks what has become of its own key. Nothing runs, and nothing is told of others.

use onlyonce_gateway::Gateway;
use onlyonce_testkit::servers::{
    Postgres, PostgresOptions, RedisSentinel, RedisSentinelOptions, Server as _,
};
use serde_json::Value;

use crate::support::{Service, client, eventually, gateway, started};
use crate::wire::{Say, scripted};

const RULES: &str = "[rules]\nstatus_path = \"/status\"\n";

async fn ask(gateway: &Gateway, path: &str, key: &str, caller: &str, wait: u32) -> (u16, Value) {
    let request = client()
        .get(format!("http://{}/status{path}", gateway.address()))
        .header("authorization", caller)
        .header("prefer", format!("respond-async, wait={wait}"))
        .header("idempotency-key", key);
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    (status, answer.json().await.unwrap_or_default())
}

fn post(gateway: &Gateway, path: &str, caller: &str) -> reqwest::RequestBuilder {
    client()
        .post(format!("http://{}{path}", gateway.address()))
        .header("authorization", caller)
        .header("idempotency-key", "key")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_unknown_then_running_then_done_and_asking_runs_nothing() {
    let service = Service::start().await;
    let gateway = gateway(service.address, RULES).await;

    let (status, said) = ask(&gateway, "/slow", "key", "ada", 0).await;
    assert_eq!((status, &said["state"]), (404, &"unknown".into()));
    let running = tokio::spawn(post(&gateway, "/slow", "ada").send());
    eventually(|| service.work.runs() == 1).await;
    let (status, said) = ask(&gateway, "/slow", "key", "ada", 0).await;
    assert_eq!((status, &said["state"]), (200, &"running".into()));
    let waiting = {
        let url = format!("http://{}/status/slow", gateway.address());
        let request = client().get(url).header("authorization", "ada");
        let request = request.header("prefer", "wait=20");
        tokio::spawn(request.header("idempotency-key", "key").send())
    };
    service.work.gate.notify_one();
    assert_eq!(running.await.unwrap().unwrap().status(), 200);

    let said: Value = waiting.await.unwrap().unwrap().json().await.unwrap();
    assert_eq!(
        (&said["state"], &said["status"]),
        (&"done".into(), &200.into())
    );
    assert!(
        said["since"].is_string() && said["expires"].is_string(),
        "{said}"
    );
    assert_eq!(service.work.runs(), 1);
}

#[tokio::test]
async fn another_caller_another_key_and_another_host_know_nothing() {
    let service = Service::start().await;
    let gateway = gateway(service.address, RULES).await;
    assert_eq!(
        post(&gateway, "/orders", "ada")
            .send()
            .await
            .unwrap()
            .status(),
        201
    );

    for (key, caller) in [("key", "eve"), ("other", "ada")] {
        let (status, said) = ask(&gateway, "/orders", key, caller, 0).await;
        assert_eq!(status, 404, "{key} {caller}");
        assert_eq!(said.as_object().unwrap().len(), 1, "{said}");
    }
    let elsewhere = client()
        .get(format!("http://{}/status/orders", gateway.address()))
        .header("authorization", "ada")
        .header("host", "another.example")
        .header("idempotency-key", "key");
    assert_eq!(elsewhere.send().await.unwrap().status(), 404);
    let (status, said) = ask(&gateway, "/orders", "key", "ada", 0).await;
    assert_eq!((status, &said["status"]), (200, &201.into()));
    assert_eq!(service.work.runs(), 1);
}

#[tokio::test]
async fn what_was_lost_is_in_doubt_and_a_key_is_needed_to_ask() {
    let (lost, _) = scripted(|_, _| Say::Nothing).await;
    let gateway = gateway(lost, &format!("{RULES}on_lapse = \"hold\"\n")).await;
    assert_eq!(
        post(&gateway, "/orders", "ada")
            .send()
            .await
            .unwrap()
            .status(),
        502
    );

    let (status, said) = ask(&gateway, "/orders", "key", "ada", 1).await;
    assert_eq!((status, &said["state"]), (200, &"in-doubt".into()));
    let without = client().get(format!("http://{}/status/orders", gateway.address()));
    assert_eq!(without.send().await.unwrap().status(), 400);
}

#[tokio::test]
async fn a_route_answers_for_its_own_scope_and_without_the_setting_it_is_an_ordinary_path() {
    let service = Service::start().await;
    let routes = "[[route]]\nmatch = \"POST /orders\"\nscope = [\"route\", \"caller\"]\n\
                  rules.status_path = \"/my/status\"\n";
    let gateway = gateway(service.address, routes).await;
    assert_eq!(
        post(&gateway, "/orders", "ada")
            .send()
            .await
            .unwrap()
            .status(),
        201
    );

    let asked = client()
        .get(format!("http://{}/my/status/orders", gateway.address()))
        .header("authorization", "ada")
        .header("idempotency-key", "key");
    let said: Value = asked.send().await.unwrap().json().await.unwrap();

    assert_eq!(said["state"], "done");
    let (status, _) = ask(&gateway, "/orders", "key", "ada", 0).await;
    assert_eq!(status, 404, "the service has no such path");
}

#[tokio::test]
async fn what_a_body_tells_apart_is_not_said_to_be_unknown() {
    let service = Service::start().await;
    let settings = format!("scope = [\"caller\", \"body:session\"]\n{RULES}");
    let gateway = gateway(service.address, &settings).await;

    let (status, said) = ask(&gateway, "/orders", "key", "ada", 0).await;

    assert_eq!((status, said.get("state")), (400, None));
}

/// One path, a route for POST, one for PUT, and what is left: each has a scope of its own.
const BY_METHOD: &str = "[[route]]\nmatch = \"POST /echo\"\nscope = [\"route\", \"caller\"]\n\
    [[route]]\nmatch = \"PUT /echo\"\nscope = [\"caller\", \"header:x-tenant\"]\n";

#[tokio::test]
async fn every_route_of_the_path_is_asked_whatever_its_method() {
    let service = Service::start().await;
    let gateway = gateway(service.address, &format!("{RULES}{BY_METHOD}")).await;
    for method in ["POST", "PUT", "DELETE"] {
        let request = client()
            .request(
                method.parse().unwrap(),
                format!("http://{}/echo", gateway.address()),
            )
            .header("authorization", "ada")
            .header("idempotency-key", method);
        assert_eq!(request.send().await.unwrap().status(), 200, "{method}");

        let (status, said) = ask(&gateway, "/echo", method, "ada", 0).await;
        assert_eq!((status, &said["state"]), (200, &"done".into()), "{method}");
        let (status, _) = ask(&gateway, "/echo", method, "eve", 0).await;
        assert_eq!(status, 404, "{method}");
    }

    let (status, said) = ask(&gateway, "/echo", "never-used", "ada", 0).await;
    assert_eq!((status, &said["state"]), (404, &"unknown".into()));
}

#[tokio::test]
async fn a_key_is_unknown_only_if_every_route_of_the_path_could_tell() {
    let service = Service::start().await;
    let routes = "[[route]]\nmatch = \"PUT /echo\"\nscope = [\"caller\", \"body:session\"]\n\
                  [[route]]\nmatch = \"POST /echo\"\nscope = [\"route\", \"caller\"]\n";
    let gateway = gateway(service.address, &format!("{RULES}{routes}")).await;
    assert_eq!(
        post(&gateway, "/echo", "ada")
            .send()
            .await
            .unwrap()
            .status(),
        200
    );

    let (status, said) = ask(&gateway, "/echo", "key", "ada", 0).await;
    assert_eq!((status, &said["state"]), (200, &"done".into()));
    let (status, said) = ask(&gateway, "/echo", "never-used", "ada", 0).await;
    assert_eq!((status, said.get("state")), (400, None));
}

/// The same request through any gateway: the host is part of the scope.
async fn of_one_host(request: reqwest::RequestBuilder) -> (u16, Value) {
    let request = request
        .header("host", "shop.test")
        .header("idempotency-key", "key");
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    (status, answer.json().await.unwrap_or_default())
}

/// What it says is a promise like a replay: a failover must not make it untrue.
#[tokio::test(flavor = "multi_thread")]
async fn done_is_not_said_of_what_only_the_master_has() {
    let service = Service::start().await;
    let group = tokio::task::block_in_place(|| {
        // A replica that is paused is not to be given up meanwhile.
        let down_after = std::time::Duration::from_secs(60);
        let options = RedisSentinelOptions {
            down_after,
            ..RedisSentinelOptions::default()
        };
        RedisSentinel::start_with(&options).unwrap()
    });
    let master = group.master().unwrap();
    let mut nodes = group.nodes().iter();
    let replica = nodes.find(|node| node.port() != master.port()).unwrap();
    let on = async |more: &str| {
        let url = group.url();
        let sign = if url.contains('?') { '&' } else { '?' };
        let store = format!("store = \"{url}{sign}{more}\"\n{RULES}");
        started(service.address, &store).await
    };
    let plain = on("connections=1").await;
    let waiting = on("wait_replicas=1&wait_timeout_ms=200").await;
    let ask = |gateway: &Gateway| {
        let url = format!("http://{}/status/orders", gateway.address());
        of_one_host(client().get(url))
    };
    let order = |gateway: &Gateway| {
        let url = format!("http://{}/orders", gateway.address());
        of_one_host(client().post(url))
    };

    replica.pause().unwrap();
    assert_eq!(order(&plain).await.0, 201);
    let (status, said) = ask(&plain).await;
    assert_eq!((status, &said["state"]), (200, &"done".into()));
    assert_eq!(order(&waiting).await.0, 503);
    let (status, said) = ask(&waiting).await;
    assert_eq!(status, 503, "{said}");

    replica.resume().unwrap();
    for _ in 0..600 {
        if ask(&waiting).await.0 == 200 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the replica is back, and nothing is said");
}

#[tokio::test(flavor = "multi_thread")]
async fn done_is_not_said_of_what_only_the_primary_has() {
    let service = Service::start().await;
    let (primary, standby) = tokio::task::block_in_place(|| {
        let primary = Postgres::start(PostgresOptions::default()).unwrap();
        let standby = primary.standby().unwrap();
        (primary, standby)
    });
    let more = "timeout_ms=1000&connect_timeout_ms=1000";
    let store = format!("store = \"{}?{more}\"\n{RULES}", primary.url());
    let gateway = started(service.address, &store).await;
    let order = || client().post(format!("http://{}/orders", gateway.address()));
    let ask = || client().get(format!("http://{}/status/orders", gateway.address()));
    assert_eq!(of_one_host(order()).await.0, 201);
    let (status, said) = of_one_host(ask()).await;
    assert_eq!((status, &said["state"]), (200, &"done".into()));

    tokio::task::block_in_place(|| {
        primary.synchronous().unwrap();
        standby.terminate().unwrap();
    });
    assert_eq!(of_one_host(order()).await.0, 503);
    let (status, said) = of_one_host(ask()).await;
    assert_eq!(status, 503, "{said}");

    tokio::task::block_in_place(|| standby.start_again()).unwrap();
    for _ in 0..600 {
        if of_one_host(ask()).await.0 == 200 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the standby is back, and nothing is said");
}
