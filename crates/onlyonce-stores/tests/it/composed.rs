//! What a URL puts around its store: the conformance suite on each kind of store with all that makes
//! sense around it, and what is said about what does not.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Entropy, OsEntropy, Store, async_trait};
use onlyonce_stores::{KeyRing, open};
use onlyonce_testkit::conformance::TestBed;
use onlyonce_testkit::servers::{Shared, shared};
use tempfile::TempDir;

use crate::rough::{LONG, answer, claim, done, is_granted, lease, replayed};

/// A store by its URL, in a world of its own.
struct UrlBed {
    name: &'static str,
    store: Arc<dyn Store>,
    expires_by_itself: bool,
    /// Gone with the bed.
    _place: TempDir,
}

impl UrlBed {
    /// Opens `url`, in which `KEY` is a key file, `UNIQUE` a word, and `PLACE` a folder.
    async fn open(name: &'static str, url: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let url = filled(url, &place);
        Self {
            name,
            store: open(&url).await.unwrap(),
            expires_by_itself: url.starts_with("redis"),
            _place: place,
        }
    }
}

fn filled(url: &str, place: &TempDir) -> String {
    let key = place.path().join("ring.key");
    KeyRing::from_file_or_new(&key, &OsEntropy::new()).unwrap();
    let mut random = [0; 8];
    OsEntropy::new().fill(&mut random);
    let unique = format!("t_{:016x}", u64::from_le_bytes(random));
    url.replace("KEY", &key.display().to_string())
        .replace("UNIQUE", &unique)
        .replace("PLACE", &place.path().display().to_string())
}

#[async_trait]
impl TestBed for UrlBed {
    fn name(&self) -> &str {
        self.name
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    async fn advance(&self, by: Duration) {
        tokio::time::sleep(by).await;
    }

    fn expires_by_itself(&self) -> bool {
        self.expires_by_itself
    }
}

mod sqlite_sealed_cached {
    use super::*;
    onlyonce_testkit::conformance_suite!(
        UrlBed::open("sqlite", "sqlite:PLACE/records.db?sealed=KEY&cache=1MiB").await
    );
}

mod redis_compressed {
    use super::*;
    onlyonce_testkit::conformance_suite!(
        UrlBed::open(
            "redis",
            &format!("{}?prefix=UNIQUE&compressed=true", shared(Shared::Redis))
        )
        .await
    );
}

mod file_compressed {
    use super::*;
    onlyonce_testkit::conformance_suite!(
        UrlBed::open("file", "file:PLACE/records?sealed=false&compressed=true").await
    );
}

mod redis_sealed_cached {
    use super::*;
    onlyonce_testkit::conformance_suite!(
        UrlBed::open(
            "redis",
            &format!(
                "{}?prefix=UNIQUE&sealed=KEY&cache=1MiB",
                shared(Shared::Redis)
            )
        )
        .await
    );
}

mod postgres_sealed_tiered_cached {
    use super::*;
    onlyonce_testkit::conformance_suite!(
        UrlBed::open(
            "postgres",
            &format!(
                "{}?table=UNIQUE&sealed=KEY&cache=1MiB&tier={}%3Fprefix%3DUNIQUE",
                shared(Shared::Postgres),
                shared(Shared::Redis)
            )
        )
        .await
    );
}

mod mysql_tiered {
    use super::*;
    onlyonce_testkit::conformance_suite!(
        UrlBed::open(
            "mysql",
            &format!(
                "{}?table=UNIQUE&tier={}%3Fprefix%3DUNIQUE",
                shared(Shared::MariaDb),
                shared(Shared::Redis)
            )
        )
        .await
    );
}

async fn refusal(url: &str) -> String {
    match open(url).await {
        Ok(_) => panic!("{url} was opened"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_with_what_would() {
    for (url, wanted) in [
        ("memory:?cache=64MiB", "in memory already"),
        ("memory:?tier=redis://h", "use `cache` instead"),
        ("file:/tmp/x?tier=redis://h", "use `cache` instead"),
        ("sqlite:/tmp/x.db?tier=redis://h", "use `cache` instead"),
        ("redis://h?tier=redis://other", "in Redis already"),
        ("postgres://h/db?tier=postgres://other/db", "redis:// URL"),
        (
            "postgres://h/db?tier=redis://h%3Fcache%3D1MiB",
            "a cache goes before both",
        ),
        ("postgres://h/db?cache=0", "remembers nothing"),
        ("postgres://h/db?cache=64MB", "such as 64MiB"),
        ("redis://h?plain=true", "add `sealed=KEYFILE`"),
        ("redis://h?sealed=true", "names no key file"),
        ("redis://h?seald=k", "did you mean `sealed`?"),
        ("memory:?sealed=/not/there.key", "openssl rand -base64 32"),
    ] {
        let told = refusal(url).await;
        assert!(told.contains(wanted), "{url}: {told}");
        let checked = onlyonce_stores::check_url(url);
        let needs_opening = wanted.contains("openssl") || wanted.contains("did you");
        assert_eq!(checked.is_ok(), needs_opening, "{url}");
    }
}

#[tokio::test]
async fn a_password_in_a_tiers_url_is_not_repeated() {
    let url = "postgres://u:s3cret@127.0.0.1:1/db?tier=redis://u:h1dden@h";

    let error = open(url).await.err().unwrap();

    let mut told = format!("{error} {error:?}");
    let mut cause = std::error::Error::source(&error);
    while let Some(next) = cause {
        told = format!("{told}: {next}");
        cause = next.source();
    }
    assert!(told.contains("127.0.0.1:1"), "{told}");
    assert!(
        !told.contains("h1dden") && !told.contains("s3cret"),
        "{told}"
    );
}

#[tokio::test]
async fn a_sealed_database_shows_nothing_and_its_key_can_be_rotated() {
    const SECRET: &str = "an answer that nobody else may read";
    let place = tempfile::tempdir().unwrap();
    let url = filled("sqlite:PLACE/records.db?sealed=KEY", &place);
    let store = open(&url).await.unwrap();
    let before = done(&*store, SECRET, LONG).await;
    drop(store);

    let key = place.path().join("ring.key");
    let old = fs::read_to_string(&key).unwrap();
    let new = "k2 uXkWzYGHK9nCGFwtcTz6HcJpTPtdCgb4SfTc0ULuYsA=";
    fs::write(&key, format!("{new}\n{old}")).unwrap();
    let store = open(&url).await.unwrap();
    let after = done(&*store, SECRET, LONG).await;

    for claim in [&before, &after] {
        assert_eq!(replayed(&*store, claim).await, SECRET.as_bytes());
    }
    drop(store);
    for file in fs::read_dir(place.path()).unwrap() {
        let bytes = fs::read(file.unwrap().path()).unwrap();
        let mut windows = bytes.windows(SECRET.len());
        assert!(!windows.any(|it| it == SECRET.as_bytes()));
    }
    let other = tempfile::tempdir().unwrap();
    let other = filled(
        &format!("sqlite:{}/records.db?sealed=KEY", place.path().display()),
        &other,
    );
    assert!(refusal(&other).await.contains("not in the ring"));
}

#[tokio::test]
async fn records_from_before_a_seal_are_accepted_only_if_that_is_asked_for() {
    let place = tempfile::tempdir().unwrap();
    let plain = filled("sqlite:PLACE/records.db", &place);
    let store = open(&plain).await.unwrap();
    let before = done(&*store, "stored", LONG).await;
    drop(store);

    let sealed = filled("sqlite:PLACE/records.db?sealed=KEY", &place);
    let store = open(&sealed).await.unwrap();
    assert!(store.claim(&crate::rough::rival(&before)).await.is_err());
    drop(store);

    let store = open(&format!("{sealed}&plain=true")).await.unwrap();
    assert_eq!(replayed(&*store, &before).await, b"stored");
}

#[tokio::test]
async fn a_folder_has_at_hand_what_was_stored_and_forgets_what_is_forgotten() {
    let place = tempfile::tempdir().unwrap();
    let store = open(&filled("file:PLACE/data", &place)).await.unwrap();
    let claim = claim();
    let lease = lease(&*store, &claim).await;
    store
        .complete(&lease, &answer("stored"), LONG)
        .await
        .unwrap();

    let recalled = store.recall(&claim.slot, &claim.fingerprint).unwrap();
    assert_eq!(recalled.response.body, "stored");
    assert!(store.operate().unwrap().forget(&claim.slot).await.unwrap());
    assert!(store.recall(&claim.slot, &claim.fingerprint).is_none());
    assert!(is_granted(&*store, &claim).await);
}

#[tokio::test]
async fn a_folder_without_a_cache_has_nothing_at_hand() {
    let place = tempfile::tempdir().unwrap();
    let store = open(&filled("file:PLACE/data?cache=0", &place))
        .await
        .unwrap();
    let claim = done(&*store, "stored", LONG).await;

    assert_eq!(replayed(&*store, &claim).await, b"stored");
    assert!(store.recall(&claim.slot, &claim.fingerprint).is_none());
}
