//! The clients: each operation has a fresh key and is sent, with retries, to either gateway until
//! there is a final answer; some are sent twice at a time, some are asked for again.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use onlyonce_testkit::sim::dice::Dice;
use tokio::time::{sleep, timeout};

use crate::history::{Answer, Attempt, OnLapse};
use crate::manner::{Heard, Manner, Order};
use crate::upstream;
use crate::watch::Watch;

/// What all gateways are called by: the host that was asked is part of a record's address.
const HOST: &str = "shop.example";
/// Another name for the same gateways: under it, the same keys are other operations.
pub(crate) const FOREIGN_HOST: &str = "elsewhere.example";
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// How long a client waits for an answer before it asks again, in milliseconds.
const PATIENCE_MS: std::ops::RangeInclusive<u64> = 1500..=8000;
const PAUSE_MS: std::ops::RangeInclusive<u64> = 30..=300;
const THINK_MS: std::ops::RangeInclusive<u64> = 0..=20;
/// Keys from here on have no work to do: they ask whether a gateway is there.
const PROBES: u64 = 1 << 40;
/// Keys from here on have large answers, and no work to do either: they fill a disk.
pub(crate) const BULKY: u64 = 1 << 41;
/// Keys from here on are those of other operations, sent to the foreign host.
pub(crate) const FOREIGN: u64 = 1 << 42;
/// Operations out of a thousand whose key is sent to the foreign host too.
const FOREIGN_PERMILLE: u64 = 50;

/// What all clients of a round share.
pub(crate) struct Clients {
    http: Client<HttpConnector, Full<Bytes>>,
    /// Where each gateway is reached.
    gateways: Vec<SocketAddr>,
    on_lapse: OnLapse,
    /// What keys begin with, and the seed of the work to do for each.
    name: String,
    seed: u64,
    watch: Watch,
    attempts: Mutex<Vec<Attempt>>,
    operations: AtomicU64,
    probes: AtomicU64,
    bulky: AtomicU64,
    /// The keys that were sent to the foreign host.
    foreign: Mutex<Vec<u64>>,
}

impl Clients {
    pub(crate) fn new(
        gateways: Vec<SocketAddr>,
        on_lapse: OnLapse,
        name: String,
        seed: u64,
        watch: Watch,
    ) -> Arc<Self> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_MAX));
        Arc::new(Self {
            http: Client::builder(TokioExecutor::new()).build(connector),
            gateways,
            on_lapse,
            name,
            seed,
            watch,
            attempts: Mutex::default(),
            operations: AtomicU64::new(0),
            probes: AtomicU64::new(PROBES),
            bulky: AtomicU64::new(BULKY),
            foreign: Mutex::default(),
        })
    }

    /// How many operations have begun.
    pub(crate) fn operations(&self) -> u64 {
        self.operations.load(Ordering::SeqCst)
    }

    pub(crate) fn attempts(&self) -> Vec<Attempt> {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *attempts)
    }

    /// Every key there is.
    pub(crate) fn keys(&self) -> impl Iterator<Item = u64> + use<> {
        let probes = PROBES..self.probes.load(Ordering::SeqCst);
        let bulky = BULKY..self.bulky.load(Ordering::SeqCst);
        let foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        let foreign = foreign.clone();
        (0..self.operations())
            .chain(probes)
            .chain(bulky)
            .chain(foreign)
    }

    /// One operation after the other, until `goes_on` says no.
    pub(crate) async fn work(&self, mut dice: Dice, goes_on: impl Fn() -> bool) {
        while goes_on() {
            let key = self.operations.fetch_add(1, Ordering::SeqCst);
            let (mut other, mut third) = (dice.fork(), dice.fork());
            match dice.below(10) {
                0..=6 => drop(self.ask(key, &mut dice).await),
                7..=8 => drop(tokio::join!(
                    self.ask(key, &mut dice),
                    self.ask(key, &mut other)
                )),
                _ => drop(tokio::join!(
                    self.ask(key, &mut dice),
                    self.ask(key, &mut other),
                    self.ask(key, &mut third)
                )),
            }
            if dice.chance(FOREIGN_PERMILLE) {
                self.ask_foreign(FOREIGN + key, &mut dice).await;
            }
            if dice.chance(200) {
                let earlier = dice.below(key + 1);
                self.ask(earlier, &mut dice).await;
            }
            sleep(Duration::from_millis(dice.between(THINK_MS))).await;
        }
    }

    async fn ask_foreign(&self, key: u64, dice: &mut Dice) {
        {
            let mut foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
            foreign.push(key);
        }
        self.ask(key, dice).await;
    }

    /// Asks until the answer is final, each time in a manner drawn anew. It never gives up by itself:
    /// the caller bounds it.
    pub(crate) async fn ask(&self, key: u64, dice: &mut Dice) -> Answer {
        loop {
            let gateway = dice.index(self.gateways.len());
            let patience = Duration::from_millis(dice.between(PATIENCE_MS));
            let manner = Manner::draw(dice);
            let answer = self.send(gateway, key, manner, patience, dice).await;
            match answer {
                Answer::Done(_) | Answer::Garbled => return answer,
                // It may be run again: a retry gets its answer.
                Answer::Unknown if self.on_lapse == OnLapse::Hold => return answer,
                Answer::Unknown | Answer::Refused(_) | Answer::Nothing => {}
            }
            sleep(Duration::from_millis(dice.between(PAUSE_MS))).await;
        }
    }

    /// Asks one gateway for a new key with nothing to do.
    pub(crate) async fn probe(&self, gateway: usize, patience: Duration) -> Answer {
        let key = self.probes.fetch_add(1, Ordering::SeqCst);
        self.send_plainly(gateway, key, patience).await
    }

    /// The same for a new key with a large answer.
    pub(crate) async fn probe_with_bulk(&self, gateway: usize, patience: Duration) -> Answer {
        let key = self.bulky.fetch_add(1, Ordering::SeqCst);
        self.send_plainly(gateway, key, patience).await
    }

    async fn send_plainly(&self, gateway: usize, key: u64, patience: Duration) -> Answer {
        let mut dice = Dice::new(key);
        self.send(gateway, key, Manner::Plain, patience, &mut dice)
            .await
    }

    async fn send(
        &self,
        gateway: usize,
        key: u64,
        manner: Manner,
        patience: Duration,
        dice: &mut Dice,
    ) -> Answer {
        let sent = self.watch.now();
        let (text, body) = (self.text_of(key), self.work_of(key).to_string());
        let order = Order {
            host: host_of(key),
            key: &text,
            body: &body,
        };
        let address = self.gateways[gateway];
        let heard = async {
            if manner == Manner::Plain {
                return self.request(address, &order).await.into_iter().collect();
            }
            // A connection that fails is an answer that is not heard.
            manner.send(address, &order, dice).await.unwrap_or_default()
        };
        let heard: Vec<Heard> = timeout(patience, heard).await.unwrap_or_default();
        let attempt = Attempt {
            key,
            gateway,
            manner,
            sent,
            heard: self.watch.now(),
            answer: answer(key, &heard),
        };
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.push(attempt);
        attempt.answer
    }

    /// Nothing if there was no whole answer.
    async fn request(&self, gateway: SocketAddr, order: &Order<'_>) -> Option<Heard> {
        let request = Request::post(format!("http://{gateway}/orders"))
            .header("host", order.host)
            .header("idempotency-key", order.key)
            .header("content-type", "text/plain")
            .body(Full::from(order.body.to_owned()))
            .ok()?;
        let response = self.http.request(request).await.ok()?;
        let status = response.status();
        let body = response.into_body().collect().await.ok()?.to_bytes();
        Some(Heard { status, body })
    }

    /// The key as it is sent.
    fn text_of(&self, key: u64) -> String {
        format!("{}-{}", self.name, key % FOREIGN)
    }

    /// How long an execution takes, in milliseconds: the same for every caller. Some take longer than a
    /// lease, so that faults meet them.
    fn work_of(&self, key: u64) -> u64 {
        if key >= PROBES {
            return 0;
        }
        let mut dice = Dice::new(self.seed ^ key);
        match dice.below(20) {
            0 => dice.between(1000..=5000),
            1..=3 => dice.between(50..=400),
            _ => dice.between(0..=10),
        }
    }
}

fn host_of(key: u64) -> &'static str {
    if key >= FOREIGN { FOREIGN_HOST } else { HOST }
}

/// What the answers to one request, or to the same one sent twice, come to.
fn answer(key: u64, heard: &[Heard]) -> Answer {
    let mut answers = heard.iter().map(|heard| judge(key, heard));
    let Some(first) = answers.next() else {
        return Answer::Nothing;
    };
    let is_done = |it: &Answer| matches!(it, Answer::Done(_) | Answer::Garbled);
    match answers.find(is_done) {
        Some(second) if is_done(&first) && first != second => Answer::Garbled,
        Some(second) => second,
        None => first,
    }
}

fn judge(key: u64, heard: &Heard) -> Answer {
    match heard.status {
        StatusCode::CREATED => {
            upstream::made_by(key, &heard.body).map_or(Answer::Garbled, Answer::Done)
        }
        StatusCode::CONFLICT if says_unknown(&heard.body) => Answer::Unknown,
        status if status.is_success() || status.is_informational() => Answer::Garbled,
        status => Answer::Refused(status.as_u16()),
    }
}

fn says_unknown(body: &[u8]) -> bool {
    String::from_utf8_lossy(body).contains("outcome-unknown")
}
