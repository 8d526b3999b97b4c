//! The default store: by default, nothing that was answered can be read from its disk without the
//! key beside it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use onlyonce_core::Engine;
use tempfile::TempDir;

const SECRET: &str = "an answer that nobody else may read";

fn url(place: &TempDir, more: &str) -> String {
    format!("file:{}/data{more}", place.path().display())
}

/// Runs the job once; says what it answered and whether that was a replay.
async fn run(url: &str) -> (String, bool) {
    let store = onlyonce_stores::open(url).await.unwrap();
    let engine = Engine::open(store).await.unwrap();
    let job = engine.job("read");
    let done = job
        .run("key-1", &1, async || Ok::<_, String>(SECRET.to_owned()))
        .await
        .unwrap();
    engine.shutdown(Duration::from_secs(5)).await;
    (done.value, done.replayed)
}

/// Whether any file of the store holds `text`.
fn shows(place: &TempDir, text: &str) -> bool {
    let files = fs::read_dir(place.path().join("data")).unwrap();
    files
        .map(|file| fs::read(file.unwrap().path()).unwrap())
        .any(|bytes| bytes.windows(text.len()).any(|it| it == text.as_bytes()))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn what_was_answered_cannot_be_read_from_the_disk() {
    let place = tempfile::tempdir().unwrap();

    let first = run(&url(&place, "")).await;
    let retry = run(&url(&place, "")).await;

    assert_eq!(first, (SECRET.to_owned(), false));
    assert_eq!(retry, (SECRET.to_owned(), true));
    assert!(!shows(&place, SECRET));
    assert_eq!(mode(&place.path().join("data.key")), 0o600);
}

/// So that the test above can fail.
#[tokio::test]
async fn whoever_asks_for_it_gets_a_readable_disk() {
    let place = tempfile::tempdir().unwrap();

    run(&url(&place, "?sealed=false")).await;

    assert!(shows(&place, SECRET));
    assert!(!place.path().join("data.key").exists());
}

#[tokio::test]
async fn a_used_store_without_its_key_is_refused_and_no_new_key_is_made() {
    let place = tempfile::tempdir().unwrap();
    run(&url(&place, "")).await;
    let key = place.path().join("data.key");
    fs::remove_file(&key).unwrap();

    let refused = onlyonce_stores::open(&url(&place, "")).await.err().unwrap();

    assert!(refused.to_string().contains("data.key"), "{refused}");
    assert!(!key.exists());
}

#[tokio::test]
async fn another_key_is_refused_at_the_start() {
    let place = tempfile::tempdir().unwrap();
    run(&url(&place, "")).await;
    let other = tempfile::tempdir().unwrap();
    run(&url(&other, "")).await;
    fs::copy(other.path().join("data.key"), place.path().join("data.key")).unwrap();

    assert!(onlyonce_stores::open(&url(&place, "")).await.is_err());
}

#[tokio::test]
async fn the_key_may_be_kept_elsewhere() {
    let place = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let key = elsewhere.path().join("ring");
    let url = url(&place, &format!("?key_file={}", key.display()));

    assert!(!run(&url).await.1);
    assert!(run(&url).await.1);

    assert!(key.exists());
    assert!(!place.path().join("data.key").exists());
}

#[tokio::test]
async fn a_url_names_a_folder() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().display();
    for url in [
        format!("file:{path}/a"),
        format!("file://{path}/b"),
        format!("file:{path}/c?bytes_max=1000000"),
    ] {
        let store = onlyonce_stores::open(&url).await.unwrap();
        store.operate().unwrap().ping().await.unwrap();
    }

    assert!(place.path().join("a").join("onlyonce").exists());
    assert!(place.path().join("b").join("onlyonce").exists());
    assert!(place.path().join("c").join("onlyonce").exists());
    for (url, wanted) in [
        ("file:".to_owned(), "names no folder"),
        (
            format!("file:{path}/d?byte_max=1"),
            "did you mean `bytes_max`?",
        ),
        (
            format!("file:{path}/d?bytes_max=much"),
            "not a number of bytes",
        ),
    ] {
        let told = onlyonce_stores::open(&url).await.err().unwrap().to_string();
        assert!(told.contains(wanted), "{told}");
    }
    assert!(!place.path().join("d").exists());
}
