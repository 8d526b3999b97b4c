//! Many processes on each store, killed, stopped, cut off and under wrong clocks: what they wrote
//! down breaks no rule.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::OsEntropy;
use onlyonce_stores::KeyRing;
use onlyonce_testkit::history::{Load, Program, Report, Run, faults, is_worker, worker_main};
use onlyonce_testkit::proxy::Proxy;
use onlyonce_testkit::servers::{
    MariaDb, MariaDbOptions, Postgres, PostgresOptions, Redis, RedisCluster, RedisOptions,
    RedisSentinel, Server,
};

/// What the runs below start as their workers; nothing otherwise.
#[test]
fn a_worker() {
    if is_worker() {
        worker_main(async |url: &str| onlyonce_stores::open(url).await).unwrap();
    }
}

fn run(url: impl Into<String>) -> Run {
    let worker = Program::this_test("history::a_worker").unwrap();
    let mut run = Run::new(url, worker);
    run.load = Load {
        lasts: Duration::from_secs(5),
        calls: 1500,
        keys: 240,
        faults: 10,
        ..Load::usual()
    };
    run
}

/// The same under clocks that are wrong by ten minutes, for servers with a clock of their own.
fn run_under_wrong_clocks(url: impl Into<String>) -> Run {
    let mut run = run(url);
    run.offsets = vec![String::new(), "+10m".to_owned(), "-10m".to_owned()];
    run
}

async fn clean(run: Run) -> Report {
    let report = run.execute().await.unwrap();
    assert!(report.is_clean(), "{report}");
    assert!(report.heard["replayed"] > 0, "{report}");
    report
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_store_breaks_no_rule_though_its_process_is_killed() {
    let place = tempfile::tempdir().unwrap();
    let mut run = run(format!("file:{}/data", place.path().display()));
    run.processes = 1;

    let report = clean(run).await;

    assert!(report.faults["kill"] > 0, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_breaks_no_rule_with_four_processes() {
    let place = tempfile::tempdir().unwrap();

    let report = clean(run(format!("sqlite:{}/records.db", place.path().display()))).await;

    assert!(report.faults["kill"] > 0, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_breaks_no_rule_behind_a_bad_network() {
    let options = RedisOptions {
        durable: true,
        ..RedisOptions::default()
    };
    let server = Redis::start(options).unwrap();
    let proxy = Arc::new(Proxy::start(&server.url()).await.unwrap());
    let mut run = run_under_wrong_clocks(proxy.url());
    run.store_fault = Some(faults::network(Arc::clone(&proxy), 50..=800));

    let report = clean(run).await;

    assert!(report.faults["store"] > 0, "{report}");
    assert!(
        report.clocks_apart > Duration::from_secs(19 * 60),
        "{report}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_that_is_killed_and_keeps_its_word_breaks_no_rule() {
    let options = RedisOptions {
        durable: true,
        ..RedisOptions::default()
    };
    let server = Arc::new(Redis::start(options).unwrap());
    let mut run = run(server.url());
    run.store_fault = Some(faults::crashes(Arc::clone(&server), 50..=800));

    let report = clean(run).await;

    assert!(report.faults["store"] > 0, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_cluster_breaks_no_rule() {
    let cluster = RedisCluster::start().unwrap();

    clean(run_under_wrong_clocks(cluster.url())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_behind_sentinel_breaks_no_rule() {
    let sentinel = RedisSentinel::start().unwrap();

    clean(run_under_wrong_clocks(sentinel.url())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_breaks_no_rule_behind_a_bad_network() {
    let server = Postgres::start(PostgresOptions::default()).unwrap();
    let proxy = Arc::new(Proxy::start(&server.url()).await.unwrap());
    let mut run = run_under_wrong_clocks(proxy.url());
    run.store_fault = Some(faults::network(Arc::clone(&proxy), 50..=800));

    let report = clean(run).await;

    assert!(report.faults["store"] > 0, "{report}");
    assert!(
        report.clocks_apart > Duration::from_secs(19 * 60),
        "{report}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_that_is_killed_breaks_no_rule() {
    let server = Arc::new(Postgres::start(PostgresOptions::default()).unwrap());
    let mut run = run(server.url());
    run.store_fault = Some(faults::crashes(Arc::clone(&server), 50..=800));

    let report = clean(run).await;

    assert!(report.faults["store"] > 0, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_breaks_no_rule_behind_a_bad_network() {
    let server = MariaDb::start(MariaDbOptions::default()).unwrap();
    let proxy = Arc::new(Proxy::start(&server.url()).await.unwrap());
    let mut run = run_under_wrong_clocks(proxy.url());
    run.store_fault = Some(faults::network(Arc::clone(&proxy), 50..=800));

    let report = clean(run).await;

    assert!(report.faults["store"] > 0, "{report}");
    assert!(
        report.clocks_apart > Duration::from_secs(19 * 60),
        "{report}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_that_is_killed_breaks_no_rule() {
    let server = Arc::new(MariaDb::start(MariaDbOptions::default()).unwrap());
    let mut run = run(server.url());
    run.store_fault = Some(faults::crashes(Arc::clone(&server), 50..=800));

    let report = clean(run).await;

    assert!(report.faults["store"] > 0, "{report}");
}

/// The file of a key ring, in this folder.
fn key_file(place: &tempfile::TempDir) -> String {
    let path = place.path().join("ring.key");
    KeyRing::from_file_or_new(&path, &OsEntropy::new()).unwrap();
    path.display().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealed_redis_with_a_cache_breaks_no_rule_behind_a_bad_network() {
    let place = tempfile::tempdir().unwrap();
    let options = RedisOptions {
        durable: true,
        ..RedisOptions::default()
    };
    let server = Redis::start(options).unwrap();
    let proxy = Arc::new(Proxy::start(&server.url()).await.unwrap());
    let key_file = key_file(&place);
    let mut run = run(format!("{}?sealed={key_file}&cache=4MiB", proxy.url()));
    run.store_fault = Some(faults::network(Arc::clone(&proxy), 50..=800));

    let report = clean(run).await;

    assert!(report.faults["store"] > 0, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tier_before_postgres_breaks_no_rule_though_it_is_killed_and_loses_everything() {
    let place = tempfile::tempdir().unwrap();
    let tier = Arc::new(Redis::start(RedisOptions::default()).unwrap());
    let server = Postgres::start(PostgresOptions::default()).unwrap();
    let (url, tier_url, key_file) = (server.url(), tier.url(), key_file(&place));
    let mut run = run(format!("{url}?sealed={key_file}&tier={tier_url}"));
    run.store_fault = Some(faults::crashes(Arc::clone(&tier), 50..=800));

    let report = clean(run).await;

    assert!(report.faults["store"] > 0, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tier_before_mariadb_that_is_killed_breaks_no_rule() {
    let tier = Redis::start(RedisOptions::default()).unwrap();
    let server = Arc::new(MariaDb::start(MariaDbOptions::default()).unwrap());
    let mut run = run(format!("{}?tier={}&cache=4MiB", server.url(), tier.url()));
    run.store_fault = Some(faults::crashes(Arc::clone(&server), 50..=800));

    let report = clean(run).await;

    assert!(report.faults["store"] > 0, "{report}");
}
