//! `onlyonce audit`, beside a gateway that runs, is killed and runs again.

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::support::gateway::{Running, eventually, service, token};
use crate::support::program::{onlyonce, run};

const SETTINGS: &str = "store = \"memory:\"\n[audit]\npath = \"FOLDER/trail/audit.jsonl\"\n";

async fn order(gateway: &Running, user: &str, key: &str) {
    let request = gateway
        .request("/orders", key)
        .header("authorization", token(user));
    assert_eq!(request.send().await.unwrap().status(), 200);
}

async fn tail(folder: &TempDir, more: &[&str]) -> (Vec<Value>, String) {
    let file = folder.path().join("trail/audit.jsonl");
    let mut line = vec![
        "audit",
        "tail",
        "--file",
        file.to_str().unwrap(),
        "-n",
        "1000",
    ];
    line.extend(more);
    let (code, out, err) = run(&line).await;
    assert_eq!(code, 0, "{err}");
    (
        out.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect(),
        err,
    )
}

#[tokio::test]
async fn a_gateway_that_is_killed_leaves_a_trail_that_can_be_read_and_gone_on_with() {
    let (upstream, _) = service().await;
    let mut gateway = Running::start(&upstream, SETTINGS).await;
    for number in 0..50 {
        order(&gateway, "ann", &format!("first-{number}")).await;
    }
    eventually("something is written", async || {
        !tail(&gateway.folder, &[]).await.0.is_empty()
    })
    .await;
    gateway.child.start_kill().unwrap();
    gateway.child.wait().await.unwrap();
    let before = tail(&gateway.folder, &[]).await.0.len();

    let gateway = Running::start_with(&upstream, SETTINGS, &[], gateway.folder).await;
    order(&gateway, "bob", "second").await;
    let by_bob = ["--actor", "bob"];
    eventually("it goes on", async || {
        tail(&gateway.folder, &by_bob).await.0.len() == 1
    })
    .await;

    let (entries, said) = tail(&gateway.folder, &[]).await;
    assert!(entries.len() > before && before > 0);
    assert_eq!(said, "", "no line is torn");
    let entry = &tail(&gateway.folder, &by_bob).await.0[0];
    assert_eq!(entry["eventType"], "idempotency.key.created");
    assert_eq!(entry["actor"]["id"], "bob");
}

#[tokio::test]
async fn an_actor_is_purged_while_the_gateway_runs() {
    let (upstream, _) = service().await;
    let settings = format!("{SETTINGS}file_bytes_max = 2000\n");
    let gateway = Running::start(&upstream, &settings).await;
    for number in 0..10 {
        order(&gateway, "ann", &format!("ann-{number}")).await;
        order(&gateway, "bob", &format!("bob-{number}")).await;
    }
    eventually("all is written", async || {
        tail(&gateway.folder, &[]).await.0.len() == 20
    })
    .await;

    let file = gateway.folder.path().join("trail/audit.jsonl");
    let line = [
        "audit",
        "purge",
        "--file",
        file.to_str().unwrap(),
        "--actor",
        "ann",
        "--as",
        "mia",
        "--reason",
        "asked to be forgotten",
        "--json",
    ];
    let (code, out, err) = run(&line).await;
    order(&gateway, "bob", "afterwards").await;

    assert_eq!(
        (code, out.trim()),
        (0, "{\"kept\":10,\"removed\":10}"),
        "{err}"
    );
    eventually("it goes on", async || {
        tail(&gateway.folder, &[]).await.0.len() == 12
    })
    .await;
    let purge = &tail(&gateway.folder, &["--actor", "mia"]).await.0[0];
    assert_eq!(purge["eventType"], "idempotency.operator.purge");
    assert_eq!(purge["metadata"]["entries"], 10);
    assert_eq!(purge["metadata"]["reason"], "asked to be forgotten");
    assert!(
        tail(&gateway.folder, &["--actor", "ann"])
            .await
            .0
            .is_empty()
    );
    let files = std::fs::read_dir(gateway.folder.path().join("trail")).unwrap();
    assert!(files.count() > 3, "it was spread over several files");
}

#[tokio::test]
async fn a_trail_that_is_not_there_is_told() {
    let (code, _, said) = run(&["audit", "tail", "--file", "/nowhere/audit.jsonl"]).await;

    assert_eq!(code, 2);
    assert!(said.contains("/nowhere/audit.jsonl"), "{said}");
}

#[tokio::test]
async fn a_trail_that_is_not_there_yet_is_told_and_followed_from_its_first_entry() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("audit.jsonl");
    let line = [
        "audit",
        "tail",
        "--follow",
        "--file",
        file.to_str().unwrap(),
    ];
    let mut following = onlyonce(&line).spawn().unwrap();
    let mut said = BufReader::new(following.stderr.take().unwrap()).lines();
    let mut printed = BufReader::new(following.stdout.take().unwrap()).lines();

    let told = said.next_line().await.unwrap().unwrap();
    std::fs::write(&file, "{\"eventId\":\"evt_1\"}\n").unwrap();
    let first = printed.next_line().await.unwrap().unwrap();

    assert!(told.contains("there is no audit trail here"), "{told}");
    assert!(told.ends_with("; waiting for it"), "{told}");
    assert_eq!(first, "{\"eventId\":\"evt_1\"}");
}

#[tokio::test]
async fn an_actor_is_purged_through_the_admin_api() {
    let (upstream, _) = service().await;
    let gateway = Running::start(&upstream, SETTINGS).await;
    for number in 0..3 {
        order(&gateway, "ann", &format!("ann-{number}")).await;
        order(&gateway, "bob", &format!("bob-{number}")).await;
    }
    eventually("all is written", async || {
        tail(&gateway.folder, &[]).await.0.len() == 6
    })
    .await;
    let admin = ["--admin", &gateway.admin];

    let line = [&["audit", "tail", "--actor", "ann"], &admin[..]].concat();
    let (read, of_ann, err) = run(&line).await;
    let by_mia = ["--actor", "ann", "--as", "mia"];
    let line = [&["audit", "purge", "--json"], &by_mia[..], &admin].concat();
    let (purged, told, _) = run(&line).await;
    let both = [&["audit", "tail", "--file", "audit.jsonl"], &admin[..]].concat();
    let (wrong, _, why) = run(&both).await;

    assert_eq!((read, of_ann.lines().count()), (0, 3), "{err}");
    assert_eq!((purged, told.trim()), (0, "{\"kept\":3,\"removed\":3}"));
    eventually("the purge is told", async || {
        tail(&gateway.folder, &["--actor", "mia"]).await.0.len() == 1
    })
    .await;
    let left = tail(&gateway.folder, &["--actor", "bob"]).await.0;
    assert_eq!(left.len(), 3);
    assert!(
        tail(&gateway.folder, &["--actor", "ann"])
            .await
            .0
            .is_empty()
    );
    assert_eq!(wrong, 2);
    assert!(why.contains("cannot be used with"), "{why}");
}
