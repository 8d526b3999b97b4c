//! The console of a gateway with many records: how soon its pages are there and painted, and what a page
//! that is open costs the gateway.

mod browser;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use clap::{Args, ValueEnum};
use onlyonce_core::{Clock as _, SystemClock};
use onlyonce_testkit::servers::{Postgres, PostgresOptions, Redis, RedisOptions, Server};
use tempfile::TempDir;

use self::browser::Browser;
use crate::failure::Failure;
use crate::gateway::{Upstream, stats};
use crate::proxy::{Onlyonce, Program};
use crate::report::{Goal, Report, Row, Unit};
use crate::system::cpu_seconds;
use crate::wrk::{self, Keys, Load};
use crate::{runtime, say};

/// The pages, and searches of them.
const PAGES: [&str; 8] = [
    "/",
    "/records",
    "/records?state=failed",
    "/records?actor=nobody",
    "/in-doubt",
    "/callers",
    "/observed",
    "/health",
];
/// What the page of a record is called here: its address is another one each time.
const RECORD: &str = "/records/SLOT";
/// How often each is opened.
const ROUNDS: usize = 7;
const PAINTED_WITHIN: f64 = 0.2;
/// What an open page may take of one core.
const OPEN_SHARE: f64 = 0.01;
/// How long a turn of filling is, before it is looked how far it came.
const TURN_SECONDS: u64 = 1;
/// How long the gateway is left alone before its idle cost is measured.
const REST: Duration = Duration::from_secs(5);

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    program: Program,
    /// On these stores
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "memory,file,redis,postgres"
    )]
    stores: Vec<Kind>,
    /// How many records there are at least
    #[arg(long, default_value_t = 100_000)]
    records: u64,
    /// How long the cost of an open page, and of none, is measured
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// In the gateway's own memory
    Memory,
    /// In a folder
    File,
    /// In a Redis of its own
    Redis,
    /// In a PostgreSQL of its own
    Postgres,
}

/// A store to open, and what has to live meanwhile.
struct Store {
    name: &'static str,
    url: String,
    _server: Option<Box<dyn Server>>,
    _folder: Option<TempDir>,
}

impl Store {
    fn start(kind: Kind) -> Result<Self, Failure> {
        let at = |name, url, server, folder| Self {
            name,
            url,
            _server: server,
            _folder: folder,
        };
        Ok(match kind {
            Kind::Memory => at("memory", "memory:".to_owned(), None, None),
            Kind::File => {
                let folder = tempfile::tempdir().map_err(Failure::doing("make a folder"))?;
                let url = format!("file:{}/data", folder.path().display());
                at("file", url, None, Some(folder))
            }
            Kind::Redis => {
                let redis = Redis::start(RedisOptions::default())?;
                at("redis", redis.url(), Some(Box::new(redis)), None)
            }
            Kind::Postgres => {
                let postgres = Postgres::start(PostgresOptions::default())?;
                at("postgres", postgres.url(), Some(Box::new(postgres)), None)
            }
        })
    }
}

pub(crate) fn run(options: &Options) -> Result<Report, Failure> {
    let runtime = runtime()?;
    let upstream = runtime.block_on(Upstream::start())?;
    let browser = runtime.block_on(Browser::start())?;
    let mut report = Report::default();
    for kind in &options.stores {
        let store = Store::start(*kind)?;
        let gateway = Onlyonce::start(&options.program.path()?, upstream.port(), &store.url)?;
        let records = fill(&gateway, options.records)?;
        say(&format!("console, {}: {records} records", store.name));
        let record = newest(gateway.admin())?;
        let pages = PAGES.map(|page| (page, page)).into_iter();
        for (page, name) in pages.chain([(record.as_str(), RECORD)]) {
            let painted = runtime.block_on(painted(&browser, gateway.admin(), page))?;
            let case = format!("{name}, {records} records");
            let row = |what, seconds, goal| {
                Row::alone(store.name, &case, what, (seconds, Unit::Seconds), goal)
            };
            let goal = Some(Goal::Below(PAINTED_WITHIN));
            report
                .rows
                .push(row("whole page", whole(gateway.admin(), page)?, None));
            report.rows.push(row("first paint", painted, goal));
        }
        let shares = runtime.block_on(shares(&browser, &gateway, options.seconds))?;
        let share = |what, share, goal| {
            let case = format!("{records} records");
            Row::alone(store.name, case, what, (share, Unit::Share), goal)
        };
        let (open, closed) = shares;
        let goal = Some(Goal::Below(OPEN_SHARE));
        report
            .rows
            .push(share("of a core, Now is open", open, goal));
        report
            .rows
            .push(share("of a core, no page is", closed, None));
    }
    Ok(report)
}

/// Stores at least so many records; returns how many there are.
fn fill(gateway: &Onlyonce, records: u64) -> Result<u64, Failure> {
    loop {
        wrk::run(Load::new(gateway.port(), Keys::New, TURN_SECONDS), &[])?;
        let stored = stats(gateway)?.records;
        if stored >= records {
            return Ok(stored);
        }
    }
}

/// The address of the newest record's page.
fn newest(port: u16) -> Result<String, Failure> {
    let said = got(port, "/api/v1/records?sort=newest&limit=1")?;
    let said = String::from_utf8_lossy(&said);
    let slot = said.split_once("\"slot\":\"");
    let slot = slot.and_then(|(_, rest)| rest.split('"').next());
    let slot = slot.ok_or_else(|| Failure::new("the gateway lists no record"))?;
    Ok(format!("/records/{slot}"))
}

/// The median time from the request to the end of a page, in seconds.
fn whole(port: u16, page: &str) -> Result<f64, Failure> {
    let clock = SystemClock::new();
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let began = clock.now();
        got(port, page)?;
        times.push((clock.now() - began).as_secs_f64());
    }
    Ok(median(times))
}

/// What the gateway answers, with its head.
fn got(port: u16, page: &str) -> Result<Vec<u8>, Failure> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(cannot(page))?;
    let request = format!("GET {page} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(cannot(page))?;
    let mut said = Vec::new();
    stream.read_to_end(&mut said).map_err(cannot(page))?;
    if said.starts_with(b"HTTP/1.1 200") {
        Ok(said)
    } else {
        Err(Failure::new(format!("{page} did not open")))
    }
}

/// The median time from the request to the first paint in a browser, in seconds.
async fn painted(browser: &Browser, port: u16, page: &str) -> Result<f64, Failure> {
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        times.push(
            browser
                .painted(&format!("http://127.0.0.1:{port}{page}"))
                .await?,
        );
    }
    Ok(median(times))
}

/// Which part of a core the gateway takes while *Now* is open, and while no page is.
async fn shares(
    browser: &Browser,
    gateway: &Onlyonce,
    seconds: u64,
) -> Result<(f64, f64), Failure> {
    browser
        .open(&format!("http://127.0.0.1:{}/", gateway.admin()))
        .await?;
    tokio::time::sleep(REST).await;
    let open = share(gateway.pid(), seconds).await;
    browser.open("about:blank").await?;
    tokio::time::sleep(REST).await;
    Ok((open, share(gateway.pid(), seconds).await))
}

async fn share(process: u32, seconds: u64) -> f64 {
    let before = cpu_seconds(process);
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    (cpu_seconds(process) - before) / seconds as f64
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

fn cannot(page: &str) -> impl FnOnce(std::io::Error) -> Failure {
    Failure::doing(format!("open {page}"))
}
