//! Who did what under which key is written down, kept for its time, and can be taken out.

use std::fs;
use std::path::Path;

use onlyonce_gateway::audit::{Purged, Trail};
use onlyonce_gateway::{Gateway, Settings};
use serde_json::Value;

use crate::support::{Service, client, eventually, settings};

/// Callers are known by a header that something in front sets.
fn audited(service: &Service, folder: &Path, more: &str) -> Settings {
    let path = folder.join("audit.jsonl");
    let config = format!(
        "ttl = \"1s\"\nscope = [\"trusted-header:x-user\", \"route\"]\n\
         [audit]\npath = {path:?}\n{more}"
    );
    settings(service.address, &config)
}

async fn order(gateway: &Gateway, user: &str, key: &str, body: &'static str) -> u16 {
    let url = format!("http://{}/orders", gateway.address());
    let request = client().post(url).header("idempotency-key", key).body(body);
    let request = request
        .header("x-user", user)
        .header("authorization", format!("Bearer {user}-secret"));
    request.send().await.unwrap().status().as_u16()
}

fn entries(folder: &Path) -> Vec<Value> {
    Trail::at(folder.join("audit.jsonl"))
        .last(1000, |_| true)
        .unwrap()
        .0
}

fn events(folder: &Path) -> Vec<String> {
    let entries = entries(folder);
    entries
        .iter()
        .map(|it| it["eventType"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn what_happens_to_a_key_is_written_down_without_the_key() {
    let service = Service::start().await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(&audited(&service, folder.path(), ""))
        .await
        .unwrap();
    let key = "secret-key-0123456789-abcdef";

    order(&gateway, "ann", key, "{\"n\":1}").await;
    order(&gateway, "ann", key, "{\"n\":1}").await;
    order(&gateway, "ann", key, "{\"n\":2}").await;
    eventually(|| events(folder.path()).len() == 4).await;
    gateway.drain().await;

    // A replay is written when it is counted, a little after it was given.
    let entries = entries(folder.path());
    let [created, replay, conflict, expired] = ["key.created", "replay", "conflict", "key.expired"]
        .map(|event| {
            let name = format!("idempotency.{event}");
            let mut found = entries.iter().filter(|it| it["eventType"] == name);
            let first = found.next();
            assert!(found.next().is_none(), "{entries:?}");
            first.unwrap_or_else(|| panic!("{event}: {entries:?}"))
        });
    for entry in [created, replay, conflict] {
        assert!(entry["timestamp"].as_str() < expired["timestamp"].as_str());
    }
    assert_eq!(created["metadata"]["ttl_ms"], 1000);
    assert_eq!(created["metadata"]["operation"], "/orders");
    assert_eq!(replay["metadata"]["replayCount"], 1);
    assert!(replay["metadata"]["originalTimestamp"].is_string());
    assert_eq!(conflict["metadata"]["conflictType"], "payload_mismatch");
    let hash = |name: &str| conflict["metadata"][name].as_str().unwrap().to_owned();
    assert_ne!(hash("originalRequestHash"), hash("conflictingRequestHash"));
    assert!(conflict["metadata"]["originalTimestamp"].is_string());
    assert_eq!(expired["metadata"]["reason"], "ttl_elapsed");
    let ids: std::collections::BTreeSet<_> = entries
        .iter()
        .map(|it| it["eventId"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), 4);
    let written = fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
    for secret in [key, "ann-secret", "\"n\""] {
        assert!(!written.contains(secret), "{secret}: {written}");
    }
}

#[tokio::test]
async fn a_duplicate_that_has_to_wait_is_written_down() {
    let service = Service::start().await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(&audited(&service, folder.path(), ""))
        .await
        .unwrap();
    let url = format!("http://{}/slow", gateway.address());
    let send = || tokio::spawn(client().post(&url).header("idempotency-key", "key").send());
    let first = send();
    eventually(|| service.work.runs() == 1).await;
    let second = send();
    let is_waiting = async || {
        let url = format!("http://{}/metrics", gateway.admin_address());
        let page = client().get(url).send().await.unwrap();
        let page = page.text().await.unwrap();
        page.contains("\nidempotency_waiters 1\n")
    };
    while !is_waiting().await {
        tokio::task::yield_now().await;
    }
    service.work.gate.notify_one();

    let contention = || {
        let entries = entries(folder.path());
        entries
            .into_iter()
            .find(|it| it["eventType"] == "idempotency.lock.contention")
    };
    eventually(|| contention().is_some()).await;

    let told = contention().unwrap()["metadata"].clone();
    assert_eq!(told["queueDepth"], 1);
    assert!(told["waitTime_ms"].is_u64(), "{told}");
    assert!(told["lockHolder"].is_string(), "{told}");
    for sent in [first, second] {
        sent.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn full_files_are_put_aside_and_old_ones_go() {
    let service = Service::start().await;
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("audit.jsonl.1000");
    let young = folder
        .path()
        .join(format!("audit.jsonl.{}", u64::from(u32::MAX) * 1000));
    fs::write(&old, "{\"eventType\":\"old\"}\n").unwrap();
    fs::write(&young, "{\"eventType\":\"young\"}\n").unwrap();

    let config = audited(&service, folder.path(), "file_bytes_max = 600\n");
    let gateway = Gateway::start(&config).await.unwrap();
    assert!(!old.exists() && young.exists());
    let created = |it: &&String| *it == "idempotency.key.created";
    for number in 0..8 {
        order(&gateway, "ann", &format!("key-{number}"), "{}").await;
        // What comes while something is written is written at once.
        eventually(|| events(folder.path()).iter().filter(created).count() > number).await;
    }
    gateway.drain().await;

    let files = fs::read_dir(folder.path()).unwrap();
    let sizes: Vec<u64> = files
        .map(|it| it.unwrap().metadata().unwrap().len())
        .collect();
    assert!(sizes.len() > 4, "{sizes:?}");
    assert_eq!(events(folder.path()).iter().filter(created).count(), 8);
}

#[tokio::test]
async fn an_actor_is_taken_out_of_all_files_while_the_gateway_writes() {
    let service = Service::start().await;
    let folder = tempfile::tempdir().unwrap();
    let line = |actor: &str| {
        format!("{{\"eventType\":\"x\",\"actor\":{{\"id\":\"{actor}\"}},\"metadata\":{{}}}}\n")
    };
    let path = folder.path().join("audit.jsonl");
    let aside = folder
        .path()
        .join(format!("audit.jsonl.{}", u64::from(u32::MAX) * 1000));
    fs::write(&aside, line("mallory") + &line("bob")).unwrap();
    let of_mallory = "{\"eventType\":\"x\",\"actor\":{\"id\":\"bob\"},\
                  \"metadata\":{\"originalActor\":{\"id\":\"mallory\"}}}\n";
    fs::write(&path, line("mallory") + of_mallory).unwrap();
    let gateway = Gateway::start(&audited(&service, folder.path(), ""))
        .await
        .unwrap();

    order(&gateway, "ann", "key-1", "{}").await;
    eventually(|| entries(folder.path()).len() >= 5).await;
    let purged = Trail::at(&path).purge("mallory").unwrap();
    order(&gateway, "ann", "key-2", "{}").await;
    gateway.drain().await;

    assert_eq!(purged.removed, 2);
    let after = entries(folder.path());
    assert!(!serde_json::to_string(&after).unwrap().contains("mallory"));
    let created = after
        .iter()
        .filter(|it| it["eventType"] == "idempotency.key.created");
    assert_eq!(created.count(), 2);
}

#[test]
fn a_purge_that_was_killed_is_finished_or_undone() {
    for (is_complete, left) in [(true, 1), (false, 2)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let line = |actor: &str| format!("{{\"actor\":{{\"id\":\"{actor}\"}}}}\n");
        fs::write(&path, line("mallory") + &line("bob")).unwrap();
        let staged = folder.path().join("audit.jsonl.purge");
        fs::create_dir(&staged).unwrap();
        fs::write(staged.join("audit.jsonl"), line("bob")).unwrap();
        if is_complete {
            fs::write(staged.join("complete"), "").unwrap();
        }

        assert_eq!(entries(folder.path()).len(), left);
        assert!(!staged.exists());
        let purged = Trail::at(&path).purge("nobody").unwrap();
        let kept = left as u64;
        assert_eq!(purged, Purged { removed: 0, kept });
    }
}

#[tokio::test]
async fn a_line_torn_by_a_crash_does_not_spoil_the_next() {
    let service = Service::start().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    fs::write(&path, "{\"eventType\":\"whole\"}\n{\"eventType\":\"to").unwrap();
    let gateway = Gateway::start(&audited(&service, folder.path(), ""))
        .await
        .unwrap();

    order(&gateway, "ann", "key", "{}").await;
    gateway.drain().await;

    let (found, unread) = Trail::at(&path).last(1000, |_| true).unwrap();
    let events: Vec<_> = found
        .iter()
        .map(|it| it["eventType"].as_str().unwrap())
        .collect();
    assert_eq!(events[..2], ["whole", "idempotency.key.created"]);
    assert_eq!(unread, 1);
    let newest = Trail::at(&path).last(1, |_| true).unwrap().0;
    assert_eq!(newest, found[found.len() - 1..]);
}

/// The permissions of every file of the trail.
fn modes(folder: &Path) -> Vec<(String, u32)> {
    use std::os::unix::fs::PermissionsExt as _;
    let files = fs::read_dir(folder).unwrap().map(|file| {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().permissions().mode() & 0o777;
        (file.file_name().to_string_lossy().into_owned(), mode)
    });
    let mut files: Vec<_> = files.collect();
    files.sort();
    files
}

#[track_caller]
fn assert_private(folder: &Path, files_min: usize) {
    let modes = modes(folder);
    assert!(modes.len() >= files_min, "{modes:?}");
    for (file, mode) in &modes {
        assert_eq!(mode & 0o077, 0, "{file} has {mode:o}");
    }
}

#[tokio::test]
async fn nobody_but_its_owner_reads_the_trail_from_its_first_byte() {
    let service = Service::start().await;
    let folder = tempfile::tempdir().unwrap();
    let config = audited(&service, folder.path(), "file_bytes_max = 600\n");

    let gateway = Gateway::start(&config).await.unwrap();

    assert_private(folder.path(), 2);
    for number in 0..4 {
        order(&gateway, "ann", &format!("key-{number}"), "{}").await;
        eventually(|| events(folder.path()).len() > number).await;
    }
    Trail::at(folder.path().join("audit.jsonl"))
        .purge("mallory")
        .unwrap();
    order(&gateway, "ann", "key-4", "{}").await;
    gateway.drain().await;
    assert_private(folder.path(), 3);
}

#[tokio::test]
async fn a_trail_that_others_could_read_is_taken_from_them_at_the_start() {
    use std::os::unix::fs::PermissionsExt as _;
    let service = Service::start().await;
    let folder = tempfile::tempdir().unwrap();
    let aside = format!("audit.jsonl.{}", u64::from(u32::MAX) * 1000);
    for name in ["audit.jsonl", "audit.jsonl.lock", &aside] {
        let path = folder.path().join(name);
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    }

    let gateway = Gateway::start(&audited(&service, folder.path(), ""))
        .await
        .unwrap();

    assert_private(folder.path(), 3);
    gateway.drain().await;
}
