//! What is wrong with a file or URL is said with what to do; nothing panics.

use onlyonce_core::{Operate, Store};
use onlyonce_sql::OpenError;
use onlyonce_sql::{SqlOptions, SqliteStore};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{ConnectOptions, Executor};

use crate::sql::{body, done, rival, soon, taken};

async fn refusal(url: &str) -> String {
    match SqliteStore::open(url).await {
        Ok(_) => panic!("{url} was opened"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn a_database_in_memory_is_refused_with_a_hint() {
    for url in [
        "sqlite::memory:",
        "sqlite://:memory:",
        "sqlite:a.db?mode=memory",
    ] {
        let told = refusal(url).await;
        assert!(told.contains("memory:"), "{told}");
    }
}

#[tokio::test]
async fn a_pool_in_memory_is_refused() {
    let pool = SqlitePoolOptions::new()
        .connect("sqlite::memory:")
        .await
        .unwrap();

    let opened = SqliteStore::with_pool(pool, SqlOptions::new()).await;

    assert!(matches!(opened, Err(OpenError::Refused { .. })));
}

#[tokio::test]
async fn a_url_without_a_file_is_told_with_an_example() {
    for url in ["sqlite:", "sqlite://", "sqlite:?table=t"] {
        assert!(refusal(url).await.contains("onlyonce.db"), "{url}");
    }
}

#[tokio::test]
async fn an_unknown_option_is_an_error() {
    let told = refusal("sqlite:./never-made.db?tabel=t").await;

    assert!(told.contains("did you mean `table`?"), "{told}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_told_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    let garbage = b"not a database, but long enough to be taken for one. ".repeat(100);
    std::fs::write(&path, &garbage).unwrap();

    let told = refusal(&format!("sqlite:{}", path.display())).await;

    assert!(told.contains("no SQLite database"), "{told}");
    assert_eq!(std::fs::read(&path).unwrap(), garbage);
}

#[tokio::test]
async fn a_damaged_database_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.db");
    let url = format!("sqlite:{}", path.display());
    let store = SqliteStore::open(&url).await.unwrap();
    done(&store, "stored").await;
    drop(store);
    let mut connection = SqliteConnectOptions::new()
        .filename(&path)
        .connect()
        .await
        .unwrap();
    connection
        .execute("PRAGMA wal_checkpoint(TRUNCATE)")
        .await
        .unwrap();
    drop(connection);
    let whole = std::fs::read(&path).unwrap();

    for (damage, word) in [(100, "damaged"), (30, "cannot be read"), (1, "damaged")] {
        let mut bytes = whole.clone();
        bytes[damage..].fill(0x5a);
        std::fs::write(&path, bytes).unwrap();

        let told = refusal(&url).await;

        assert!(told.contains(word), "from {damage}: {told}");
    }
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nowhere").join("records.db");

    let told = refusal(&format!("sqlite:{}", path.display())).await;

    assert!(told.contains("folder must exist"), "{told}");
}

#[tokio::test]
async fn a_place_where_nobody_can_write_is_told() {
    let told = refusal("sqlite:/proc/records.db").await;

    assert!(told.contains("able to write there"), "{told}");
}

#[tokio::test]
async fn a_missing_file_is_not_made_where_that_was_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.db");

    refusal(&format!("sqlite:{}?mode=rw", path.display())).await;

    assert!(!path.exists());
}

#[tokio::test]
async fn a_schema_of_the_future_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.db");
    let url = format!("sqlite:{}", path.display());
    drop(SqliteStore::open(&url).await.unwrap());
    let mut connection = SqliteConnectOptions::new()
        .filename(&path)
        .connect()
        .await
        .unwrap();
    connection
        .execute("UPDATE onlyonce_records_schema SET version = 99")
        .await
        .unwrap();

    let told = refusal(&url).await;

    assert!(told.contains("99") && told.contains("upgrade"), "{told}");
    assert!(
        SqliteStore::open(&format!("{url}?table=other"))
            .await
            .is_ok()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_may_open_a_new_file_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("records.db").display());

    let opening: Vec<_> = (0..16)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { SqliteStore::open(&url).await })
        })
        .collect();

    for opened in opening {
        soon(opened).await.unwrap().unwrap().ping().await.unwrap();
    }
}

#[tokio::test]
async fn what_was_stored_is_there_after_opening_again() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("a b?.db").display());
    let url = url.replace('?', "%3F");
    let store = SqliteStore::open(&url).await.unwrap();
    let claim = done(&store, "stored").await;
    drop(store);

    let store = SqliteStore::open(&url).await.unwrap();

    let found = taken(&store, &rival(&claim)).await;
    assert_eq!(body(&found), b"stored");
}

#[tokio::test]
async fn tables_of_one_file_do_not_mix() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.db");
    let pool = SqlitePoolOptions::new()
        .connect_with(
            SqliteConnectOptions::new()
                .filename(&path)
                .create_if_missing(true),
        )
        .await
        .unwrap();
    let one = SqliteStore::with_pool(pool.clone(), SqlOptions::new().table("one"));
    let one = one.await.unwrap();
    let two = SqliteStore::with_pool(pool, SqlOptions::new().table("two"));
    let two = two.await.unwrap();

    let claim = done(&one, "stored").await;

    let operate: &dyn Operate = two.operate().unwrap();
    assert!(operate.get(&claim.slot).await.unwrap().is_none());
    assert!(one.get(&claim.slot).await.unwrap().is_some());
}

#[cfg(unix)]
mod permissions {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;

    /// Every file of the folder with the permissions that it has.
    fn modes(folder: &Path) -> Vec<(String, u32)> {
        let mut modes: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
                (entry.file_name().into_string().unwrap(), mode)
            })
            .collect();
        modes.sort();
        modes
    }

    fn for_owner_only(names: &[&str]) -> Vec<(String, u32)> {
        names
            .iter()
            .map(|name| ((*name).to_owned(), 0o600))
            .collect()
    }

    #[tokio::test]
    async fn a_new_database_and_its_log_are_for_their_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("records.db").display());

        let store = SqliteStore::open(&url).await.unwrap();
        done(&store, "stored").await;

        let all = ["records.db", "records.db-shm", "records.db-wal"];
        assert_eq!(modes(folder.path()), for_owner_only(&all));
    }

    #[tokio::test]
    async fn a_database_that_others_could_read_is_tightened_at_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records.db");
        let url = format!("sqlite:{}", path.display());
        let other = SqliteStore::open(&url).await.unwrap();
        done(&other, "stored").await;
        for suffix in ["", "-shm", "-wal"] {
            let file = format!("{}{suffix}", path.display());
            fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
        }

        let store = SqliteStore::open(&url).await.unwrap();
        done(&store, "stored too").await;

        let all = ["records.db", "records.db-shm", "records.db-wal"];
        assert_eq!(modes(folder.path()), for_owner_only(&all));
    }

    #[tokio::test]
    async fn a_file_that_is_no_database_keeps_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        fs::write(&path, "not a database. ".repeat(100)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();

        refusal(&format!("sqlite:{}", path.display())).await;

        assert_eq!(modes(folder.path()), [("notes.txt".to_owned(), 0o644)]);
    }
}
