//! The console in a real browser: opened, watched, searched, used to decide, and in trouble.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::MemoryStore;
use onlyonce_gateway::Gateway;
use onlyonce_observe::Setup;
use onlyonce_testkit::servers::{Redis, RedisOptions, Server as _};

use super::chromium::{Browser, Width};
use super::{PAGES, TOKEN, in_doubt, order, slots, url};
use crate::support::{Service, gateway, order_with, settings, started};
use crate::wire::{Say, scripted};

const KEY: &str = "a-key-that-is-long-enough";
const MANY: usize = 100_000;
/// How often the page has asked what happens.
const POLLS: &str =
    "performance.getEntriesByType('resource').filter(it => it.name.endsWith('/api/v1/now')).length";

#[tokio::test(flavor = "multi_thread")]
async fn a_first_look_on_an_empty_store_works_at_every_width_and_nothing_else_runs() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    let browser = Browser::start(&[]).await;

    for width in [Width::Desktop, Width::Phone] {
        let (across, down) = width.pixels();
        browser.client.set_window_size(across, down).await.unwrap();
        for path in PAGES {
            browser.open(&url(&gateway, path)).await;
            browser.lacks_nothing(path).await;
        }
    }
    browser.open(&url(&gateway, "/")).await;
    browser
        .until("document.querySelector('[data-said]').textContent === 'Live'")
        .await;
    browser.shoot("empty", Width::Desktop).await;
    let ran = "const it = document.createElement('script'); it.textContent = 'window.ran = 1';
        document.body.append(it); return window.ran === undefined";
    assert_eq!(browser.script(ran).await, true, "the policy holds");
    let styled = "return getComputedStyle(document.querySelector('.top')).display";
    assert_eq!(
        browser.script(styled).await,
        "flex",
        "our own style sheet applies"
    );
    browser.client.clone().close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_fits_a_phone_of_360_pixels() {
    let gateway = in_doubt(3, "").await;
    let browser = Browser::small_phone().await;
    let record = format!("/records/{}", slots(&gateway).await[0]);

    for path in PAGES.iter().copied().chain([record.as_str()]) {
        browser.open(&url(&gateway, path)).await;
        let width = "return document.documentElement.clientWidth";
        assert_eq!(browser.script(width).await, 360, "{path}");
        browser.lacks_nothing(path).await;
    }
    browser.open(&url(&gateway, "/in-doubt")).await;
    browser.click("input[value=happened]").await;
    browser.lacks_nothing("the decision").await;
    browser.click("input[name=attempt]").await;
    browser.fill("[name=reason]", "a look").await;
    browser.click("main form[method=post] p button").await;
    browser
        .until("document.body.innerText.includes('1 outcome would be settled')")
        .await;
    browser.lacks_nothing("the preview").await;
    browser.client.clone().close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn now_is_kept_up_to_date_while_it_is_in_sight_and_not_paused() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    let browser = Browser::start(&[]).await;
    let shows = |number: u64| {
        format!("document.querySelector('[data-now=requests]').textContent === '{number}'")
    };

    browser.open(&url(&gateway, "/")).await;
    for _ in 0..3 {
        order_with(&gateway, KEY, "{}").await;
    }
    browser.until(&shows(3)).await;
    browser
        .until("document.querySelector('[data-now=hit_rate]').textContent === '66.7 %'")
        .await;
    browser
        .until("document.querySelector('[data-series=replayed]').getAttribute('d') !== ''")
        .await;

    browser
        .script("Object.defineProperty(document, 'hidden', {configurable: true, value: true})")
        .await;
    let polls = async || {
        browser
            .script(&format!("return {POLLS}"))
            .await
            .as_u64()
            .unwrap()
    };
    // One that had begun may still end.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = polls().await;
    order_with(&gateway, KEY, "{}").await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(polls().await, before, "out of sight, it asks nothing");
    browser
        .script("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
        .await;
    browser.until(&shows(4)).await;

    browser.click("[data-pause]").await;
    browser
        .until("document.querySelector('[data-said]').textContent === 'Paused'")
        .await;
    browser.click("[data-pause]").await;
    order_with(&gateway, KEY, "{}").await;
    browser.until(&shows(5)).await;
    browser.shoot("live", Width::Desktop).await;
    browser.client.clone().close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_searched_for_and_its_body_shown_on_request() {
    let service = Service::start().await;
    let settings = "scope = [\"user-header:x-user\"]";
    let gateway = gateway(service.address, settings).await;
    for (key, user) in [(KEY, "ada"), ("another-key-that-is-long-enough", "bob")] {
        order(&gateway, "/orders", key, user).await;
    }
    let browser = Browser::start(&[]).await;
    let rows = "document.querySelectorAll('tbody tr').length === 1";

    browser.open(&url(&gateway, "/records")).await;
    browser.fill("#actor", "bob").await;
    browser.click("form[method=get] button").await;
    browser
        .until(&format!("location.search.includes('actor=bob') && {rows}"))
        .await;
    browser.fill("#key", KEY).await;
    browser.click("form[method=post] button").await;
    browser
        .until(&format!("location.pathname === '/records/find' && {rows}"))
        .await;
    assert!(
        !browser
            .client
            .current_url()
            .await
            .unwrap()
            .as_str()
            .contains(KEY)
    );
    assert!(browser.text("tbody tr").await.contains("ada"));
    browser.shoot("search", Width::Desktop).await;
    browser.click("tbody th a").await;
    browser.until("document.querySelector('.timeline')").await;
    browser.lacks_nothing("a record").await;
    assert!(!browser.text("main").await.contains("order 1"));
    browser
        .client
        .find(fantoccini::Locator::LinkText("Show the body"))
        .await
        .unwrap()
        .click()
        .await
        .unwrap();

    browser
        .until("document.querySelector('pre')?.textContent === 'order 1'")
        .await;
    browser.client.clone().close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_five_outcomes_in_doubt_are_selected_and_settled() {
    let gateway = in_doubt(35, "").await;
    let browser = Browser::start(&[]).await;

    browser.open(&url(&gateway, "/in-doubt")).await;
    browser.lacks_nothing("in doubt").await;
    browser.click("[data-select] input").await;
    browser.click("input[value=did_not_happen]").await;
    browser.fill("[name=by]", "mia").await;
    browser.fill("[name=reason]", "not in the ledger").await;
    browser.click("main form[method=post] p button").await;
    browser
        .until("document.body.innerText.includes('35 outcomes would be settled')")
        .await;
    assert_eq!(slots(&gateway).await.len(), 35, "it is a preview");
    browser.lacks_nothing("the preview").await;
    browser.shoot("preview", Width::Desktop).await;
    browser.click("button.danger").await;
    browser
        .until("document.body.innerText.includes('35 outcomes settled.')")
        .await;

    assert_eq!(slots(&gateway).await.len(), 0);
    assert!(browser.text("main").await.contains("Nothing is in doubt"));
    browser.client.clone().close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_is_told_and_the_right_one_lets_in_until_logging_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, TOKEN).unwrap();
    let service = Service::start().await;
    let gateway = gateway(service.address, &format!("admin_token_file = {file:?}")).await;
    let browser = Browser::start(&[]).await;

    browser.open(&url(&gateway, "/health")).await;
    browser.lacks_nothing("the login").await;
    browser.fill("#token", "a-token-somebody-guesses").await;
    browser.click("main button").await;
    browser
        .until("document.querySelector('[role=alert]')?.innerText.includes('not the admin token')")
        .await;
    browser.shoot("login", Width::Desktop).await;
    browser.fill("#token", TOKEN).await;
    browser.click("main button").await;
    browser.until("location.pathname === '/health' && document.querySelector('h1').innerText === 'Health'").await;
    browser.open(&url(&gateway, "/")).await;
    browser
        .until("document.querySelector('[data-said]').textContent === 'Live'")
        .await;
    assert_eq!(
        browser.script("return document.cookie").await,
        "",
        "no script reads it"
    );
    browser.click("header form button").await;
    browser.until("location.pathname === '/login'").await;
    browser.open(&url(&gateway, "/records")).await;

    browser.until("location.pathname === '/login'").await;
    browser.client.clone().close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_with_a_hundred_thousand_records_is_shown_page_by_page() {
    let service = Service::start().await;
    let store = Arc::new(MemoryStore::new());
    let setup = Setup::new("memory", store);
    let observed = setup.open(|engine| engine.instance("web-1")).await.unwrap();
    let job = observed.engine.job("pay");
    for number in 0..MANY {
        let key = format!("order-number-{number}");
        job.run(&key, "7 EUR", async || Ok::<_, String>(7))
            .await
            .unwrap();
    }
    let config = settings(service.address, "");
    let gateway = Gateway::start_on(&config, observed).await.unwrap();
    let browser = Browser::start(&[]).await;

    for path in PAGES {
        browser.open(&url(&gateway, path)).await;
        browser.lacks_nothing(path).await;
        let paint = "return [performance.getEntriesByType('navigation')[0].responseStart,
            performance.getEntriesByName('first-contentful-paint')[0]?.startTime]";
        let paint = browser.script(paint).await;
        println!("{path}: first byte and first paint after {paint} ms");
    }
    assert!(
        browser.text("main").await.contains("100,000"),
        "health counts them"
    );
    browser.open(&url(&gateway, "/records")).await;
    browser.click("a[rel=next]").await;
    browser.until("location.search.includes('after=')").await;

    let rows = browser
        .script("return document.querySelectorAll('tbody tr').length")
        .await;
    assert_eq!(rows, 50);
    browser.shoot("many-records", Width::Desktop).await;
    browser.client.clone().close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_goes_down_is_told_on_the_open_page_until_it_is_back() {
    let redis = Redis::start(RedisOptions::default()).unwrap();
    let service = Service::start().await;
    let gateway = started(service.address, &format!("store = \"{}\"", redis.url())).await;
    let browser = Browser::start(&[]).await;
    let notice = "document.querySelector('[data-trouble]').hidden";

    browser.open(&url(&gateway, "/")).await;
    browser
        .until("document.querySelector('[data-said]').textContent === 'Live'")
        .await;
    browser.until(notice).await;
    redis.kill().unwrap();
    for number in 0..8 {
        order_with(&gateway, &format!("order-number-{number}"), "{}").await;
    }
    browser.until(&format!("!{notice}")).await;
    browser.shoot("store-down", Width::Desktop).await;
    for path in PAGES {
        browser.open(&url(&gateway, path)).await;
        browser.lacks_nothing(path).await;
    }
    browser.open(&url(&gateway, "/")).await;
    browser.until(&format!("!{notice}")).await;
    redis.start_again().unwrap();

    browser.until(notice).await;
    browser.client.clone().close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_routes_callers_and_names_make_nothing_but_text_in_a_browser() {
    const EVIL: &str = "<img src=x onerror=window.ran=1>\"'><script>window.ran=1</script>";
    const ANSWER: &str = "HTTP/1.1 201 Created\r\ncontent-length: 35\r\n\
         x-evil: \"><img src=x onerror=window.ran=1>\r\n\r\n</pre><img src=x onerror=\"ran=1\">..";
    let (service, _) = scripted(|_, _| Say::This(ANSWER)).await;
    let (lost, _) = scripted(|_, _| Say::Nothing).await;
    let settings = format!(
        "scope = [\"user-header:x-user\"]\ninstance = \"<img src=x onerror=window.ran=1>\"\n\
         [[route]]\nmatch = \"POST /pay/{{*rest}}\"\n\
         upstream = \"http://{lost}\"\nrules = {{ on_lapse = \"hold\" }}\n"
    );
    let gateway = gateway(service, &settings).await;
    for (path, status) in [
        ("/orders/<img%20src=x>\"'", 201),
        ("/pay/<img/src=x>\"'", 502),
    ] {
        let key = format!("{KEY}-{status}");
        assert_eq!(order(&gateway, path, &key, EVIL).await, status);
        order(&gateway, path, &key, EVIL).await;
    }
    let done = super::open(&gateway, "/api/v1/records?state=done").await;
    let done: serde_json::Value = serde_json::from_str(&done.text).unwrap();
    let slot = done["records"][0]["slot"].as_str().unwrap();
    let browser = Browser::start(&[]).await;
    let record = format!("/records/{slot}?body=true");
    let markup = "return window.ran === undefined && document.querySelectorAll(
        'img:not([src^=\"/console.svg\"]), script:not([src^=\"/console.js\"]), [onerror]').length";

    for path in PAGES.iter().copied().chain([record.as_str()]) {
        browser.open(&url(&gateway, path)).await;
        if path == "/" {
            // What the script has drawn, not only what came with the page.
            browser
                .until(&format!(
                    "{POLLS} > 1 && document.querySelector('[data-table=upstreams] tbody tr')"
                ))
                .await;
        }
        assert_eq!(browser.script(markup).await, 0, "{path}");
        browser.lacks_nothing(path).await;
    }
    assert!(browser.text("pre").await.starts_with("</pre><img src=x"));
    browser.client.clone().close().await.unwrap();
}
