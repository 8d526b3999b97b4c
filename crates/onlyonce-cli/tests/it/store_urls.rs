//! What goes around a store is said by its URL: a gateway on each, as its own process.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::Ordering;

use onlyonce_testkit::servers::{Shared, shared};
use tempfile::TempDir;
use tokio::process::Command;

use crate::support::gateway::{Running, eventually, service};
use crate::support::program::run;

const KEYS: &str = "k1 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
const OTHER_KEYS: &str = "k1 HwECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
const NEXT_KEYS: &str = "k2 HwECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
/// Longer than any marker of a tier lasts, in milliseconds.
const MARKER_MS_MAX: i64 = 60_000;

fn write_keys(folder: &TempDir, keys: &str) {
    let file = folder.path().join("keys");
    std::fs::write(&file, keys).unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
}

/// Orders under a host that outlives a gateway's port: it is part of every scope.
async fn order(gateway: &Running, key: &str) -> String {
    let request = gateway.request("/orders", key).header("host", "shop");
    let answer = request.body("{}").send().await;
    answer.unwrap().text().await.unwrap()
}

/// What a program that asks a server says.
async fn told(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Stops a gateway in order, and gives its folder for the next one.
async fn stop(mut gateway: Running) -> TempDir {
    gateway.signal("-TERM").await;
    gateway.child.wait().await.unwrap();
    gateway.folder
}

/// Whether any file in the folder holds these bytes.
fn is_found(folder: &Path, bytes: &str) -> bool {
    let files = std::fs::read_dir(folder).unwrap();
    files.map(|file| file.unwrap().path()).any(|path| {
        let held = std::fs::read(&path).unwrap_or_default();
        held.windows(bytes.len()).any(|it| it == bytes.as_bytes())
    })
}

#[tokio::test]
async fn a_sealed_store_replays_with_its_keys_and_is_refused_with_others() {
    let (upstream, _) = service().await;
    let folder = TempDir::new().unwrap();
    let plain = "store = \"sqlite:FOLDER/records.db\"\n";
    let sealed = "store = \"sqlite:FOLDER/records.db?sealed=FOLDER/keys&plain=true\"\n";
    write_keys(&folder, KEYS);

    let before = Running::start_with(&upstream, plain, &[], folder).await;
    assert_eq!(order(&before, "plain").await, "order 1");
    let folder = stop(before).await;
    assert!(is_found(folder.path(), "order 1"));
    let gateway = Running::start_with(&upstream, sealed, &[], folder).await;
    assert_eq!(order(&gateway, "plain").await, "order 1");
    assert_eq!(order(&gateway, "sealed").await, "order 2");
    let folder = stop(gateway).await;
    assert!(!is_found(folder.path(), "order 2"));
    let again = Running::start_with(&upstream, sealed, &[], folder).await;
    assert_eq!(order(&again, "sealed").await, "order 2");
    let folder = stop(again).await;

    write_keys(&folder, OTHER_KEYS);
    let config = folder.path().join("onlyonce.toml");
    let line = ["gateway", "--config", config.to_str().unwrap()];
    let (code, _, said) = run(&line).await;
    assert_ne!(code, 0);
    assert!(said.contains("key"), "{said}");
}

#[tokio::test]
async fn a_cached_store_replays_what_it_has_read() {
    let (upstream, _) = service().await;
    let settings = "store = \"sqlite:FOLDER/records.db?cache=1MiB\"\n";
    let gateway = Running::start(&upstream, settings).await;

    for _ in 0..3 {
        assert_eq!(order(&gateway, "key").await, "order 1");
    }
    assert_eq!(order(&gateway, "other").await, "order 2");
}

#[tokio::test]
async fn a_tier_and_a_seal_go_around_one_database() {
    let (upstream, _) = service().await;
    let table = format!("tiered_{}", std::process::id());
    let folder = TempDir::new().unwrap();
    write_keys(&folder, KEYS);
    let store = shared(Shared::Postgres);
    let sign = if store.contains('?') { '&' } else { '?' };
    let redis = shared(Shared::Redis);
    let settings = format!(
        "store = \"{store}{sign}table={table}&sealed=FOLDER/keys&cache=1MiB\
         &tier={redis}%3Fprefix%3D{table}\"\n"
    );

    let first = Running::start_with(&upstream, &settings, &[], folder).await;
    assert_eq!(order(&first, "key").await, "order 1");
    assert_eq!(order(&first, "key").await, "order 1");
    let folder = stop(first).await;
    let second = Running::start_with(&upstream, &settings, &[], folder).await;

    assert_eq!(order(&second, "key").await, "order 1");
    let pattern = format!("{table}*");
    eventually("Redis has a copy", async || {
        let names = told(
            "redis-cli",
            &["-u", &redis, "--scan", "--pattern", &pattern],
        )
        .await;
        for name in names.lines() {
            let left = told("redis-cli", &["-u", &redis, "PTTL", name]).await;
            if left.trim().parse::<i64>().unwrap() > MARKER_MS_MAX {
                return true;
            }
        }
        false
    })
    .await;
    // Without the original, only the copy can answer, and only who has the key can read it.
    let deleted =
        format!("WITH gone AS (DELETE FROM {table} RETURNING 1) SELECT count(*) FROM gone");
    assert_eq!(told("psql", &[&store, "-XqAtc", &deleted]).await, "1\n");
    let folder = stop(second).await;
    let third = Running::start_with(&upstream, &settings, &[], folder).await;
    assert_eq!(order(&third, "key").await, "order 1");
    let wrong = settings.replace("tier=redis", "tier=postgres");
    let config = third.folder.path().join("wrong.toml");
    std::fs::write(&config, format!("upstream = \"{upstream}\"\n{wrong}")).unwrap();
    let (code, out, err) = run(&["config", "check", config.to_str().unwrap()]).await;
    assert_ne!(code, 0);
    assert!(format!("{out}{err}").contains("tier"), "{out}{err}");
}

#[tokio::test]
async fn the_key_of_a_seal_is_rotated_while_two_gateways_serve() {
    let (upstream, work) = service().await;
    let table = format!("rotated_{}", std::process::id());
    let store = shared(Shared::Postgres);
    let sign = if store.contains('?') { '&' } else { '?' };
    let settings = format!("store = \"{store}{sign}table={table}&sealed=FOLDER/keys\"\n");
    let start = async |folder: TempDir, keys: &str| {
        write_keys(&folder, keys);
        Running::start_with(&upstream, &settings, &[], folder).await
    };
    let again = async |gateway: Running, keys: &str| start(stop(gateway).await, keys).await;
    let one = start(TempDir::new().unwrap(), KEYS).await;
    let other = start(TempDir::new().unwrap(), KEYS).await;
    assert_eq!(order(&one, "old").await, "order 1");

    // First everybody can open what the next key seals, then it seals.
    let both = format!("{KEYS}{NEXT_KEYS}");
    let (one, other) = (again(one, &both).await, again(other, &both).await);
    let turned = format!("{NEXT_KEYS}{KEYS}");
    let one = again(one, &turned).await;
    assert_eq!(order(&one, "old").await, "order 1");
    assert_eq!(order(&one, "new").await, "order 2");
    assert_eq!(order(&other, "new").await, "order 2");
    let other = again(other, &turned).await;
    assert_eq!(order(&other, "old").await, "order 1");

    // At last the old key goes: what it sealed is out of reach, and does not run again.
    let retired = format!("{NEXT_KEYS}k1 retired\n");
    let (one, other) = (again(one, &retired).await, again(other, &retired).await);
    for gateway in [&one, &other] {
        assert_eq!(order(gateway, "new").await, "order 2");
        let request = gateway.request("/orders", "old").header("host", "shop");
        assert_eq!(request.body("{}").send().await.unwrap().status(), 503);
    }
    assert_eq!(work.runs.load(Ordering::SeqCst), 2);
}
