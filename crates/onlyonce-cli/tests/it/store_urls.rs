//! What goes around a store is said by its URL: a gateway on each, as its own process.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use onlyonce_testkit::servers::{Shared, shared};
use tempfile::TempDir;

use crate::support::gateway::{Running, service};
use crate::support::program::run;

const KEYS: &str = "k1 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
const OTHER_KEYS: &str = "k1 HwECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";

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
    let settings = format!(
        "store = \"{store}{sign}table={table}&sealed=FOLDER/keys&cache=1MiB&tier={}\"\n",
        shared(Shared::Redis)
    );

    let first = Running::start_with(&upstream, &settings, &[], folder).await;
    assert_eq!(order(&first, "key").await, "order 1");
    assert_eq!(order(&first, "key").await, "order 1");
    let folder = stop(first).await;
    let second = Running::start_with(&upstream, &settings, &[], folder).await;

    assert_eq!(order(&second, "key").await, "order 1");
    let wrong = settings.replace("tier=redis", "tier=postgres");
    let config = second.folder.path().join("wrong.toml");
    std::fs::write(&config, format!("upstream = \"{upstream}\"\n{wrong}")).unwrap();
    let (code, out, err) = run(&["config", "check", config.to_str().unwrap()]).await;
    assert_ne!(code, 0);
    assert!(format!("{out}{err}").contains("tier"), "{out}{err}");
}
