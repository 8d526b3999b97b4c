//! Ends of keys are told once each: also of those that ended while no gateway ran, and by one of several
//! gateways on one store.

use std::time::Duration;

use onlyonce_testkit::servers::{Shared, shared};
use tempfile::TempDir;

use crate::support::gateway::{Running, eventually, service};

const TTL: Duration = Duration::from_secs(12);
const EXPIRED: &str = "\"event\":\"idempotency.key.expired\"";

fn settings(store: &str, instance: &str) -> String {
    format!(
        "store = \"{store}\"\ninstance = \"{instance}\"\nttl = \"{}s\"\n[log]\nlevel = \"info\"\n\
         [audit]\npath = \"FOLDER/{instance}.jsonl\"\n",
        TTL.as_secs()
    )
}

/// How many ends a gateway has logged, written to its trail, and counted.
async fn told(gateway: &Running, instance: &str) -> [usize; 3] {
    let trail = gateway.folder.path().join(format!("{instance}.jsonl"));
    let trail = std::fs::read_to_string(trail).unwrap_or_default();
    let page = reqwest::get(format!("{}/metrics", gateway.admin)).await;
    let page = page.unwrap().text().await.unwrap();
    let counted = page
        .lines()
        .filter(|line| line.starts_with("idempotency_key_expired_total"))
        .filter(|line| line.contains("ttl_elapsed"))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap());
    [
        gateway.log().matches(EXPIRED).count(),
        trail.matches("idempotency.key.expired").count(),
        counted.sum(),
    ]
}

async fn stop(mut gateway: Running) -> (String, TempDir) {
    gateway.signal("-TERM").await;
    gateway.child.wait().await.unwrap();
    let log = gateway.log();
    (log, gateway.folder)
}

/// Two keys end while the gateway is down, one of them replayed before; a third does not.
async fn tells_what_ended_meanwhile(store: &str) {
    let (upstream, _) = service().await;
    let settings = settings(store, "one");
    let first = Running::start(&upstream, &settings).await;
    for key in ["key-1", "key-1", "key-2"] {
        assert_eq!(first.send("/orders", key, "{}").await, 200);
    }
    eventually("the replay is counted", async || {
        first.log().contains("\"replay_count\":1")
    })
    .await;
    let (log, folder) = stop(first).await;
    assert!(!log.contains(EXPIRED), "{log}");
    // Their time passes.
    tokio::time::sleep(TTL).await;

    let second = Running::start_with(&upstream, &settings, &[], folder).await;
    eventually("both ends are told", async || {
        told(&second, "one").await == [2, 2, 2]
    })
    .await;

    let log = second.log();
    for said in [
        "\"ttl_ms\":12000",
        "\"replay_count\":1",
        "\"replay_count\":0",
    ] {
        assert!(log.contains(said), "{store}: {said}: {log}");
    }
    let (log, folder) = stop(second).await;
    assert_eq!(log.matches(EXPIRED).count(), 2, "{store}");
    let third = Running::start_with(&upstream, &settings, &[], folder).await;
    // Its first sweep is over by the time that one on request is.
    let swept = reqwest::Client::new()
        .post(format!("{}/api/v1/sweep", third.admin))
        .send()
        .await;
    assert_eq!(swept.unwrap().status(), 200);
    assert_eq!(told(&third, "one").await, [0, 2, 0], "{store}");
}

#[tokio::test]
async fn what_ended_while_the_gateway_was_down_is_told_once_at_its_start() {
    tokio::join!(
        tells_what_ended_meanwhile("sqlite:FOLDER/records.db"),
        tells_what_ended_meanwhile("file:FOLDER/records")
    );
}

/// Keys of two gateways end on one store, some in a third one's absence.
async fn one_tells_of_each(store: &str) {
    const KEYS: usize = 24;
    let (upstream, _) = service().await;
    let gone = Running::start(&upstream, &settings(store, "gone")).await;
    let one = Running::start(&upstream, &settings(store, "one")).await;
    let other = Running::start(&upstream, &settings(store, "other")).await;
    for number in 0..KEYS {
        let gateway = [&gone, &one, &other][number % 3];
        let request = gateway.request("/orders", &format!("key-{number}"));
        let answer = request.header("host", "shop").send().await;
        assert_eq!(answer.unwrap().status(), 200);
    }
    drop(gone);

    let all = async || {
        let (one, other) = (told(&one, "one").await, told(&other, "other").await);
        let sums: [usize; 3] = std::array::from_fn(|it| one[it] + other[it]);
        sums
    };
    eventually("every end is told", async || all().await == [KEYS; 3]).await;

    // Nothing is left of which anybody could tell.
    let stats = reqwest::get(format!("{}/api/v1/stats", one.admin)).await;
    let stats: serde_json::Value = stats.unwrap().json().await.unwrap();
    assert_eq!(stats["records"], 0, "{store}");
    let (one, _) = stop(one).await;
    let (other, _) = stop(other).await;
    let told = one.matches(EXPIRED).count() + other.matches(EXPIRED).count();
    assert_eq!(told, KEYS, "{store}");
}

#[tokio::test]
async fn of_several_gateways_on_one_store_one_tells_of_each_end() {
    let folder = TempDir::new().unwrap();
    let table = |server| {
        let url = shared(server);
        let sign = if url.contains('?') { '&' } else { '?' };
        format!("{url}{sign}table=ends_{}", std::process::id())
    };
    let (postgres, mariadb) = (table(Shared::Postgres), table(Shared::MariaDb));
    let sqlite = format!("sqlite:{}/records.db", folder.path().display());
    tokio::join!(
        one_tells_of_each(&sqlite),
        one_tells_of_each(&postgres),
        one_tells_of_each(&mariadb)
    );
}
