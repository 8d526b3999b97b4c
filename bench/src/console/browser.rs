//! A headless Chromium, driven by its own driver; both end with the run.

use std::process::Stdio;

use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::failure::Failure;
use crate::tool::CHROMEDRIVER;

const PAINT: &str = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime";
/// How often it is asked whether the page has been painted.
const LOOKS: usize = 500;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

pub(super) struct Browser {
    client: Client,
    driver: Child,
    _profile: TempDir,
}

/// The driver has a group of its own: whatever became of the run, its browser ends too.
impl Drop for Browser {
    fn drop(&mut self) {
        if let Some(id) = self.driver.id() {
            let mut kill = std::process::Command::new("kill");
            drop(kill.args(["-KILL", "--", &format!("-{id}")]).status());
        }
    }
}

impl Browser {
    pub(super) async fn start() -> Result<Self, Failure> {
        let profile = tempfile::tempdir().map_err(Failure::doing("make a folder"))?;
        let mut command = Command::from(CHROMEDRIVER.command()?);
        command.arg("--port=0").process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut driver = command
            .spawn()
            .map_err(Failure::doing("start chromedriver"))?;
        let port = port(&mut driver).await?;
        let data = format!("--user-data-dir={}", profile.path().display());
        let args = [
            "--headless",
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
        let wishes = serde_json::from_value(wishes).map_err(Failure::doing("ask for a browser"))?;
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(wishes)
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .map_err(Failure::doing("start a browser"))?;
        Ok(Self {
            client,
            driver,
            _profile: profile,
        })
    }

    pub(super) async fn open(&self, url: &str) -> Result<(), Failure> {
        let opened = self.client.goto(url).await;
        opened.map_err(Failure::doing(format!("open {url}")))
    }

    /// Opens a page; how long after its request something of it was painted, in seconds.
    pub(super) async fn painted(&self, url: &str) -> Result<f64, Failure> {
        self.open(url).await?;
        for _ in 0..LOOKS {
            let told = self.client.execute(PAINT, Vec::new()).await;
            let told = told.map_err(Failure::doing("ask the browser"))?;
            if let Some(millis) = told.as_f64() {
                return Ok(millis / 1000.0);
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(Failure::new(format!("{url} was not painted")))
    }
}

/// Where the driver listens, as it says itself.
async fn port(driver: &mut Child) -> Result<String, Failure> {
    let silent = || Failure::new("chromedriver does not say where it listens");
    let stdout = driver.stdout.take().ok_or_else(silent)?;
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some((_, port)) = line.split_once("successfully on port ") {
            // Nobody reads on, and it must not wait for somebody who does.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok(port.trim_end_matches('.').to_owned());
        }
    }
    Err(silent())
}
