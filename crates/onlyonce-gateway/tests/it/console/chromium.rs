//! A headless Chromium, driven by its own driver; both end with the test.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use fantoccini::{Client, ClientBuilder, Locator};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// If it is set, screenshots go into the documentation too.
const DRAW: &str = "ONLYONCE_DRAW_CONSOLE";
const DESKTOP: (u32, u32) = (1200, 900);
const PHONE: (u32, u32) = (500, 900);
const SMALL_PHONE: (u32, u32) = (360, 740);
/// A picture shows no more than this much of a long page.
const HEIGHT_MAX: u32 = 1200;

/// What a page lacks for those who do not see it, or use no mouse.
const LACKS: &str = "
    const lacks = [];
    const fields = 'input:not([type=hidden]), select, textarea';
    for (const it of document.querySelectorAll(fields)) {
        if (!it.labels.length && !it.getAttribute('aria-label')) lacks.push('label ' + it.outerHTML);
    }
    for (const it of document.querySelectorAll('table')) {
        if (!it.querySelector('thead th[scope=col]')) lacks.push('headings of a table');
        if (!it.closest('[role=region][aria-label][tabindex]')) lacks.push('region of a table');
    }
    for (const it of document.querySelectorAll('svg')) {
        if (!it.getAttribute('aria-label')) lacks.push('label of a plot');
    }
    const ids = [...document.querySelectorAll('[id]')].map(it => it.id);
    if (new Set(ids).size !== ids.length) lacks.push('unique ids: ' + ids);
    if (document.querySelectorAll('h1').length !== 1) lacks.push('one h1');
    if (document.querySelectorAll('main').length !== 1) lacks.push('one main');
    const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
    if (wide > 0) lacks.push('room: ' + wide + ' pixels too wide');
    return lacks;";

/// A browser with a fresh profile.
pub(super) struct Browser {
    pub(super) client: Client,
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
    pub(super) async fn start(more: &[&str]) -> Self {
        let browser = Self::with(more, &json!({})).await;
        let (width, height) = DESKTOP;
        browser.client.set_window_size(width, height).await.unwrap();
        browser
    }

    /// A small phone: narrower than a window can be.
    pub(super) async fn small_phone() -> Self {
        let metrics = json!({"width": SMALL_PHONE.0, "height": SMALL_PHONE.1, "pixelRatio": 2.0});
        let emulated = json!({"mobileEmulation": {"deviceMetrics": metrics}});
        Self::with(&[], &emulated).await
    }

    async fn with(more: &[&str], options: &Value) -> Self {
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
        let mut args = vec![
            "--headless",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            "--disable-lcd-text",
            &data,
        ];
        args.extend(more);
        let mut options = options.clone();
        options["args"] = json!(args);
        let wishes = json!({"goog:chromeOptions": options});
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

    pub(super) async fn open(&self, url: &str) {
        self.client.goto(url).await.unwrap();
    }

    pub(super) async fn click(&self, css: &str) {
        let found = self.client.wait().for_element(Locator::Css(css)).await;
        found.unwrap().click().await.unwrap();
    }

    pub(super) async fn fill(&self, css: &str, value: &str) {
        let field = self.client.wait().for_element(Locator::Css(css)).await;
        let field = field.unwrap();
        field.clear().await.unwrap();
        field.send_keys(value).await.unwrap();
    }

    /// What is to be read on the page.
    pub(super) async fn text(&self, css: &str) -> String {
        let found = self.client.wait().for_element(Locator::Css(css)).await;
        found.unwrap().text().await.unwrap()
    }

    pub(super) async fn script(&self, script: &str) -> Value {
        self.client.execute(script, vec![]).await.unwrap()
    }

    /// The page can be used without seeing it and without a mouse, and fits the screen.
    pub(super) async fn lacks_nothing(&self, page: &str) {
        let lacks = self.script(LACKS).await;
        assert_eq!(lacks, Value::Array(vec![]), "{page}");
    }

    /// Returns when a script returns true.
    pub(super) async fn until(&self, condition: &str) {
        let script = format!("return Boolean({condition})");
        for _ in 0..600 {
            // While a page is left, there is none to ask.
            let asked = self.client.execute(&script, vec![]).await;
            if asked.is_ok_and(|answer| answer == true) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let page = self.script("return document.body.innerText").await;
        panic!("it did not come to hold: {condition}\n{page}");
    }

    /// A picture of the whole page, kept beside what cargo builds.
    pub(super) async fn shoot(&self, name: &str, width: Width) {
        self.shoot_into(&folders()[..1], name, width).await;
    }

    /// The same for the documentation too, if that is asked for.
    pub(super) async fn draw(&self, name: &str, width: Width) {
        self.shoot_into(&folders(), name, width).await;
    }

    async fn shoot_into(&self, folders: &[PathBuf], name: &str, width: Width) {
        let (width, least) = width.pixels();
        self.client.set_window_size(width, least).await.unwrap();
        let height = self
            .script("return document.documentElement.scrollHeight")
            .await;
        let height = u32::try_from(height.as_u64().unwrap()).unwrap();
        // What a window has besides its page.
        let frame = self.script("return outerHeight - innerHeight").await;
        let frame = u32::try_from(frame.as_u64().unwrap()).unwrap();
        let height = height.clamp(400, HEIGHT_MAX) + frame;
        self.client.set_window_size(width, height).await.unwrap();
        let picture = self.client.screenshot().await.unwrap();
        assert!(picture.starts_with(b"\x89PNG"), "{name}");
        for folder in folders {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join(format!("{name}.png")), &picture).unwrap();
        }
        self.client
            .set_window_size(DESKTOP.0, DESKTOP.1)
            .await
            .unwrap();
    }
}

/// How wide a screen is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Width {
    Desktop,
    Phone,
}

impl Width {
    pub(super) fn pixels(self) -> (u32, u32) {
        match self {
            Self::Desktop => DESKTOP,
            Self::Phone => PHONE,
        }
    }
}

/// Whether pictures are drawn for the documentation.
pub(super) fn draws() -> bool {
    std::env::var_os(DRAW).is_some()
}

/// Where pictures go.
fn folders() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = vec![root.join("target/console")];
    if draws() {
        folders.push(root.join("docs/console"));
    }
    folders
}
