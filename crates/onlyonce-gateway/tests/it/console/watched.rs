//! What is only observed is told, and a slow store does not keep a page from being seen.

use onlyonce_testkit::proxy::Proxy;
use onlyonce_testkit::servers::{Redis, RedisOptions, Server as _};

use super::{open, order, still, url};
use crate::support::{Service, gateway, order_with, started};

const KEY: &str = "a-key-that-is-long-enough";

#[tokio::test]
async fn what_enforcing_would_have_done_is_told_as_the_report_does_and_the_counts_say_what_they_lack()
 {
    const EVIL: &str = "<script>alert(1)</script>";
    let service = Service::start().await;
    let settings = "scope = [\"user-header:x-user\"]\n\
                    [[route]]\nmatch = \"POST /orders\"\nmode = \"observe\"\n";
    let gateway = gateway(service.address, settings).await;
    for _ in 0..2 {
        assert_eq!(order(&gateway, "/orders", KEY, EVIL).await, 201);
    }
    assert_eq!(order(&gateway, "/orders", "", EVIL).await, 201);
    let weak = "7".repeat(8);
    assert_eq!(order(&gateway, "/orders", &weak, EVIL).await, 201);

    let page = open(&gateway, "/observed").await;
    let now = open(&gateway, "/").await;

    page.has("POST /orders (observed since ");
    page.has("1 of 4 keyed requests were repeats.");
    page.has("1 would have got the stored answer.");
    page.has("1 would have been refused, because the contract does not take such a key.");
    page.has("ran a second time under the same key");
    page.has("had a key that looks easy to guess");
    page.has("To enforce: mode = &quot;enforce&quot; in the [[route]]");
    page.has_not(KEY);
    page.has_not(EVIL);
    now.has("One route is only observed: nothing is protected there");
    now.has("href=\"/observed\"");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_the_store_is_slow_for_comes_at_once_and_its_rest_when_it_is_found() {
    let redis = Redis::start(RedisOptions::default()).unwrap();
    let proxy = Proxy::start(&redis.url()).await.unwrap();
    let service = Service::start().await;
    let gateway = started(service.address, &format!("store = \"{}\"", proxy.url())).await;
    order_with(&gateway, KEY, "{}").await;
    let records = open(&gateway, "/api/v1/records").await;
    let records: serde_json::Value = serde_json::from_str(&records.text).unwrap();
    let record = format!(
        "/records/{}",
        records["records"][0]["slot"].as_str().unwrap()
    );

    for (path, begin, end) in [
        ("/records", "<form class=\"filters\"", record.as_str()),
        ("/in-doubt", "<h1>In doubt</h1>", "Nothing is in doubt"),
        (
            &record,
            "<a href=\"/records\">Records</a> / ",
            "Answer stored",
        ),
    ] {
        proxy.stall().await;
        let mut answer = still().get(url(&gateway, path)).send().await.unwrap();
        let mut frame = String::new();
        while !frame.contains("The store is looking") {
            let chunk = answer
                .chunk()
                .await
                .unwrap()
                .expect("the page is not whole");
            frame += std::str::from_utf8(&chunk).unwrap();
        }
        proxy.resume().await.unwrap();
        let rest = answer.text().await.unwrap();

        assert!(frame.contains(begin), "{path}: {frame}");
        assert!(!frame.contains(end), "{path}: {frame}");
        assert!(rest.contains(end), "{path}: {rest}");
        assert!(rest.ends_with("</html>"), "{path}: {rest}");
        assert!(!rest.contains("role=\"alert\""), "{path}: {rest}");
    }
    open(&gateway, "/records").await.has_not("is looking");
}
