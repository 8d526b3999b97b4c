//! `onlyonce keys top` and `keys watch`.

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::support::gateway::{Running, service};
use crate::support::program::{onlyonce, run};

#[tokio::test]
async fn the_keys_that_are_repeated_most_come_first() {
    let (upstream, _) = service().await;
    let gateway = Running::start(&upstream, "store = \"memory:\"\n").await;
    for (key, times) in [
        ("cold-key-of-an-order", 2),
        ("hot-key-of-an-order", 6),
        ("lone", 1),
    ] {
        for _ in 0..times {
            gateway.send("/orders", key, "{}").await;
        }
    }
    gateway
        .send("/orders", "cold-key-of-an-order", "{\"n\":2}")
        .await;

    let (code, out, _) = run(&["keys", "top", "--admin", &gateway.admin, "--json"]).await;
    let (_, table, _) = run(&["keys", "top", "--admin", &gateway.admin, "--limit", "1"]).await;

    assert_eq!(code, 0);
    let keys: Vec<Value> = serde_json::from_str(&out).unwrap();
    let counts: Vec<_> = keys
        .iter()
        .map(|it| (&it["replays"], &it["refusals"]))
        .collect();
    assert_eq!(counts, [(&5.into(), &0.into()), (&1.into(), &1.into())]);
    assert!(
        !out.contains("hot-key-of-an-order"),
        "a key is a secret: {out}"
    );
    assert_eq!(table.lines().count(), 2, "{table}");
    assert!(table.starts_with("SLOT"), "{table}");
}

#[tokio::test]
async fn what_happens_is_printed_as_it_does_and_filtered() {
    let (upstream, _) = service().await;
    let gateway = Running::start(&upstream, "store = \"memory:\"\n").await;
    let line = [
        "keys",
        "watch",
        "--admin",
        &gateway.admin,
        "--event",
        "replayed,refused",
    ];
    let mut watching = onlyonce(&[&line[..], &["--count", "2"]].concat())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(watching.stderr.take().unwrap()).lines();
    let ready = said.next_line().await.unwrap().unwrap();
    assert!(ready.starts_with("watching"), "{ready}");

    for body in ["{}", "{}", "{\"n\":2}"] {
        gateway.send("/orders", "key-of-an-order", body).await;
    }

    let output = watching.wait_with_output().await.unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines.len(), 2, "{printed}");
    assert!(
        lines[0].contains("replayed") && lines[1].contains("refused"),
        "{printed}"
    );
    assert!(lines[1].contains("reason=\"mismatch\"") && !printed.contains("key-of-an-order"));
}

#[tokio::test]
async fn for_a_program_an_event_is_a_json_object_with_its_fields() {
    let (upstream, _) = service().await;
    let gateway = Running::start(&upstream, "store = \"memory:\"\n").await;
    let line = [
        "keys", "watch", "--json", "--count", "1", "--event", "refused",
    ];
    let mut watching = onlyonce(&[&line[..], &["--admin", &gateway.admin]].concat())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(watching.stderr.take().unwrap()).lines();
    assert!(said.next_line().await.unwrap().is_some());

    for body in ["{}", "{\"n\":2}"] {
        gateway.send("/orders", "key-of-an-order", body).await;
    }

    let output = watching.wait_with_output().await.unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.lines().count(), 1, "{printed}");
    let event: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(event["event"], "refused");
    assert_eq!(event["operation"], "/orders");
    assert_eq!(event["fields"]["reason"], "mismatch", "{event}");
}

#[tokio::test]
async fn a_store_does_not_know_what_happens() {
    for action in ["top", "watch"] {
        let (code, _, said) = run(&["keys", action, "--store", "memory:"]).await;

        assert_eq!(code, 2);
        assert!(said.contains("--admin"), "{said}");
    }
}
