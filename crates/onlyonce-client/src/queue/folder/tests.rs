use super::*;

#[tokio::test]
async fn a_commit_is_on_disk_when_it_returns() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = Folder::open(temporary.path(), Access::Alone).await.unwrap();
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

#[tokio::test]
async fn a_queue_of_an_earlier_version_is_counted_when_it_is_opened() {
    let temporary = tempfile::tempdir().unwrap();
    let first = sqlx::migrate::Migrator {
        migrations: MIGRATIONS.iter().take(1).cloned().collect(),
        ..sqlx::migrate::Migrator::DEFAULT
    };
    let mut earlier = SqliteConnectOptions::new()
        .filename(temporary.path().join(DATABASE))
        .create_if_missing(true)
        .connect()
        .await
        .unwrap();
    first.run(&mut earlier).await.unwrap();
    for (key, state, bytes) in [("a", "waiting", 3), ("b", "failed", 4), ("c", "done", 0)] {
        sqlx::query(
            "INSERT INTO operations (key, state, content, method, url, headers, body, bytes, \
             created_at) VALUES (?, ?, x'00', 'POST', 'http://a.test/', '[]', x'', ?, 0)",
        )
        .bind(key)
        .bind(state)
        .bind(bytes)
        .execute(&mut earlier)
        .await
        .unwrap();
    }
    drop(earlier);

    let folder = Folder::open(temporary.path(), Access::Alone).await.unwrap();
    let mut connection = folder.connect().await.unwrap();

    let held = super::super::rows::held(&mut connection).await.unwrap();
    assert_eq!(held, (2, 7));
    let due = super::super::rows::due(&mut connection, 0, &[], 10).await;
    assert_eq!(due.unwrap().len(), 1);
}

/// A look at every row would make each operation cost what all of them do.
#[tokio::test]
async fn what_is_due_or_swept_is_found_without_a_look_at_all_rows() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = Folder::open(temporary.path(), Access::Alone).await.unwrap();
    let mut connection = folder.connect().await.unwrap();

    for (query, index) in [
        (super::super::rows::DUE, "operations_by_due (due_at"),
        (super::super::rows::NEXT_DUE, "operations_by_due (due_at"),
        (super::super::outcome::SWEEP, "operations_by_end (ended_at"),
    ] {
        let plan: Vec<(i64, i64, i64, String)> =
            sqlx::query_as(sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {query}")))
                .fetch_all(&mut connection)
                .await
                .unwrap();

        let steps: Vec<_> = plan.into_iter().map(|(.., step)| step).collect();
        assert!(steps.iter().any(|step| step.contains(index)), "{steps:?}");
        assert!(
            !steps.iter().any(|step| step.contains("TEMP B-TREE")),
            "{steps:?}"
        );
    }
}
