use super::*;

#[tokio::test]
async fn a_commit_is_on_disk_when_it_returns() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = Folder::open(temporary.path()).await.unwrap();
    let mut connection = folder.connect().await.unwrap();

    let mode: String = sqlx::query_scalar("PRAGMA journal_mode")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous")
        .fetch_one(&mut connection)
        .await
        .unwrap();

    // Every commit to the write-ahead log is followed by an fsync.
    assert_eq!((mode.as_str(), synchronous), ("wal", 2));
}
