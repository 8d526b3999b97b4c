//! Sweeping, archiving, dead tokens, and what people may query.

use std::time::Duration;

use futures_util::future::join_all;
use onlyonce_core::{Claim, Claimed, Completed, Operate, Release, Store};

use super::bed::{Bed, direct_url};
use super::support::{LONG, SHORT, answer, done, fresh, granted, rival, taken, until};

/// A finished record that expires at once.
async fn expired(bed: &Bed) -> Claim {
    let claim = fresh();
    let lease = granted(&bed.store, &claim).await;
    let completed = bed
        .store
        .complete(&lease, &answer("over"), Duration::ZERO)
        .await;
    assert!(
        matches!(completed, Ok(Completed::Stored(_))),
        "{completed:?}"
    );
    claim
}

async fn count(bed: &Bed, rest: &str) -> i64 {
    let table = &bed.table;
    bed.number(format!("SELECT count(*) FROM {table}{rest}"))
        .await
}

#[tokio::test]
async fn a_sweep_moves_finished_records_to_the_archive_if_asked() {
    let bed = Bed::open(&direct_url(), "&archive=true").await;
    let finished = expired(&bed).await;
    let abandoned = Claim {
        lease_for: Duration::ZERO,
        keep_for: Duration::ZERO,
        ..fresh()
    };
    granted(&bed.store, &abandoned).await;
    let live = done(&bed.store, "live").await;

    let swept = bed.store.sweep(100).await.unwrap();

    assert_eq!(swept, 2);
    assert_eq!(count(&bed, "").await, 1);
    assert!(bed.store.get(&live.slot).await.unwrap().is_some());
    let kept = format!(
        "_archive WHERE slot = decode('{}', 'hex') AND state = 'D' AND actor = 'alice'
            AND response IS NOT NULL AND archived_at >= expired_at",
        finished.slot
    );
    assert_eq!(count(&bed, &kept).await, 1);
    assert_eq!(count(&bed, "_archive").await, 1);
}

#[tokio::test]
async fn without_being_asked_nothing_is_archived() {
    let bed = Bed::direct().await;
    expired(&bed).await;

    assert_eq!(bed.store.sweep(100).await.unwrap(), 1);

    assert_eq!(count(&bed, "_archive").await, 0);
}

#[tokio::test]
async fn a_sweep_passes_by_what_somebody_holds() {
    let bed = Bed::direct().await;
    let held = expired(&bed).await;
    expired(&bed).await;
    let mut tx = bed.pool.begin().await.unwrap();
    let text = format!(
        "SELECT FROM {} WHERE slot = decode('{}', 'hex') FOR UPDATE",
        bed.table, held.slot
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(text))
        .execute(&mut *tx)
        .await
        .unwrap();

    assert_eq!(bed.store.sweep(100).await.unwrap(), 1);

    tx.rollback().await.unwrap();
    assert_eq!(bed.store.sweep(100).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn sweeps_and_traffic_do_not_hinder_each_other() {
    let bed = Bed::direct().await;
    let store = &bed.store;

    let traffic = (0..300).map(async |n| {
        let claim = fresh();
        let lease = granted(store, &claim).await;
        let keep_for = if n % 2 == 0 { Duration::ZERO } else { LONG };
        let completed = store.complete(&lease, &answer("x"), keep_for).await;
        assert!(
            matches!(completed, Ok(Completed::Stored(_))),
            "{completed:?}"
        );
    });
    let sweeps = (0..20).map(async |_| store.sweep(10).await.unwrap());
    let (_, swept) = tokio::join!(join_all(traffic), join_all(sweeps));

    let rest = store.sweep(1000).await.unwrap();
    assert_eq!(swept.iter().sum::<usize>() + rest, 150);
    assert_eq!(count(&bed, "").await, 150);
}

#[tokio::test]
async fn a_released_row_is_swept_once_its_token_may_be_forgotten() {
    let bed = Bed::direct().await;
    let store = &bed.store;
    let soon = Claim {
        lease_for: SHORT,
        ..fresh()
    };
    let later = fresh();
    for claim in [&soon, &later] {
        let lease = granted(store, claim).await;
        store.release(&lease, Release::NotRun).await.unwrap();
    }

    // They are no records, so that they do not count.
    until(async || {
        assert_eq!(store.sweep(100).await.unwrap(), 0);
        count(&bed, "").await == 1
    })
    .await;

    assert!(matches!(store.claim(&later).await, Ok(Claimed::Dead)));
    assert_eq!(store.stats().await.unwrap().records, 0);
}

/// A dead token outlives the record of its slot.
#[tokio::test]
async fn an_expired_record_is_not_swept_before_its_dead_tokens() {
    let bed = Bed::direct().await;
    let store = &bed.store;
    let dead = fresh();
    store.release(&dead.lease(), Release::NotRun).await.unwrap();
    let lease = granted(store, &rival(&dead)).await;
    let completed = store
        .complete(&lease, &answer("over"), Duration::ZERO)
        .await;
    assert!(
        matches!(completed, Ok(Completed::Stored(_))),
        "{completed:?}"
    );

    store.sweep(100).await.unwrap();

    assert!(matches!(store.claim(&dead).await, Ok(Claimed::Dead)));
    granted(store, &rival(&dead)).await;
}

#[tokio::test]
async fn a_slot_remembers_its_newest_dead_tokens() {
    let bed = Bed::direct().await;
    let store = &bed.store;
    let slot = fresh();
    let mut tokens = Vec::new();
    for _ in 0..70 {
        let claim = rival(&slot);
        store
            .release(&claim.lease(), Release::NotRun)
            .await
            .unwrap();
        tokens.push(claim);
    }

    assert_eq!(count(&bed, " WHERE cardinality(dead_tokens) = 64").await, 1);
    for claim in &tokens[6..] {
        assert!(matches!(store.claim(claim).await, Ok(Claimed::Dead)));
    }
}

#[tokio::test]
async fn a_forgotten_record_leaves_nothing_to_read() {
    let bed = Bed::direct().await;
    let claim = done(&bed.store, "private").await;

    assert!(bed.store.forget(&claim.slot).await.unwrap());

    let left = " WHERE response IS NOT NULL OR actor IS NOT NULL OR meta <> '' OR hint <> ''";
    assert_eq!(count(&bed, left).await, 0);
    bed.store.sweep(100).await.unwrap();
    assert_eq!(count(&bed, "").await, 0);
}

#[tokio::test]
async fn people_may_query_what_a_record_tells() {
    let bed = Bed::direct().await;
    done(&bed.store, "told").await;

    let told = " WHERE state = 'D' AND operation = 'POST /payments' AND actor = 'alice'
        AND attempt = 1 AND replays = 0 AND hint <> '' AND completed_at >= created_at
        AND expires_at > completed_at AND length(fingerprint) = 33 AND length(token) = 16";
    assert_eq!(count(&bed, told).await, 1);
}

/// A plan made for a small table must not read all of a large one.
#[tokio::test]
async fn no_statement_reads_a_whole_table_for_one_record() {
    let bed = Bed::open(&direct_url(), "&connections=1").await;
    let table = &bed.table;
    done(&bed.store, "small").await;
    bed.execute(format!("ANALYZE {table}")).await;
    let told = |what: &str| {
        format!("SELECT sum({what})::int8 FROM pg_stat_user_tables WHERE relname = '{table}'")
    };

    // Sessions tell what they did a while later.
    until(async || {
        let claim = done(&bed.store, "small").await;
        taken(&bed.store, &rival(&claim)).await;
        assert!(bed.store.get(&claim.slot).await.unwrap().is_some());
        bed.number(told("n_tup_ins")).await >= 40
    })
    .await;

    // Making its indexes read it too.
    let read = bed.number(told("seq_scan")).await;
    assert!(read < 10, "{read} times");
}
