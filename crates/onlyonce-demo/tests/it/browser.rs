//! The form's page in a real browser, whose user clicks twice, goes back, and reloads.

use std::process::Stdio;

use fantoccini::{Client, ClientBuilder, Locator};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::support::Bed;

const RELOADS_MAX: usize = 3;

/// A headless Chromium, driven by its own driver; both end with it.
struct Browser {
    client: Client,
    driver: Child,
    _profile: TempDir,
}

/// The driver has a group of its own: whatever became of the test, its browser ends too.
impl Drop for Browser {
    fn drop(&mut self) {
        if let Some(id) = self.driver.id() {
            let group = format!("-{id}");
            let mut kill = std::process::Command::new("kill");
            drop(kill.args(["-KILL", "--", &group]).status());
        }
    }
}

impl Browser {
    async fn start() -> Self {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("chromedriver starts: `cargo xtask test` installs chromium-driver");
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = loop {
            let line = lines.next_line().await.unwrap().expect("it tells its port");
            if let Some((_, port)) = line.split_once("successfully on port ") {
                break port.trim_end_matches('.').to_owned();
            }
        };
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let profile = tempfile::tempdir().unwrap();
        let data = format!("--user-data-dir={}", profile.path().display());
        // Root has no sandbox, and a container little shared memory.
        let args = [
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            &data,
        ];
        let wishes = json!({"goog:chromeOptions": {"args": args}});
        let client = ClientBuilder::new(hyper_util::client::legacy::connect::HttpConnector::new())
            .capabilities(serde_json::from_value(wishes).unwrap())
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .unwrap();
        Self {
            client,
            driver,
            _profile: profile,
        }
    }

    async fn text(&self, id: &str) -> String {
        let found = self.client.wait().for_element(Locator::Id(id)).await;
        found.unwrap().text().await.unwrap()
    }

    async fn fill(&self, name: &str, value: &str) {
        let field = format!("input[name={name}]");
        let field = self.client.wait().for_element(Locator::Css(&field)).await;
        let field = field.unwrap();
        field.clear().await.unwrap();
        field.send_keys(value).await.unwrap();
    }

    /// Reloads a page that was asked for with GET. On a busy machine the driver may lose sight of it.
    async fn reload(&self) {
        for _ in 0..RELOADS_MAX {
            if self.client.refresh().await.is_ok() {
                return;
            }
        }
        panic!("the page cannot be loaded again");
    }

    async fn script(&self, script: &str) {
        self.client.execute(script, vec![]).await.unwrap();
    }
}

async fn records(bed: &Bed) -> i64 {
    bed.get("/api/forms/test-form/records").await.json()["count"]
        .as_i64()
        .unwrap()
}

async fn replays(bed: &Bed) -> u64 {
    bed.get("/demo/stats").await.json()["replays"]
        .as_u64()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_double_click_a_way_back_and_a_reload_are_one_record() {
    let bed = Bed::new().await;
    let browser = Browser::start().await;
    let form = format!("{}/forms/test-form", bed.url);
    let already = "This submission was already processed. Returning original response.";

    browser.client.goto(&form).await.unwrap();
    browser.fill("name", "John Doe").await;
    browser.fill("email", "john@example.com").await;
    browser
        .script("const it = document.getElementById('submit'); it.click(); it.click();")
        .await;
    let record = browser.text("record").await;
    assert_eq!(records(&bed).await, 1, "a double click");

    browser.client.back().await.unwrap();
    browser
        .script("document.getElementById('submit').click();")
        .await;
    assert_eq!(browser.text("record").await, record);
    assert_eq!(browser.text("message").await, already);
    assert_eq!(records(&bed).await, 1, "back, and sent again");

    // The page is the answer to a POST: the browser sends it once more.
    let before = replays(&bed).await;
    browser.client.refresh().await.unwrap();
    assert_eq!(browser.text("record").await, record);
    assert_eq!(browser.text("message").await, already);
    assert_eq!(replays(&bed).await, before + 1);
    assert_eq!(records(&bed).await, 1, "reloaded");

    browser.client.goto(&form).await.unwrap();
    browser.reload().await;
    browser.fill("name", "John Doe").await;
    browser.fill("email", "john@example.com").await;
    browser
        .script("document.getElementById('submit').click();")
        .await;
    assert_eq!(browser.text("record").await, record);
    assert_eq!(records(&bed).await, 1, "filled in anew in the same session");

    browser.client.goto(&form).await.unwrap();
    browser.fill("name", "John Doe").await;
    browser.fill("email", "jane@example.com").await;
    browser
        .script("document.getElementById('submit').click();")
        .await;
    assert_eq!(browser.text("message").await, "Form submitted successfully");
    assert_eq!(records(&bed).await, 2, "other data is another submission");
    browser.client.clone().close().await.unwrap();
}
