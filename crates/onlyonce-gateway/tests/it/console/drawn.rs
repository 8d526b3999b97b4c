//! Pictures of every page, drawn from a seeded store in light and dark and on a phone. With
//! `ONLYONCE_DRAW_CONSOLE=1` they go into docs/console as well.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::MemoryStore;
use onlyonce_core::engine::Execution;
use onlyonce_gateway::Gateway;
use onlyonce_observe::Setup;

use super::chromium::{Browser, Width, draws};
use super::{order, slots, url};
use crate::support::{Service, settings};
use crate::wire::{Say, scripted};

const CALLERS: [&str; 4] = ["ada", "grace", "linus", "mobile-app"];

/// A ride in three steps.
async fn ride(execution: Execution) -> Result<String, String> {
    for step in ["reserve", "charge", "notify"] {
        let ran = execution.step(step, &7).run(async || Ok::<_, String>(7));
        ran.await.map_err(|error| error.to_string())?;
    }
    Ok("on its way".to_owned())
}

/// A gateway that has seen some of everything.
async fn seeded() -> Gateway {
    let service = Service::start().await;
    let (lost, _) = scripted(|_, _| Say::Nothing).await;
    let setup = Setup::new("memory", Arc::new(MemoryStore::new()));
    let observed = setup.open(|engine| engine.instance("web-1")).await.unwrap();
    let job = observed.engine.job("ride");
    job.run_with("ride-7", &7, ride).await.unwrap();
    let routes = format!(
        "scope = [\"user-header:x-user\"]\n\
         [[route]]\nmatch = \"POST /payments\"\noperation = \"pay\"\nupstream = \"http://{lost}\"\n\
         rules = {{ on_lapse = \"hold\" }}\n\
         [[route]]\nmatch = \"GET /catalogue/{{*rest}}\"\npass = true\n\
         [[route]]\nmatch = \"POST /echo\"\nmode = \"observe\"\n"
    );
    let config = settings(service.address, &routes);
    let gateway = Gateway::start_on(&config, observed).await.unwrap();
    for number in 0..12 {
        let key = format!("payment-{number:04}");
        order(&gateway, "/payments", &key, CALLERS[number % 3]).await;
    }
    gateway
}

/// Requests of some seconds, so that the plots have something to show.
async fn traffic(gateway: &Gateway, rounds: usize) {
    for round in 0..rounds {
        for number in 0..6 + round % 5 {
            let key = format!("order-{round:04}-{number:04}");
            for _ in 0..=(number + round) % 3 {
                order(gateway, "/orders", &key, CALLERS[number % 4]).await;
            }
        }
        for _ in 0..=round % 2 {
            order(gateway, "/echo", &format!("echo-{round:04}"), CALLERS[1]).await;
        }
        // The same key for something else.
        let key = format!("order-{round:04}-0000");
        order(gateway, "/told", &key, CALLERS[0]).await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
    }
}

/// Opens a page and draws it.
async fn draw(browser: &Browser, gateway: &Gateway, path: &str, name: &str, width: Width) {
    browser.open(&url(gateway, path)).await;
    if path == "/" {
        let is_live = "document.querySelector('[data-said]').textContent === 'Live'";
        browser.until(is_live).await;
    }
    browser.draw(name, width).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_drawn_from_a_seeded_store_in_light_and_dark_and_on_a_phone() {
    let gateway = seeded().await;
    // The plots in the documentation have some minutes to show.
    let rounds = if draws() { 60 } else { 4 };
    traffic(&gateway, rounds).await;
    let rides = super::open(&gateway, "/api/v1/records?operation=ride").await;
    let rides: serde_json::Value = serde_json::from_str(&rides.text).unwrap();
    let ride = format!("/records/{}", rides["records"][0]["slot"].as_str().unwrap());
    let pages = [
        ("/", "now"),
        ("/records", "records"),
        (&ride, "record"),
        ("/in-doubt", "in-doubt"),
        ("/callers", "callers"),
        ("/observed", "observed"),
        ("/health", "health"),
    ];
    let light = Browser::start(&[]).await;
    let dark = Browser::start(&["--force-dark-mode"]).await;

    for (path, name) in pages {
        draw(&light, &gateway, path, name, Width::Desktop).await;
    }
    draw(&light, &gateway, "/", "phone", Width::Phone).await;
    draw(&dark, &gateway, "/", "dark", Width::Desktop).await;

    let is_dark = "return matchMedia('(prefers-color-scheme: dark)').matches";
    assert_eq!(light.script(is_dark).await, false);
    assert_eq!(dark.script(is_dark).await, true);
    assert_eq!(slots(&gateway).await.len(), 12);
    for browser in [light, dark] {
        browser.client.clone().close().await.unwrap();
    }
}
