//! Pages are whole without a script, carry a strict policy, and show what is hostile as text.

use std::sync::Arc;

use onlyonce_core::MemoryStore;
use onlyonce_gateway::Gateway;
use onlyonce_observe::Setup;
use onlyonce_testkit::servers::{Redis, RedisOptions, Server as _};

use super::{PAGES, in_doubt, open, order, send, slots};
use crate::support::{Service, gateway, order_with, settings, started};
use crate::wire::{Say, scripted};

const KEY: &str = "a-key-that-is-long-enough";

#[tokio::test]
async fn every_page_opens_on_an_empty_store_with_its_landmarks() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;

    for path in PAGES {
        let page = open(&gateway, path).await;

        assert_eq!(page.status, 200, "{path}");
        assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
        assert!(page.text.starts_with("<!DOCTYPE html><html lang=\"en\">"));
        for part in [
            "<a class=\"skip\" href=\"#main\">",
            "<nav aria-label=\"Pages\">",
            "<main id=\"main\"",
            "<h1>",
            "aria-current=\"page\"",
        ] {
            page.has(part);
        }
        page.has_not("Log out");
    }
    open(&gateway, "/records")
        .await
        .has("There are no records yet");
    open(&gateway, "/in-doubt").await.has("Nothing is in doubt");
    open(&gateway, "/observed").await.has("Nothing is observed");
}

#[tokio::test]
async fn every_answer_forbids_all_but_our_own_files_and_no_page_has_a_script_or_style_in_it() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    order_with(&gateway, KEY, "{}").await;
    let others = ["/login", "/console.css", "/console.js", "/console.svg"];

    for path in PAGES.iter().chain(&others) {
        let page = open(&gateway, path).await;

        let policy = page.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; style-src 'self'; script-src 'self';"));
        assert!(policy.contains("frame-ancestors 'none'"), "{path}");
        assert!(!policy.contains("unsafe"), "{path}");
        assert_eq!(page.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(page.header("referrer-policy"), "same-origin", "{path}");
        let is_file = path.starts_with("/console.");
        let kept = page.header("cache-control");
        assert_eq!(kept == "no-store", !is_file, "{path}: {kept}");
        if !is_file && page.status == 200 {
            assert_eq!(page.text.matches("<script").count(), 1, "{path}");
            page.has("<script src=\"/console.js?v=");
            for inline in ["<style", " style=", " onclick=", " onload=", "javascript:"] {
                page.has_not(inline);
            }
        }
    }
}

#[tokio::test]
async fn what_callers_and_services_send_is_text_on_every_page() {
    const EVIL: &str = "<script>alert(1)</script>";
    const ANSWER: &str = "HTTP/1.1 201 Created\r\ncontent-length: 34\r\n\
         x-evil: \"><img src=x onerror=alert(1)>\r\n\r\n</pre><script>alert(1)</script>...";
    let (service, _) = scripted(|_, _| Say::This(ANSWER)).await;
    let settings = "scope = [\"user-header:x-user\"]\ninstance = \"<b>web</b>\"";
    let gateway = gateway(service, settings).await;
    for _ in 0..2 {
        assert_eq!(order(&gateway, "/a&b\"c", KEY, EVIL).await, 201);
    }
    let records = open(&gateway, "/api/v1/records").await;
    let records: serde_json::Value = serde_json::from_str(&records.text).unwrap();
    let slot = records["records"][0]["slot"].as_str().unwrap();

    let mut pages = vec![open(&gateway, &format!("/records/{slot}?body=true")).await];
    for path in PAGES {
        pages.push(open(&gateway, path).await);
    }
    let reflected = "%22%3E%3Cscript%3Ealert(1)%3C/script%3E";
    for query in [
        format!("/records?operation={reflected}&actor={reflected}&state={reflected}"),
        format!("/records?slot={reflected}"),
        format!("/in-doubt?holder={reflected}&settled={reflected}"),
        format!("/records/{reflected}"),
        format!("/login?next={reflected}"),
    ] {
        pages.push(open(&gateway, &query).await);
    }
    pages.push(send(&gateway, "/records/find", &[("key", EVIL)]).await);

    for page in &pages {
        for markup in ["<script>", "<img src=x", "<b>web", "</pre><script"] {
            page.has_not(markup);
        }
    }
    pages[0].has("&lt;script&gt;alert(1)&lt;/script&gt;");
    pages[0].has("&quot;&gt;&lt;img src=x onerror=alert(1)&gt;");
    pages[1].has("&lt;b&gt;web&lt;/b&gt;");
    pages[2].has("&lt;script&gt;alert(1)&lt;/script&gt;");
    pages[4].has("&lt;script&gt;alert(1)&lt;/script&gt;");
}

#[tokio::test]
async fn a_record_is_found_by_state_route_caller_slot_and_key_and_shown_with_its_life() {
    let service = Service::start().await;
    let settings = "scope = [\"user-header:x-user\"]";
    let gateway = gateway(service.address, settings).await;
    for key in [KEY, KEY, "another-key-that-is-long-enough"] {
        let user = if key == KEY { "ada" } else { "bob" };
        assert_eq!(order(&gateway, "/orders", key, user).await, 201);
    }
    let all = open(&gateway, "/api/v1/records?actor=ada").await;
    let all: serde_json::Value = serde_json::from_str(&all.text).unwrap();
    let slot = all["records"][0]["slot"].as_str().unwrap();
    let link = format!("href=\"/records/{slot}\"");

    for (query, rows) in [
        ("", 2),
        ("?state=done&operation=&actor=&slot=", 2),
        ("?state=pending", 0),
        ("?actor=ada", 1),
        ("?operation=%2Forders&actor=bob", 1),
        (&*format!("?slot={}", &slot[..7]), 1),
        (&format!("?slot={slot}"), 1),
        (&format!("?slot={slot}&actor=ada&state=done"), 1),
        (&format!("?slot={slot}&actor=bob"), 0),
        (&format!("?slot={}&state=pending", &slot[..7]), 0),
        (&format!("?slot={}", slot.to_uppercase()), 1),
    ] {
        let page = open(&gateway, &format!("/records{query}")).await;
        assert_eq!(page.status, 200, "{query}");
        assert_eq!(
            page.text.matches("href=\"/records/").count(),
            rows,
            "{query}"
        );
    }
    send(&gateway, "/records/find", &[("key", KEY)])
        .await
        .has(&link);
    for wrong in ["?state=no", "?slot=xyz", "?younger_than=soon", "?after=x"] {
        let page = open(&gateway, &format!("/records{wrong}")).await;
        assert_eq!(page.status, 400, "{wrong}");
        page.has("role=\"alert\"");
        page.has("<form class=\"filters\"");
    }

    let record = open(&gateway, &format!("/records/{slot}")).await;
    for part in ["Claimed", "Answer stored", "x-order", "Show the body"] {
        record.has(part);
    }
    record.has_not("order 1");
    record.has_not(KEY);
    let with_body = open(&gateway, &format!("/records/{slot}?body=true")).await;
    with_body.has("order 1");
    let absent = open(&gateway, &format!("/records/{}", "0".repeat(64))).await;
    assert_eq!(absent.status, 404);
    absent.has("no live record is in this slot");
}

#[tokio::test]
async fn more_records_than_fit_a_page_are_reached_by_its_link() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    for number in 0..60 {
        order_with(&gateway, &format!("order-number-{number:04}"), "{}").await;
    }

    let first = open(&gateway, "/records?state=done").await;
    let (_, next) = first.text.split_once("rel=\"next\" href=\"").unwrap();
    let next = next.split('"').next().unwrap().replace("&amp;", "&");
    let second = open(&gateway, &next).await;

    assert!(next.contains("state=done&after="), "{next}");
    let rows = |text: &str| text.matches("href=\"/records/").count();
    assert_eq!((rows(&first.text), rows(&second.text)), (50, 10));
    second.has_not("rel=\"next\"");
}

#[tokio::test]
async fn what_is_in_doubt_is_counted_on_every_page_and_told_on_its_own() {
    let gateway = in_doubt(3, "").await;

    let list = open(&gateway, "/in-doubt").await;
    let slot = &slots(&gateway).await[0];
    let record = open(&gateway, &format!("/records/{slot}")).await;

    assert_eq!(
        list.text
            .matches("type=\"checkbox\" name=\"attempt\"")
            .count(),
        3
    );
    list.has("how it ended is unknown");
    list.has("web-1");
    record.has("Its outcome is in doubt");
    record.has("action=\"/in-doubt/preview\"");
    open(&gateway, "/")
        .await
        .has("data-now=\"in_doubt\">3</span>");
}

#[tokio::test]
async fn more_outcomes_than_fit_a_page_are_reached_by_its_link() {
    let gateway = in_doubt(203, "").await;

    let first = open(&gateway, "/in-doubt?operation=/orders").await;
    let (_, next) = first.text.split_once("rel=\"next\" href=\"").unwrap();
    let next = next.split('"').next().unwrap().replace("&amp;", "&");
    let second = open(&gateway, &next).await;

    assert!(next.contains("operation=%2Forders&after="), "{next}");
    let rows = |text: &str| text.matches("name=\"attempt\"").count();
    assert_eq!((rows(&first.text), rows(&second.text)), (200, 3));
    second.has_not("rel=\"next\"");
}

#[tokio::test]
async fn health_tells_settings_routes_and_warnings_as_the_api_does() {
    let service = Service::start().await;
    let more = "instance = \"web-1\"\n[[route]]\nmatch = \"POST /pay/{id}\"\noperation = \"pay\"\n\
                [[route]]\nmatch = \"GET /free\"\npass = true\n";
    let gateway = gateway(service.address, more).await;

    let health = open(&gateway, "/api/v1/health").await;
    let health: serde_json::Value = serde_json::from_str(&health.text).unwrap();
    let page = open(&gateway, "/health").await;

    assert_eq!(health["instance"], "web-1");
    assert_eq!(health["store"]["url"], "memory:");
    assert_eq!(health["store"]["breaker"], "closed");
    assert_eq!(health["secret"]["agrees"], true);
    assert_eq!(health["settings"]["routes"][0]["operation"], "pay");
    assert_eq!(health["settings"]["routes"][1]["pass"], true);
    assert_eq!(health["settings"]["routes"].as_array().unwrap().len(), 3);
    for text in ["POST /pay/{id}", "passes unprotected", "memory:", "Ready"] {
        page.has(text);
    }
    for warning in health["warnings"].as_array().unwrap() {
        page.has(warning["text"].as_str().unwrap().split(':').next().unwrap());
    }
}

#[tokio::test]
async fn a_page_of_the_newest_records_asks_the_store_once() {
    let service = Service::start().await;
    let setup = Setup::new("memory", Arc::new(MemoryStore::new()));
    let observed = setup.open(|engine| engine.instance("web-1")).await.unwrap();
    let metrics = Arc::clone(observed.observers.metrics());
    let config = settings(service.address, "");
    let gateway = Gateway::start_on(&config, observed).await.unwrap();
    for number in 0..20 {
        order_with(&gateway, &format!("order-number-{number:04}"), "{}").await;
    }
    let lists = || -> u64 {
        let operations = metrics.store_operations();
        let lists = operations.iter().filter(|it| it.name == "list");
        lists.map(|it| it.count).sum()
    };

    let before = lists();
    let page = open(&gateway, "/records").await;

    assert_eq!(page.text.matches("<th scope=\"row\">").count(), 20);
    assert_eq!(lists() - before, 1);
}

#[tokio::test]
async fn health_shows_every_setting_in_force_and_the_contract_of_each_route() {
    let service = Service::start().await;
    let more =
        "ttl = \"2h\"\n[limits]\nrunning = 77\n[[route]]\nmatch = \"GET /free\"\npass = true\n";
    let gateway = gateway(service.address, more).await;

    let health = open(&gateway, "/api/v1/health").await;
    let health: serde_json::Value = serde_json::from_str(&health.text).unwrap();
    let page = open(&gateway, "/health").await;

    let all = health["settings"]["all"].as_array().unwrap();
    let running = all.iter().find(|it| it["name"] == "limits.running");
    assert_eq!(running.unwrap()["value"], "77");
    assert_eq!(running.unwrap()["given"], true);
    for it in all {
        page.has(&format!("<code>{}</code>", it["name"].as_str().unwrap()));
    }
    let routes = health["settings"]["routes"].as_array().unwrap();
    assert!(routes[0]["contract"].is_null(), "it passes");
    let contract = routes[1]["contract"].as_str().unwrap();
    assert!(contract.contains("ttl = \"2h\""), "{contract}");
    page.has("Contract of all others");
    page.has("ttl = &quot;2h&quot;");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_store_down_every_page_opens_and_says_so() {
    let redis = Redis::start(RedisOptions::default()).unwrap();
    let service = Service::start().await;
    let url = redis.url();
    let gateway = started(service.address, &format!("store = \"{url}\"")).await;
    order_with(&gateway, KEY, "{}").await;

    redis.kill().unwrap();

    for (path, status) in [
        ("/", 200),
        ("/records", 503),
        ("/in-doubt", 503),
        ("/callers", 200),
        ("/observed", 200),
        ("/health", 200),
    ] {
        let page = open(&gateway, path).await;
        assert_eq!(page.status, status, "{path}: {}", page.text);
        page.has("<nav aria-label=\"Pages\">");
        if !["/callers", "/observed"].contains(&path) {
            page.has("class=\"notice bad\" role=\"alert\"");
        }
    }
    open(&gateway, "/records")
        .await
        .has("The store does not answer");
    open(&gateway, "/health").await.has("Not ready");
}
