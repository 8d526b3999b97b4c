//! Two gateways on one store share every key.

use onlyonce_testkit::servers::{Shared, shared};

use super::process::{HOST, Process, eventually};
use super::upstreams::Shop;

const DUPLICATES: usize = 64;

/// A store of the test's own on a shared server.
fn stores(name: &str) -> [String; 2] {
    let unique = format!("{name}_{}", std::process::id());
    let with = |url: String, option: &str| {
        let sign = if url.contains('?') { '&' } else { '?' };
        format!("{url}{sign}{option}={unique}")
    };
    [
        with(shared(Shared::Redis), "prefix"),
        with(shared(Shared::Postgres), "table"),
    ]
}

async fn two_gateways(shop: &Shop, store: &str, rules: &str) -> [Process; 2] {
    let settings = format!(
        "upstream = \"{}\"\nstore = \"{store}\"\n[rules]\n{rules}",
        shop.url()
    );
    [
        Process::start(&settings).await,
        Process::start(&settings).await,
    ]
}

fn send(gateway: &Process) -> tokio::task::JoinHandle<String> {
    let request = reqwest::Client::new()
        .post(gateway.url("/slow"))
        .header("host", HOST)
        .header("idempotency-key", "key")
        .send();
    tokio::spawn(async move { request.await.unwrap().text().await.unwrap() })
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_duplicates_over_two_gateways_run_once() {
    for store in stores("duplicates") {
        let shop = Shop::start().await;
        let rules = "waiters_max = 100\nwait = \"60s\"\nexecution_max = \"60s\"";
        let gateways = two_gateways(&shop, &store, rules).await;

        let sent: Vec<_> = (0..DUPLICATES)
            .map(|n| send(&gateways[n % gateways.len()]))
            .collect();
        eventually(async || shop.runs_of("key").await == 1).await;
        shop.open().await;

        for answer in sent {
            assert_eq!(answer.await.unwrap(), "key run 1", "{store}");
        }
        assert_eq!(shop.runs_of("key").await, 1, "{store}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_killed_in_the_middle_is_taken_over_after_its_lease() {
    for store in stores("killed") {
        let shop = Shop::start().await;
        let rules = "lease = \"2s\"\nwait = \"60s\"\nexecution_max = \"60s\"";
        let [mut killed, other] = two_gateways(&shop, &store, rules).await;
        let cut_off = send(&killed);
        eventually(async || shop.runs_of("key").await == 1).await;

        killed.signal("KILL");
        assert!(!killed.ended().await.success());
        let retry = send(&other);
        eventually(async || shop.runs_of("key").await == 2).await;
        shop.open().await;

        assert!(cut_off.await.is_err(), "{store}");
        assert_eq!(retry.await.unwrap(), "key run 2", "{store}");
        assert_eq!(send(&other).await.unwrap(), "key run 2", "{store}");
        assert_eq!(shop.runs_of("key").await, 2, "{store}");
    }
}
